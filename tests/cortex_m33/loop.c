/* SPDX-License-Identifier: BSD-3-Clause */
/* Loops of known length under the timer: writes the ticks of each to the file `results`. */
#include "board.h"

int main(void);
int main(void) {
    static const uint32_t rounds[] = {1000, 100000, 10000000};
    const int32_t results = board_open("results", true);
    for (uint32_t i = 0; i < sizeof rounds / sizeof rounds[0]; ++i) {
        uint32_t left = rounds[i];
        board_timer_start();
        const uint32_t start = board_timer_ticks();
        __asm volatile("1: subs %0, #1\n\tbne 1b" : "+r"(left)::"cc");
        const uint32_t ticks = board_timer_ticks() - start;
        board_write(results, &ticks, sizeof ticks);
    }
    return 0;
}
