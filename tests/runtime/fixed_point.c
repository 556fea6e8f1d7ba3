/* SPDX-License-Identifier: BSD-3-Clause */
/* kernel.h's fixed point against gemmlowp's definitions (fixedpoint/fixedpoint.h), on the edges of the ranges against each
 * other and on random numbers. Prints how many pairs were compared; ends with 1 at the first that differs. */
#include <inttypes.h>
#include <stdio.h>

#include "elements.h"

/* SaturatingRoundingDoublingHighMul */
static int32_t wanted_high_mul(int32_t a, int32_t b) {
    const int64_t product = (int64_t)a * b;
    const int64_t nudge = product >= 0 ? INT64_C(1) << 30 : 1 - (INT64_C(1) << 30);
    if (a == INT32_MIN && b == INT32_MIN) return INT32_MAX;
    return (int32_t)((product + nudge) / (INT64_C(1) << 31));
}

/* RoundingDivideByPOT */
static int32_t wanted_shift(int32_t x, int32_t exponent) {
    const int32_t mask = (int32_t)((INT64_C(1) << exponent) - 1), remainder = x & mask;
    const int32_t threshold = (mask >> 1) + (x < 0 ? 1 : 0);
    return (x >> exponent) + (remainder > threshold ? 1 : 0);
}

static int compare(int32_t a, int32_t b) {
    const int32_t product = wanted_high_mul(a, b);
    if (neutron_doubling_high_mul(a, b) != product) return 1;
    if (!(a == INT32_MIN && b == INT32_MIN) && neutron_high_mul(a, b) != product) return 1;
    for (int32_t exponent = 0; exponent < 32; exponent++) {
        const int32_t shifted = wanted_shift(a, exponent);
        const bool small = exponent == 0 || (a > -(INT32_C(1) << 30) && a < INT32_C(1) << 30);
        if (neutron_rounding_shift_right(a, exponent) != shifted) return 1;
        if (small && neutron_shift_rounding(a, neutron_rounding(exponent)) != shifted) return 1;
        if (neutron_shift_is_sound(-exponent) && b != INT32_MIN &&
            neutron_requantize(a, b, -exponent) != wanted_shift(product, exponent)) {
            return 1;
        }
    }
    return 0;
}

int main(void) {
    /* Powers of two, odd multiples of them (whose products lie halfway), and their neighbours. */
    static int32_t edges[32 * 4 * 3 * 2];
    int count = 0;
    for (int bit = 0; bit < 32; bit++) {
        for (int odd = 1; odd < 8; odd += 2) {
            for (int near = -1; near <= 1; near++) {
                const uint32_t edge = ((uint32_t)odd << bit) + (uint32_t)near;
                edges[count++] = (int32_t)edge;
                edges[count++] = (int32_t)(0u - edge);
            }
        }
    }
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < count; j++) {
            if (compare(edges[i], edges[j]) != 0) {
                printf("%" PRId32 " and %" PRId32 " differ\n", edges[i], edges[j]);
                return 1;
            }
        }
    }
    uint64_t state = 1;
    const int drawn = 1000000;
    for (int i = 0; i < drawn; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const int32_t a = (int32_t)(uint32_t)(state >> 32), b = (int32_t)(uint32_t)((state * UINT64_C(0x9E3779B97F4A7C15)) >> 32);
        if (compare(a >> (i % 31), b) != 0) {
            printf("%" PRId32 " and %" PRId32 " differ\n", a >> (i % 31), b);
            return 1;
        }
    }
    printf("%d\n", count * count + drawn);
    return 0;
}
