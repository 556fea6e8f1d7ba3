/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's ResizeBilinearInteger (reference/resize_bilinear.h); positions and weights have become maps. */
#include "elements.h"

enum { WEIGHT_BITS = 10, WHOLE = 1 << WEIGHT_BITS };

bool resize_bilinear_s8_check(const NeutronProgramView *program, const void *params_block,
                              const NeutronWindowExtents *window) {
    const NeutronResizeBilinearS8 *p = params_block;
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    const NeutronBuffer *out = neutron_window_buffer(program, p->output, true, window);
    if (in == NULL || out == NULL || window->batch1 > in->batches) return false;
    /* The maps can't be read yet: they may name any row and any column of the input. */
    const uint64_t entries = ((uint64_t)out->rows + (uint64_t)out->cols) * 3;
    return neutron_buffer_holds(in, 0, in->cols, window->channel0, window->channel1) &&
           neutron_range_is_sound(program, p->map_base, p->map_offset, entries * 4, 4);
}

/* Two positions of an axis; `weight` of WHOLE is the second's. */
typedef struct {
    int32_t first, second, weight;
} Between;

/* Entry `position` of a map of `outputs` entries, inside the input's extent whatever the map says. */
static Between between(const int32_t *map, int32_t outputs, int32_t position, int32_t extent) {
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
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const uint8_t *maps = neutron_base_address(call->bases, p->map_base) + p->map_offset;
    const int32_t *row_map = (const int32_t *)(const void *)maps, *col_map = row_map + (ptrdiff_t)3 * out->rows;
    void (*const run)(const Corners *, uint8_t *, int32_t, int32_t) = NEUTRON_FASTEST(mix);
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        const Between rows = between(row_map, out->rows, r, in->rows);
        const uint8_t *above = neutron_element_address(call->bases, in, n, rows.first, 0, w->channel0);
        const uint8_t *below = neutron_element_address(call->bases, in, n, rows.second, 0, w->channel0);
        uint8_t *to = neutron_element_address(call->bases, out, n, r, w->col0, w->channel0);
        for (int32_t c = w->col0; c < w->col1; c++) {
            const Between cols = between(col_map, out->cols, c, in->cols);
            const ptrdiff_t left = (ptrdiff_t)cols.first * in->col_pitch, right = (ptrdiff_t)cols.second * in->col_pitch;
            const Corners corners = {
                {above + left, above + right, below + left, below + right},
                {(WHOLE - rows.weight) * (WHOLE - cols.weight), (WHOLE - rows.weight) * cols.weight,
                 rows.weight * (WHOLE - cols.weight), rows.weight * cols.weight},
                in->channel_pitch,
            };
            run(&corners, to, out->channel_pitch, w->channel1 - w->channel0);
            to += out->col_pitch;
        }
    }
}
