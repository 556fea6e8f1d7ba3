/* SPDX-License-Identifier: BSD-3-Clause */
/* The self-check, and the functions of a board that it calls. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

#include "openneutron_models.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Runs each model on its golden inputs and compares the outputs. 0: all bytes are equal. 1: some are not, or the driver refused. */
int selfcheck(void);

/* Called first: clocks, power, a console, the driver's port. */
void board_init(void);
/* Prints a text. */
void board_print(const char *text);
/* The most bytes of stack that were in use so far; 0 where that is not known. */
uint32_t board_stack_used(void);
#ifdef NEUTRON_THREADS
/* Sets the threads of an instance. */
NeutronError board_set_threads(OpenNeutronInstance *instance);
#endif
#if OPENNEUTRON_PROFILED
/* The unit of the port's counter: "cycles", "instructions", or "modelled cycles" where the port has none. */
const char *board_counter(void);
#endif

#ifdef __cplusplus
}
#endif

#endif
