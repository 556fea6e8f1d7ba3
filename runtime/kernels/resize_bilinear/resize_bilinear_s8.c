/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's ResizeBilinearInteger (reference/resize_bilinear.h); positions and weights have become maps. */
#include "bilinear.h"

bool resize_bilinear_s8_check(const NeutronProgramView *program, const void *params_block,
                              const NeutronWindowExtents *window) {
    const NeutronResizeBilinearS8 *p = params_block;
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    const NeutronBuffer *out = neutron_window_buffer(program, p->output, true, window);
    if (in == NULL || out == NULL || window->batch1 > in->batches) return false;
    /* The maps can't be read yet: they may name any row and any column of the input. */
    return neutron_buffer_holds(in, 0, in->cols, window->channel0, window->channel1) &&
           neutron_bilinear_maps_are_sound(program, out, p->map_base, p->map_offset);
}

/* Channels from `done` on, by blocks of this size. */
static NEUTRON_INLINE int32_t mix_blocks(const Corners *corners, uint8_t *to, int32_t to_pitch, int32_t channels,
                                         int32_t done, const int32_t size) {
    const int32_t half = 1 << (2 * WEIGHT_BITS - 1);
    for (; done <= channels - size; done += size) {
        int8_t a[NEUTRON_BLOCK], b[NEUTRON_BLOCK], c[NEUTRON_BLOCK], d[NEUTRON_BLOCK];
        const ptrdiff_t offset = (ptrdiff_t)done * corners->pitch;
        neutron_load_block(a, corners->from[0] + offset, corners->pitch, size);
        neutron_load_block(b, corners->from[1] + offset, corners->pitch, size);
        neutron_load_block(c, corners->from[2] + offset, corners->pitch, size);
        neutron_load_block(d, corners->from[3] + offset, corners->pitch, size);
        for (int32_t i = 0; i < size; i++) {
            const int32_t sum = a[i] * corners->weights[0] + b[i] * corners->weights[1] + c[i] * corners->weights[2] +
                                d[i] * corners->weights[3];
            /* Halves away from 0. */
            a[i] = (int8_t)((sum + (sum > 0 ? half : -half)) / (WHOLE * WHOLE));
        }
        neutron_store_block(to + (ptrdiff_t)done * to_pitch, to_pitch, a, size);
    }
    return done;
}

static NEUTRON_INLINE void mix(const Corners *corners, uint8_t *to, int32_t to_pitch, int32_t channels) {
    const int32_t done = NEUTRON_BLOCK > 1 ? mix_blocks(corners, to, to_pitch, channels, 0, NEUTRON_BLOCK) : 0;
    mix_blocks(corners, to, to_pitch, channels, done, 1);
}

NEUTRON_FOR_AVX2(mix, (const Corners *corners, uint8_t *to, int32_t to_pitch, int32_t channels),
                 (corners, to, to_pitch, channels))

void resize_bilinear_s8_run(const NeutronKernelCall *call) {
    const NeutronResizeBilinearS8 *p = call->params;
    const uint8_t *maps = neutron_base_address(call->bases, p->map_base) + p->map_offset;
    neutron_mix_corners(call, &call->buffers[p->input], &call->buffers[p->output], maps, NEUTRON_FASTEST(mix));
}
