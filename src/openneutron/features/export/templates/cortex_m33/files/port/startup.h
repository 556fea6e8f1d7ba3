/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef STARTUP_H
#define STARTUP_H

/* What the stack is painted with before anything is on it. */
#define STACK_PAINT 0xA5A5A5A5u

/* Ends the program with main's value, or 255 after a fault. */
__attribute__((noreturn)) void board_exit(int code);

#endif
