/* SPDX-License-Identifier: BSD-3-Clause */
/* What the example needs of a board. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

#include "openneutron_model.h"

/* Called first: clocks, power, a console, the driver's port. */
void board_init(void);
/* Prints a text. */
void board_print(const char *text);
/* The most bytes of stack that were in use so far; 0 where that is not known. */
uint32_t board_stack_used(void);
#if OPENNEUTRON_PROFILE_BYTES > 0
/* What the port's counter counts: "cycles", "instructions", or "modelled cycles" where the port has none. */
const char *board_counter(void);
#endif

#endif
