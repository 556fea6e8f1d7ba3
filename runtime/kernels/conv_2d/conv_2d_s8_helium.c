/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_s8 for Helium: the inputs of all taps side by side. */
#include "convolution_helium.h"

#if NEUTRON_HELIUM

static bool is_inside(int32_t at, int32_t extent) { return (uint32_t)at < (uint32_t)extent; }

#if NEUTRON_FAST_DSP

/* ---- taps of less than 8 channels ------------------------------------------------------------------------------------------ */

/* Blocks of packed weights have 8 inputs for a tap of any channels. Here all channels of all taps follow each other: of as many columns of
 * the kernel as fit 16 inputs, row by row; then of the next columns. */

enum { MOST_BLOCKS = 19 /* of inputs and weights that fit into the buffer for three outputs */ };

/* The columns at a time. */
static int32_t columns_of(const NeutronLayerHelium *layer) {
    const NeutronConv2dS8 *p = layer->call->params;
    if (p->dilation_w != 1 || layer->call->buffers[p->input].col_pitch != p->group_inputs) return 1;
    return NEUTRON_PIECE / p->group_inputs < p->kernel_w ? NEUTRON_PIECE / p->group_inputs : p->kernel_w;
}

static void pack_dense(const NeutronLayerHelium *layer, const int8_t *from, int8_t *to) {
    const NeutronConv2dS8 *p = layer->call->params;
    const int32_t columns = columns_of(layer);
    const uint16x8_t lanes = vmulq_n_u16(vidupq_n_u16(0, 1), NEUTRON_LANES);
    int32_t left = NEUTRON_LANES;
    for (int32_t j = 0; j < p->kernel_w; j += columns) {
        const int32_t taps = p->kernel_w - j < columns ? p->kernel_w - j : columns;
        for (int32_t i = 0; i < p->kernel_h; i++) {
            const int8_t *tap = from + (ptrdiff_t)(i * p->kernel_w + j) * NEUTRON_LANES * NEUTRON_LANES;
            for (int32_t k = taps; k > 0; k--, tap += NEUTRON_LANES * NEUTRON_LANES) {
                for (int32_t channel = 0; channel < p->group_inputs; channel++) {
                    vstrbq_scatter_offset_s16(to, lanes, vldrbq_gather_offset_s16(tap + channel, lanes));
                    to++;
                    if (--left > 0) continue;
                    left = NEUTRON_LANES;
                    to += NEUTRON_LANES * (NEUTRON_LANES - 1);
                }
            }
        }
    }
}

/* The bytes [first, end). */
static mve_pred16_t bytes_between(int32_t first, int32_t end) {
    return (mve_pred16_t)((UINT32_C(1) << end) - (UINT32_C(1) << first));
}

/* What fill_dense() needs of a call, in memory that it does not write to. */
typedef struct {
    int32_t columns, channels, kernel_h, kernel_w, dilation_h, dilation_w;
    int32_t rows, cols, ring;
    ptrdiff_t col_pitch, down, round;
    int8x16_t padding;
} Dense;

/* Writes all inputs of an output, and up to 16 zeros. `line`: of the first row of taps that is inside; `at`: that row's place in the ring. */
static NEUTRON_INLINE void gather_dense(const Dense *by, const NeutronPixelHelium *pixel, const uint8_t *first_line, int32_t first_at,
                                        int8_t *to) {
    const int32_t channels = by->channels;
    const int8x16_t zero = vdupq_n_s8(0);
    for (int32_t j = 0; j < by->kernel_w; j += by->columns) {
        const int32_t rest = by->kernel_w - j, taps = rest < by->columns ? rest : by->columns, bytes = taps * channels;
        const int32_t col = pixel->col + j * by->dilation_w;
        const int32_t before = neutron_bound(-col, 0, taps), inside = neutron_bound(by->cols - col, before, taps);
        const mve_pred16_t some = bytes_between(before * channels, inside * channels);
        const int8x16_t nothing = vpselq_s8(by->padding, zero, bytes_between(0, bytes)), outside = vpselq_s8(zero, nothing, some);
        /* The address of the first tap's column, which may be outside. */
        uintptr_t from = (uintptr_t)first_line + (uintptr_t)col * (uintptr_t)by->col_pitch;
        int32_t row = pixel->row, at = first_at;
        for (int32_t i = by->kernel_h; i > 0; i--, row += by->dilation_h, to += bytes) {
            if (!is_inside(row, by->rows)) {
                vstrbq_s8(to, nothing);
                continue;
            }
            vstrbq_s8(to, vorrq_s8(vldrbq_z_s8((const int8_t *)from, some), outside));
            from += (uintptr_t)by->down;
            for (at += by->dilation_h; at >= by->ring; at -= by->ring) from -= (uintptr_t)by->round;
        }
    }
    vstrbq_s8(to, zero);
}

