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

/* mix(), the NeutronMix of elements of `type`, and the same for AVX2. load, store: the functions of blocks of this type. The weights
 * add up to 2^20: a sum of int8 has 28 bits, of int16 36. Halves away from 0. */
#define NEUTRON_DEFINE_MIX(type, sum_type, load, store)                                                             \
    static NEUTRON_INLINE int32_t mix_blocks(const Corners *corners, uint8_t *to, int32_t to_pitch,                 \
                                             int32_t channels, int32_t done, const int32_t size) {                  \
        const sum_type half = 1 << (2 * WEIGHT_BITS - 1);                                                           \
        for (; done <= channels - size; done += size) {                                                             \
            type x[4][NEUTRON_BLOCK];                                                                               \
            NEUTRON_UNROLL                                                                                          \
            for (int i = 0; i < 4; i++) {                                                                           \
                load(x[i], corners->from[i] + (ptrdiff_t)done * corners->pitch, corners->pitch, size);              \
            }                                                                                                       \
            for (int32_t i = 0; i < size; i++) {                                                                    \
                const sum_type sum = (sum_type)x[0][i] * corners->weights[0] + (sum_type)x[1][i] * corners->weights[1] + \
                                     (sum_type)x[2][i] * corners->weights[2] + (sum_type)x[3][i] * corners->weights[3]; \
                x[0][i] = (type)((sum + (sum > 0 ? half : -half)) / (WHOLE * WHOLE));                               \
            }                                                                                                       \
            store(to + (ptrdiff_t)done * to_pitch, to_pitch, x[0], size);                                           \
        }                                                                                                           \
        return done;                                                                                                \
    }                                                                                                               \
    static NEUTRON_INLINE void mix(const Corners *corners, uint8_t *to, int32_t to_pitch, int32_t channels) {       \
        const int32_t done = NEUTRON_BLOCK > 1 ? mix_blocks(corners, to, to_pitch, channels, 0, NEUTRON_BLOCK) : 0; \
        mix_blocks(corners, to, to_pitch, channels, done, 1);                                                       \
    }                                                                                                               \
    NEUTRON_FOR_VECTORS(mix, (const Corners *corners, uint8_t *to, int32_t to_pitch, int32_t channels),                \
                     (corners, to, to_pitch, channels))

#endif
