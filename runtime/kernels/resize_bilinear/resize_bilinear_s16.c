/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's ResizeBilinearInteger (reference/resize_bilinear.h) on int16; positions and weights have become maps. */
#include "bilinear.h"
#include "elements_16.h"

bool resize_bilinear_s16_check(const NeutronProgramView *program, const void *params_block,
                               const NeutronWindowExtents *window) {
    const NeutronResizeBilinearS16 *p = params_block;
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    const NeutronBuffer *out = neutron_window_elements(program, p->output, true, window, 2);
    if (in == NULL || out == NULL) return false;
    /* The maps can't be read yet: they may name any row and any column of the input. */
    const NeutronWindowExtents read = {
        .batch0 = window->batch0,
        .batch1 = window->batch1,
        .row0 = 0,
        .row1 = in->rows,
        .col0 = 0,
        .col1 = in->cols,
        .channel0 = window->channel0,
        .channel1 = window->channel1,
    };
    return neutron_window_elements(program, p->input, false, &read, 2) != NULL &&
           neutron_bilinear_maps_are_sound(program, out, p->map_base, p->map_offset);
}

/* Channels from `done` on, by blocks of this size. */
static NEUTRON_INLINE int32_t mix_blocks(const Corners *corners, uint8_t *to, int32_t to_pitch, int32_t channels,
                                         int32_t done, const int32_t size) {
    const int64_t half = 1 << (2 * WEIGHT_BITS - 1);
    for (; done <= channels - size; done += size) {
        int16_t a[NEUTRON_BLOCK], b[NEUTRON_BLOCK], c[NEUTRON_BLOCK], d[NEUTRON_BLOCK];
        const ptrdiff_t offset = (ptrdiff_t)done * corners->pitch;
        neutron_load_block_16(a, corners->from[0] + offset, corners->pitch, size);
        neutron_load_block_16(b, corners->from[1] + offset, corners->pitch, size);
        neutron_load_block_16(c, corners->from[2] + offset, corners->pitch, size);
        neutron_load_block_16(d, corners->from[3] + offset, corners->pitch, size);
        for (int32_t i = 0; i < size; i++) {
            /* The weights add up to 2^20: the sum has 36 bits. */
            const int64_t sum = (int64_t)a[i] * corners->weights[0] + (int64_t)b[i] * corners->weights[1] +
                                (int64_t)c[i] * corners->weights[2] + (int64_t)d[i] * corners->weights[3];
            /* Halves away from 0. */
            a[i] = (int16_t)((sum + (sum > 0 ? half : -half)) / (WHOLE * WHOLE));
        }
        neutron_store_block_16(to + (ptrdiff_t)done * to_pitch, to_pitch, a, size);
    }
    return done;
}

static NEUTRON_INLINE void mix(const Corners *corners, uint8_t *to, int32_t to_pitch, int32_t channels) {
    const int32_t done = NEUTRON_BLOCK > 1 ? mix_blocks(corners, to, to_pitch, channels, 0, NEUTRON_BLOCK) : 0;
    mix_blocks(corners, to, to_pitch, channels, done, 1);
}

NEUTRON_FOR_AVX2(mix, (const Corners *corners, uint8_t *to, int32_t to_pitch, int32_t channels),
                 (corners, to, to_pitch, channels))

void resize_bilinear_s16_run(const NeutronKernelCall *call) {
    const NeutronResizeBilinearS16 *p = call->params;
    const uint8_t *maps = neutron_base_address(call->bases, p->map_base) + p->map_offset;
    neutron_mix_corners(call, &call->buffers[p->input], &call->buffers[p->output], maps, NEUTRON_FASTEST(mix));
}
