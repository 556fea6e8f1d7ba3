/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_s8 for Helium: the inputs of all taps side by side. */
#include "convolution_helium.h"

#if NEUTRON_HELIUM

static bool is_inside(int32_t at, int32_t extent) { return (uint32_t)at < (uint32_t)extent; }

/* All blocks of taps whose channels are next to each other; taps of few channels, which this takes one by one. */
static void fill_narrow(const NeutronLayerHelium *layer, const NeutronPixelHelium *pixel, const NeutronPartHelium *part,
                        NeutronPiecesHelium pieces) {
    const NeutronConv2dS8 *p = layer->call->params;
    const NeutronBuffer *input = &layer->call->buffers[p->input];
    const int16x8_t padding = vdupq_n_s16((int16_t)p->input_zero_point);
    int8_t *to = (int8_t *)pieces.to;
    ptrdiff_t next = NEUTRON_LANES, after = pieces.pitch - NEUTRON_LANES;
    for (int32_t i = 0; i < p->kernel_h; i++) {
        const int32_t row = pixel->row + i * p->dilation_h;
        const bool row_is_inside = is_inside(row, input->rows);
        const uint8_t *const line = layer->input + neutron_offset_helium(input, pixel->n, row_is_inside ? row : 0, 0) + part->channel0;
        int32_t col = pixel->col;
        for (int32_t j = p->kernel_w; j > 0; j--, col += p->dilation_w) {
            const bool inside = row_is_inside && is_inside(col, input->cols);
            const int8_t *from = (const int8_t *)line + (inside ? (ptrdiff_t)col * input->col_pitch : 0);
            for (int32_t left = p->group_inputs; left > 0; left -= NEUTRON_LANES, from += NEUTRON_LANES) {
                const mve_pred16_t some = vctp16q((uint32_t)left);
                vstrbq_s16(to, inside ? vldrbq_z_s16(from, some) : vpselq_s16(padding, vdupq_n_s16(0), some));
                to += next;
                const ptrdiff_t last = next;
                next = after;
                after = last;
            }
        }
    }
}

static void fill(const NeutronLayerHelium *layer, const NeutronPixelHelium *pixel, const NeutronPartHelium *part,
                 NeutronPiecesHelium pieces) {
    const NeutronConv2dS8 *p = layer->call->params;
    const NeutronBuffer *input = &layer->call->buffers[p->input];
    if (p->group_inputs < NEUTRON_PIECE && input->channel_pitch == 1 && part->count == layer->blocks) {
        fill_narrow(layer, pixel, part, pieces);
        return;
    }
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

void conv_2d_s8_run(const NeutronKernelCall *call) {
    const NeutronConv2dS8 *p = call->params;
    NeutronLayerHelium layer = {
        .call = call,
        .fill = fill,
        .blocks = p->kernel_h * p->kernel_w * (int32_t)neutron_blocks_of(p->group_inputs),
    };
    neutron_convolution_helium(&layer);
}

#endif