static void fill_dense(const NeutronLayerHelium *layer, const NeutronPixelHelium *pixels, int32_t count, const NeutronPartHelium *part,
                       NeutronPiecesHelium pieces) {
    const NeutronConv2dS8 *p = layer->call->params;
    const NeutronBuffer *input = &layer->call->buffers[p->input];
    const Dense by = {columns_of(layer), p->group_inputs, p->kernel_h, p->kernel_w, p->dilation_h, p->dilation_w,
                      input->rows, input->cols, input->ring, input->col_pitch, (ptrdiff_t)p->dilation_h * input->row_pitch,
                      (ptrdiff_t)input->ring * input->row_pitch, vdupq_n_s8((int8_t)p->input_zero_point)};
    int8_t inputs[(MOST_BLOCKS + 1) * NEUTRON_LANES + NEUTRON_PIECE];
    const uint8_t *line = NULL;
    int32_t at = 0;
    for (int32_t i = 0; i < count; i++, neutron_next_pieces_helium(&pieces)) {
        const NeutronPixelHelium *const pixel = &pixels[i];
        if (i == 0 || pixel->row != pixel[-1].row || pixel->n != pixel[-1].n) {
            const int32_t above = pixel->row < 0 ? (by.dilation_h - 1 - pixel->row) / by.dilation_h : 0;
            at = (pixel->row + above * by.dilation_h) % by.ring;
            line = layer->input + neutron_offset_helium(input, pixel->n, at, 0);
        }
        gather_dense(&by, pixel, line, at, inputs);
        int8_t *to = (int8_t *)pieces.to;
        const int8_t *from = inputs;
        for (int32_t left = part->count; left > 0; left -= 2, from += NEUTRON_PIECE, to += pieces.pitch) vstrbq_s8(to, vldrbq_s8(from));
    }
}

#endif

/* ---- taps of any channels -------------------------------------------------------------------------------------------------- */

static void fill_pixel(const NeutronLayerHelium *layer, const NeutronPixelHelium *pixel, const NeutronPartHelium *part,
                       NeutronPiecesHelium pieces) {
    const NeutronConv2dS8 *p = layer->call->params;
    const NeutronBuffer *input = &layer->call->buffers[p->input];
    const uint8_t padding = (uint8_t)p->input_zero_point;
    const int32_t tap_blocks = (int32_t)neutron_blocks_of(p->group_inputs), tap = part->first / tap_blocks;
    /* Taps of a row that follow each other without a gap, here and there, are as one. */
    const bool joined = p->dilation_w == 1 && p->group_inputs % NEUTRON_LANES == 0 && input->channel_pitch == 1 &&
                        input->col_pitch == p->group_inputs;
    if (joined && part->count == layer->blocks && pixel->row >= 0 && pixel->col >= 0 &&
        pixel->row + (p->kernel_h - 1) * p->dilation_h < input->rows && pixel->col + p->kernel_w <= input->cols) {
        const int32_t channels = p->kernel_w * p->group_inputs, blocks = channels / NEUTRON_LANES;
        const uint8_t *from = layer->input + neutron_offset_helium(input, pixel->n, pixel->row, pixel->col) + part->channel0;
        for (int32_t block = 0, line = pixel->row % input->ring; block < part->count; block += blocks) {
            neutron_fill_blocks_helium(pieces, block, from, 1, channels);
            from += (ptrdiff_t)p->dilation_h * input->row_pitch;
            for (line += p->dilation_h; line >= input->ring; line -= input->ring) from -= (ptrdiff_t)input->ring * input->row_pitch;
        }
        return;
    }
    int32_t skipped = part->first % tap_blocks, i = tap / p->kernel_w, j = tap % p->kernel_w;
    for (int32_t block = 0; block < part->count; i++, j = 0) {
        const int32_t row = pixel->row + i * p->dilation_h;
        const bool row_is_inside = is_inside(row, input->rows);
        const uint8_t *const line = layer->input + neutron_offset_helium(input, pixel->n, row_is_inside ? row : 0, 0) +
                                    (ptrdiff_t)part->channel0 * input->channel_pitch;
        for (int32_t taps; j < p->kernel_w && block < part->count; j += taps) {
            const int32_t col = pixel->col + j * p->dilation_w, channel = skipped * NEUTRON_LANES;
            const bool inside = row_is_inside && is_inside(col, input->cols);
            const int32_t channel_pitch = inside ? input->channel_pitch : 0;
            taps = 1;
            if (joined && inside) taps = p->kernel_w - j < input->cols - col ? p->kernel_w - j : input->cols - col;
            int32_t count = taps * tap_blocks - skipped, channels = taps * p->group_inputs - channel;
            if (count > part->count - block) {
                count = part->count - block;
                channels = count * NEUTRON_LANES;
            }
            const uint8_t *const from =
                inside ? line + (ptrdiff_t)col * input->col_pitch + (ptrdiff_t)channel * channel_pitch : &padding;
            neutron_fill_blocks_helium(pieces, block, from, channel_pitch, channels);
            block += count;
            skipped = 0;
        }
    }
}

static void fill(const NeutronLayerHelium *layer, const NeutronPixelHelium *pixels, int32_t count, const NeutronPartHelium *part,
                 NeutronPiecesHelium pieces) {
    for (; count > 0; count--, pixels++, neutron_next_pieces_helium(&pieces)) fill_pixel(layer, pixels, part, pieces);
}

void conv_2d_s8_run(const NeutronKernelCall *call) {
    const NeutronConv2dS8 *p = call->params;
    NeutronLayerHelium layer = {.call = call, .fill = fill, .blocks = p->kernel_h * p->kernel_w * (int32_t)neutron_blocks_of(p->group_inputs)};
#if NEUTRON_FAST_DSP
    const NeutronBuffer *input = &call->buffers[p->input];
    if (p->group_inputs < NEUTRON_LANES && p->group_inputs == input->channels && input->channel_pitch == 1) {
        const int64_t inputs = (int64_t)p->kernel_h * p->kernel_w * p->group_inputs;
        if (inputs <= MOST_BLOCKS * NEUTRON_LANES) {
            layer.blocks = (int32_t)neutron_blocks_of((int32_t)inputs);
            layer.fill = fill_dense;
            layer.pack = pack_dense;
        }
    }
#endif
    neutron_convolution_helium(&layer);
}

#endif
