/* SPDX-License-Identifier: BSD-3-Clause */
/* board.h on Linux, for runner.c in qemu-user: files of the current folder, and neither a timer but for one of a
 * plugin, nor a flash that faults, nor a measured stack. */
#include "board.h"

#include <stdio.h>
#include <stdlib.h>

static FILE *files[4];

void board_exit(uint32_t code) {
    fflush(NULL);
    exit((int)code);
}

void board_print(const char *text) { fputs(text, stderr); }

int32_t board_open(const char *name, bool to_write) {
    for (int32_t i = 0; i < (int32_t)(sizeof files / sizeof files[0]); ++i) {
        if (files[i] != NULL) continue;
        files[i] = fopen(name, to_write ? "wb" : "rb");
        if (files[i] == NULL) break;
        return i;
    }
    board_exit(EXIT_NO_FILE);
}

bool board_read(int32_t file, void *bytes, uint32_t size) { return fread(bytes, 1, size, files[file]) == size; }

void board_write(int32_t file, const void *bytes, uint32_t size) {
    if (fwrite(bytes, 1, size, files[file]) != size) board_exit(EXIT_NO_FILE);
}

void board_timer_start(void) {}
/* A plugin of QEMU may write the count of instructions here, when the function is entered. */
volatile uint32_t board_ticks;
__attribute__((noinline)) uint32_t board_timer_ticks(void) { return board_ticks; }
void board_flash_lock(void) {}
void board_flash_unlock(void) {}

int32_t board_measured(int32_t (*entry)(void *a, void *b), void *a, void *b, uint32_t *depth) {
    *depth = 0;
    return entry(a, b);
}
