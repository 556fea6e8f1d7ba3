/* SPDX-License-Identifier: BSD-3-Clause */
/* Random calls of the convolution kernels on the Cortex-M33. The file `seed` holds a seed and how many cases to run, two
 * words; `results` gets the checksum after each case. */
#ifndef RANDOM_CONVOLUTIONS
#define RANDOM_CONVOLUTIONS "random_convolutions.h"
#define RUN_CASE run_case
#endif
#include RANDOM_CONVOLUTIONS

#include "board.h"

/* Each case frees all that it takes. */
static uint8_t pool[1 << 23] __attribute__((section(".large"), aligned(16)));
static size_t used, taken;

void *malloc(size_t size) {
    uint8_t *const memory = pool + used;
    used += (size + 15) & ~(size_t)15;
    taken++;
    if (used > sizeof pool) board_exit(1);
    return memory;
}

void free(void *memory) {
    (void)memory;
    if (--taken == 0) used = 0;
}

int main(void);
int main(void) {
    uint32_t words[2];
    const int32_t seed = board_open("seed", false), results = board_open("results", true);
    Totals totals = {0};
    if (!board_read(seed, words, sizeof words)) return 2;
    for (uint32_t i = 0; i < words[1]; i++) {
        RUN_CASE(words[0], (long)i, &totals);
        board_write(results, &checksum, sizeof checksum);
    }
    return totals.refused != 0;
}
