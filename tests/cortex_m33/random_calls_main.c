/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads triples of kernel, first call and number of calls from the file `cases`, and writes the calls' checksums to the file
 * `results`. Behind the inputs lies nothing at all, so that reading one byte too many is a fault. */
#include "board.h"
#include "random_calls.h"

extern uint8_t data_guard[], flash_guard[];

int main(void);
int main(void) {
    const int32_t cases = board_open("cases", false), results = board_open("results", true);
    uint32_t item[3];
    while (board_read(cases, item, sizeof item)) {
        for (uint32_t i = 0; i < item[2]; i++) {
            const uint32_t checksum = random_call(item[0], item[1] + i, data_guard, flash_guard);
            board_write(results, &checksum, sizeof checksum);
        }
    }
    return 0;
}
