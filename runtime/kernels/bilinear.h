/* SPDX-License-Identifier: BSD-3-Clause */
/* Interpolation of the resize_bilinear kernels: maps have two positions of an axis for each output position, and the second's weight. */
#ifndef NEUTRON_BILINEAR_H
#define NEUTRON_BILINEAR_H

#include "elements_16.h"

enum { WEIGHT_BITS = 10, WHOLE = 1 << WEIGHT_BITS, MAP_WORDS = 3 };

/* Two positions of an axis; `weight` of WHOLE is the second's. */
typedef struct {
    int32_t first, second, weight;
} Between;

/* Entry `position` of a map of `outputs` entries, inside the input's extent whatever the map says. */
static inline Between neutron_between(const int32_t *map, int32_t outputs, int32_t position, int32_t extent) {
    const int32_t *entry = map + position;
    return (Between){
        neutron_bound(entry[0], 0, extent - 1),
        neutron_bound(entry[outputs], 0, extent - 1),
        neutron_bound(entry[(ptrdiff_t)2 * outputs], 0, WHOLE),
    };
}

/* The four elements around an output element, in the window's first channel, and their weights. */
typedef struct {
    const uint8_t *from[4];
    int32_t weights[4];
    int32_t pitch;
} Corners;

typedef void (*NeutronMix)(const Corners *corners, uint8_t *to, int32_t to_pitch, int32_t channels);

/* mix() for the channels of each row and column of the window. */
static NEUTRON_INLINE void neutron_mix_corners(const NeutronKernelCall *call, const NeutronBuffer *in,
                                               const NeutronBuffer *out, const uint8_t *maps, NeutronMix mix) {
    const NeutronWindowExtents *w = &call->window;
    const int32_t *row_map = (const int32_t *)(const void *)maps, *col_map = row_map + (ptrdiff_t)3 * out->rows;
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        const Between rows = neutron_between(row_map, out->rows, r, in->rows);
        const uint8_t *above = neutron_element_address(call->bases, in, n, rows.first, 0, w->channel0);
        const uint8_t *below = neutron_element_address(call->bases, in, n, rows.second, 0, w->channel0);
        uint8_t *to = neutron_element_address(call->bases, out, n, r, w->col0, w->channel0);
        for (int32_t c = w->col0; c < w->col1; c++) {
            const Between cols = neutron_between(col_map, out->cols, c, in->cols);
            const ptrdiff_t left = (ptrdiff_t)cols.first * in->col_pitch, right = (ptrdiff_t)cols.second * in->col_pitch;
            const Corners corners = {
                {above + left, above + right, below + left, below + right},
                {(WHOLE - rows.weight) * (WHOLE - cols.weight), (WHOLE - rows.weight) * cols.weight,
                 rows.weight * (WHOLE - cols.weight), rows.weight * cols.weight},
                in->channel_pitch,
            };
            mix(&corners, to, out->channel_pitch, w->channel1 - w->channel0);
            to += out->col_pitch;
        }
    }
}

/* An element between four. Halves away from 0. The weights add up to 2^20: a sum of int8 has 28 bits, one of int16 36. */
static NEUTRON_INLINE int16_t neutron_mixed(const int32_t *weights, int16_t a, int16_t b, int16_t c, int16_t d,
                                            const int32_t element_bytes) {
    const int32_t half = 1 << (2 * WEIGHT_BITS - 1);
    if (element_bytes == 1) {
        const int32_t sum = a * weights[0] + b * weights[1] + c * weights[2] + d * weights[3];
        return (int16_t)((sum + (sum > 0 ? half : -half)) / (WHOLE * WHOLE));
    }
    const int64_t sum = (int64_t)a * weights[0] + (int64_t)b * weights[1] + (int64_t)c * weights[2] + (int64_t)d * weights[3];
    return (int16_t)((sum + (sum > 0 ? half : -half)) / (WHOLE * WHOLE));
}

/* Channels from `done` on, by blocks of this size. */
static NEUTRON_INLINE int32_t neutron_mix_blocks(const Corners *corners, uint8_t *to, int32_t to_pitch, int32_t channels,
                                                 int32_t done, const int32_t element_bytes, const int32_t size) {
    for (; done <= channels - size; done += size) {
        int16_t x[4][NEUTRON_BLOCK];
        NEUTRON_UNROLL
        for (int i = 0; i < 4; i++) {
            const uint8_t *from = corners->from[i] + (ptrdiff_t)done * corners->pitch;
            neutron_load_block_of(x[i], from, corners->pitch, size, element_bytes);
        }
        for (int32_t i = 0; i < size; i++) {
            x[0][i] = neutron_mixed(corners->weights, x[0][i], x[1][i], x[2][i], x[3][i], element_bytes);
        }
        neutron_store_block_of(to + (ptrdiff_t)done * to_pitch, to_pitch, x[0], size, element_bytes);
    }
    return done;
}

/* mix(), the NeutronMix of elements of so many bytes, and the same for AVX2. */
#define NEUTRON_DEFINE_MIX(element_bytes)                                                                           \
    static NEUTRON_INLINE void mix(const Corners *corners, uint8_t *to, int32_t to_pitch, int32_t channels) {       \
        const int32_t done = NEUTRON_BLOCK > 1 ? neutron_mix_blocks(corners, to, to_pitch, channels, 0,             \
                                                                    element_bytes, NEUTRON_BLOCK)                   \
                                               : 0;                                                                 \
        neutron_mix_blocks(corners, to, to_pitch, channels, done, element_bytes, 1);                                \
    }                                                                                                               \
    NEUTRON_FOR_AVX2(mix, (const Corners *corners, uint8_t *to, int32_t to_pitch, int32_t channels),                \
                     (corners, to, to_pitch, channels))

#endif
