/* SPDX-License-Identifier: BSD-3-Clause */
/* average_pool_2d_s8 for the DSP extension, four channels at a time. This takes every call. */
#include "elements_dsp.h"
#include "pool.h"

#if NEUTRON_DSP

void average_pool_2d_s8_run(const NeutronKernelCall *call);

static void average(const NeutronPool *pool, const NeutronPoolPoint *point) {
    const int32_t count = point->rows * point->cols;
    const int32_t in_pitch = pool->in->channel_pitch, out_pitch = pool->out->channel_pitch;
    for (int32_t done = 0; done < point->channels; done += 4) {
        int32_t x[4];
        neutron_sum_dsp(x, pool->in, point->from + (ptrdiff_t)done * in_pitch, point->first_row, point->rows, point->cols,
                        point->channels - done);
        for (int i = 0; i < 4; i++) {
            const int32_t nudged = x[i] > 0 ? x[i] + count / 2 : x[i] - count / 2;
            x[i] = neutron_bound(nudged / count, pool->clamp_min, pool->clamp_max);
        }
        neutron_store_some_dsp(point->to + (ptrdiff_t)done * out_pitch, out_pitch,
                               neutron_stored_word(x[0], x[1], x[2], x[3]), point->channels - done);
    }
}

void average_pool_2d_s8_run(const NeutronKernelCall *call) { neutron_for_each_point(call, average); }

#endif
