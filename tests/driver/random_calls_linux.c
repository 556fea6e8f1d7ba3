/* SPDX-License-Identifier: BSD-3-Clause */
/* random_calls_main.c on Linux, for qemu-user. Behind the inputs lie pages that fault. */
#include <sys/mman.h>

#include "board.h"
#include "random_calls.h"

enum { ROOM = 1 << 16, GUARD = 1 << 16 };

static uint8_t *end_of_room(void) {
    uint8_t *room = mmap(NULL, ROOM + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED || mprotect(room + ROOM, GUARD, PROT_NONE) != 0) board_exit(EXIT_FAULT);
    return room + ROOM;
}

int main(void) {
    const int32_t cases = board_open("cases", false), results = board_open("results", true);
    uint8_t *a_end = end_of_room(), *b_end = end_of_room();
    uint32_t item[3];
    while (board_read(cases, item, sizeof item)) {
        for (uint32_t i = 0; i < item[2]; i++) {
            const uint32_t checksum = random_call(item[0], item[1] + i, a_end, b_end);
            board_write(results, &checksum, sizeof checksum);
        }
    }
    board_exit(0);
}
