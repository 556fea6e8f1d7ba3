/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests' programs need of a board of QEMU (boards.py): files and the exit code through semihosting, a timer, memory that
 * faults, and calls that measure their stack. */
#ifndef BOARD_H
#define BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit codes of what must not happen; a program of ours ends with 0, or with a number below these. */
enum { EXIT_FAULT = 254, EXIT_NO_FILE = 255 };

_Noreturn void board_exit(uint32_t code);
void board_print(const char *text);

/* A file's handle; ends the program where it can't be opened. */
int32_t board_open(const char *name, bool to_write);
/* Whether all bytes were there. */
bool board_read(int32_t file, void *bytes, uint32_t size);
void board_write(int32_t file, const void *bytes, uint32_t size);

/* Ticks of the board's timer, which board_timer_start starts. Under `-icount shift=0` an instruction takes 1 ns. */
void board_timer_start(void);
uint32_t board_timer_ticks(void);

/* From now on every access to the flash region faults; and no longer. */
void board_flash_lock(void);
void board_flash_unlock(void);

/* What entry(a, b) returns; *depth gets the bytes of stack that it used below its entry, as far as they were written;
 * BOARD_PAINTED where it was at least so much. */
#define BOARD_PAINTED 16384
int32_t board_measured(int32_t (*entry)(void *a, void *b), void *a, void *b, uint32_t *depth);

#endif
