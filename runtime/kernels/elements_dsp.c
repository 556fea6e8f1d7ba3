/* SPDX-License-Identifier: BSD-3-Clause */
#include "elements_dsp.h"

#if NEUTRON_DSP

uint32_t neutron_load_some_dsp(const uint8_t *from, int32_t pitch, int32_t count) {
    uint32_t word = 0;
    for (int32_t i = 0; i < 4 && i < count; i++, from += pitch) word |= (uint32_t)*from << 8 * i;
    return word;
}

void neutron_store_some_dsp(uint8_t *to, int32_t pitch, uint32_t word, int32_t count) {
    for (int32_t i = 0; i < 4 && i < count; i++, to += pitch, word >>= 8) *to = (uint8_t)word;
}

static void add_pairs(int32_t *sums, uint32_t even, uint32_t odd) {
    sums[0] += (int16_t)even;
    sums[1] += (int16_t)odd;
    sums[2] += (int32_t)even >> 16;
    sums[3] += (int32_t)odd >> 16;
}

void neutron_sum_dsp(int32_t *sums, const NeutronBuffer *in, const uint8_t *from, int32_t first_row, int32_t rows,
                     int32_t cols, int32_t count) {
    enum { MOST = 256 }; /* bytes whose sum fits 16 bits */
    const bool whole = count >= 4 && in->channel_pitch == 1;
    int32_t position = first_row % in->ring, left = MOST;
    uint32_t even = 0, odd = 0;
    memset(sums, 0, 4 * sizeof *sums);
    for (; rows > 0; rows--) {
        const uint8_t *at = from;
        for (int32_t rest = cols, some; rest > 0; rest -= some, left -= some) {
            if (left == 0) {
                add_pairs(sums, even, odd);
                even = odd = 0;
                left = MOST;
            }
            some = rest < left ? rest : left;
            for (int32_t i = some; i > 0 && !whole; i--, at += in->col_pitch) {
                const uint32_t word = neutron_load_some_dsp(at, in->channel_pitch, count);
                even = neutron_add_even_bytes(even, word);
                odd = neutron_add_odd_bytes(odd, word);
            }
            for (int32_t i = some; i > 0 && whole; i--, at += in->col_pitch) {
                const uint32_t word = neutron_load_word(at);
                even = neutron_add_even_bytes(even, word);
                odd = neutron_add_odd_bytes(odd, word);
            }
        }
        from += in->row_pitch;
        if (++position == in->ring) {
            position = 0;
            from -= (ptrdiff_t)in->ring * in->row_pitch;
        }
    }
    add_pairs(sums, even, odd);
}

#endif
