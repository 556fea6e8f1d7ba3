/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions that a project adds to a CMSIS-Pack's example. */
#include "board.h"

#include "../semihosting.h"
#include "startup.h"

void board_init(void) {}

void board_print(const char *text) { semihost_print(text); }

uint32_t board_stack_used(void) { return 0; }

void board_exit(int code) { semihost_exit(code); }
