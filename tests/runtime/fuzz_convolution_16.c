/* SPDX-License-Identifier: BSD-3-Clause */
/* Random calls of the convolution kernels for int16 (random_convolutions_16.h).
 *
 *     fuzz_convolution_16 SEED CASES
 *
 * is to be built with the address and undefined-behaviour sanitizers. Prints how many calls were accepted, how many ran, and a
 * checksum of the results; ends with 1 where the runs differ, or a sound call is refused. */
#include "random_convolutions_16.h"

#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const uint64_t seed = strtoull(argv[1], NULL, 10);
    const long cases = strtol(argv[2], NULL, 10);
    Totals totals = {0};
    for (long i = 0; i < cases; i++) {
        const long before = totals.differ + totals.refused;
        run_case_16(seed, i, &totals);
        if (totals.differ + totals.refused != before) printf("case %ld: differs, or is sound and was refused\n", i);
    }
    printf("sound %ld damaged %ld ran %ld checksum %08" PRIx32 "\n", totals.accepted[0], totals.accepted[1], totals.ran[0],
           checksum);
    return totals.differ + totals.refused != 0;
}
