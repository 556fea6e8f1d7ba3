/* SPDX-License-Identifier: BSD-3-Clause */
/* max_pool_2d_s8 for the DSP extension, four channels at a time. This takes every call. */
#include "elements_dsp.h"
#include "pool.h"

#if NEUTRON_DSP

static void max(const NeutronPool *pool, const NeutronPoolPoint *point) {
    const uint32_t low = neutron_four_bytes(pool->clamp_min), high = neutron_four_bytes(pool->clamp_max);
    const int32_t in_pitch = pool->in->channel_pitch, out_pitch = pool->out->channel_pitch;
    const int32_t rows = point->cols > 0 ? point->rows : 0;
    for (int32_t done = 0; done < point->channels; done += 4) {
        const int32_t left = point->channels - done;
        const bool whole = left >= 4 && in_pitch == 1;
        const uint8_t *row = rows > 0 ? point->from + (ptrdiff_t)done * in_pitch : NULL;
        uint32_t largest = low;
        for (int32_t r = 0; r < rows; r++) {
            const uint8_t *from = row;
            for (int32_t c = point->cols; c > 0; c--, from += pool->in->col_pitch) {
                const uint32_t word = whole ? neutron_load_word(from) : neutron_load_some_dsp(from, in_pitch, left);
                largest = neutron_max_bytes(largest, word);
            }
            row += neutron_pool_next_row(pool, point->first_row + r);
        }
        largest = neutron_min_bytes(largest, high);
        uint8_t *to = point->to + (ptrdiff_t)done * out_pitch;
        if (left >= 4 && out_pitch == 1) {
            neutron_store_word(to, largest);
        } else {
            neutron_store_some_dsp(to, out_pitch, largest, left);
        }
    }
}

void max_pool_2d_s8_run(const NeutronKernelCall *call) { neutron_for_each_point(call, max); }

#endif
