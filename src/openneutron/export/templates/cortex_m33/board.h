/* SPDX-License-Identifier: BSD-3-Clause */
/* What the example needs of a board. board.c has it for a Cortex-M33 with semihosting (QEMU, or a debug probe); for your
 * own chip, write these four. */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

/* What the stack is painted with before anything is on it. */
#define BOARD_STACK_PAINT 0xA5A5A5A5u

/* Called before main: clocks, the NPU's or the memory's power, a UART. */
void board_init(void);
/* Prints a text. */
void board_print(const char *text);
/* The most bytes of stack that were in use so far. */
uint32_t board_stack_used(void);
/* Ends the program; main's value, or 255 after a fault. */
_Noreturn void board_exit(int code);

#endif
