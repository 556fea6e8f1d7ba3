/* SPDX-License-Identifier: BSD-3-Clause */
/* Random calls of the convolution kernels (random_convolutions.h).
 *
 *     fuzz_convolution SEED CASES [FILE]
 *
 * is to be built with the address and undefined-behaviour sanitizers. Prints how many calls were accepted, how often each
 * variant ran, and a checksum of the results; ends with 1 where two variants differ, or a sound call is refused. FILE gets
 * the checksum after each case. */
#include "random_convolutions.h"

#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv) {
    if (argc != 3 && argc != 4) return 2;
    const uint64_t seed = strtoull(argv[1], NULL, 10);
    const long cases = strtol(argv[2], NULL, 10);
    FILE *file = argc == 4 ? fopen(argv[3], "wb") : NULL;
    Totals totals = {0};
    for (long i = 0; i < cases; i++) {
        const long before = totals.differ + totals.refused;
        run_case(seed, i, &totals);
        if (totals.differ + totals.refused != before) printf("case %ld: differs, or is sound and was refused\n", i);
        if (file != NULL) fwrite(&checksum, sizeof checksum, 1, file);
    }
    if (file != NULL) fclose(file);
    printf("sound %ld damaged %ld portable %ld vector %ld differ %ld checksum %08" PRIx32 "\n", totals.accepted[0],
           totals.accepted[1], totals.ran[0], totals.ran[1], totals.differ, checksum);
    return totals.differ + totals.refused != 0;
}
