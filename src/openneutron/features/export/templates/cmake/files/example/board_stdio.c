/* SPDX-License-Identifier: BSD-3-Clause */
/* A board with stdio: a computer, or a microcontroller whose C library has a console. */
#include <stdio.h>

#include "board.h"

void board_init(void) {}

void board_print(const char *text) { fputs(text, stdout); }

uint32_t board_stack_used(void) { return 0; }

#if OPENNEUTRON_PROFILED
const char *board_counter(void) { return "modelled cycles"; }
#endif
