/* SPDX-License-Identifier: BSD-3-Clause */
/* average_pool_2d_s8 for the DSP extension, four channels at a time. This takes every call. */
#include "elements_dsp.h"
#include "pool.h"

#if NEUTRON_DSP

static void average(const NeutronPool *pool, const NeutronPoolPoint *point) {
    const int32_t count = point->rows * point->cols, half = count / 2;
    const uint32_t low = neutron_four_bytes(pool->clamp_min), high = neutron_four_bytes(pool->clamp_max);
    const int32_t in_pitch = pool->in->channel_pitch, out_pitch = pool->out->channel_pitch;
    for (int32_t done = 0; done < point->channels; done += 4) {
        int32_t x[4];
        neutron_sum_dsp(x, pool->in, point->from + (ptrdiff_t)done * in_pitch, point->first_row, point->rows, point->cols,
                        point->channels - done);
        NEUTRON_UNROLL
        for (int i = 0; i < 4; i++) x[i] = (x[i] > 0 ? x[i] + half : x[i] - half) / count;
        const uint32_t word =
            neutron_min_bytes(neutron_max_bytes(neutron_stored_word(x[0], x[1], x[2], x[3]), low), high);
        uint8_t *to = point->to + (ptrdiff_t)done * out_pitch;
        if (out_pitch == 1 && point->channels - done >= 4) {
            neutron_store_word(to, word);
        } else {
            neutron_store_some_dsp(to, out_pitch, word, point->channels - done);
        }
    }
}

void average_pool_2d_s8_run(const NeutronKernelCall *call) { neutron_for_each_point(call, average); }

#endif
