/* SPDX-License-Identifier: BSD-3-Clause */
/* The example's board on this computer. */
#include "board.h"

#include <stdio.h>

void board_init(void) {}
void board_print(const char *text) { fputs(text, stdout); }
uint32_t board_stack_used(void) { return 0; }
#if OPENNEUTRON_PROFILE_BYTES > 0
const char *board_counter(void) { return "modelled cycles"; }
#endif
