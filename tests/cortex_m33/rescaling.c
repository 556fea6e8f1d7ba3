/* SPDX-License-Identifier: BSD-3-Clause */
/* Rescales numbers with vectors and one by one, with every shift: values and multipliers at the edges, ties, and random ones. Writes the
 * number of different results to the file `results`, and how many there were. */
#include "board.h"
#include "conv_2d/convolution.h"

static uint32_t state = 1;

static int32_t random_word(void) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return (int32_t)state;
}

static const int32_t EDGES[] = {0, 1, -1, 2, -2, 3, -3, INT32_MAX, INT32_MIN, INT32_MAX - 1, INT32_MIN + 1, 1 << 30, -(1 << 30)};
enum { EDGE_COUNT = sizeof EDGES / sizeof EDGES[0], ROUNDS = 400 };

/* Every other number is one at an edge, near a power of two, or half of one: a tie of some shift. */
static int32_t number(void) {
    const uint32_t kind = (uint32_t)random_word() % 5, amount = (uint32_t)random_word() % 31;
    const int32_t power = INT32_C(1) << amount, near = power - 1 + random_word() % 2;
    if (kind == 0) return EDGES[(uint32_t)random_word() % EDGE_COUNT];
    if (kind == 1) return near;
    if (kind == 2) return -near;
    if (kind == 3) return (int32_t)((uint32_t)(random_word() % 64) << amount);
    return random_word();
}

int main(void);
int main(void) {
    uint32_t different = 0, count = 0;
    for (int32_t shift = -40; shift <= 40; shift++) {
        for (int32_t round = 0; round < ROUNDS; round++) {
            int32_t x[NEUTRON_LANES], multipliers[NEUTRON_LANES], shifts[NEUTRON_LANES], results[NEUTRON_LANES];
            for (int32_t k = 0; k < NEUTRON_LANES; k++) {
                x[k] = number();
                multipliers[k] = round % 2 != 0 ? number() : (random_word() & 0x3FFFFFFF) + 0x40000000;
                shifts[k] = round % 4 < 2 ? shift : random_word() % 41;
            }
            NeutronScales scales;
            neutron_prepare_scales(&scales, multipliers, shifts);
            NeutronEight eight = neutron_load_eight_words(x);
            if (scales.shifts_left) neutron_shift_left_eight(&eight, &scales);
            neutron_requantize_eight(&eight, &scales);
            for (int32_t i = 0; i < 2; i++) {
                vstrwq_s32(results, eight.val[i]);
                for (int32_t k = 0; k < NEUTRON_LANES / 2; k++) {
                    const int32_t lane = 2 * k + i, multiplier = neutron_sound_multiplier(multipliers[lane]);
                    different += results[k] != neutron_rounded_twice(x[lane], multiplier, shifts[lane]);
                    count++;
                }
            }
        }
    }
    const int32_t results = board_open("results", true);
    board_write(results, &different, sizeof different);
    board_write(results, &count, sizeof count);
    return 0;
}
