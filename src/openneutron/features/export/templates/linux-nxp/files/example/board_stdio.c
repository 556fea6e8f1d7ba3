/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>

#include "board.h"

void board_init(void) {}

void board_print(const char *text) { fputs(text, stdout); }

uint32_t board_stack_used(void) { return 0; }
