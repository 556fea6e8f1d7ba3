/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_s8 for NEON: the inputs of the outputs are gathered, which takes as long as a tenth of their products or less, and are
 * a pointwise convolution's then. */
#include "gather.h"
#include "neon.h"

#if NEUTRON_NEON_VARIANTS

enum {
    GATHERED = 48 * 1024, /* bytes, at most */
    TO_GATHER = 16 * 1024 /* bytes at a time, if that holds a tile of outputs */
};

typedef struct {
    NeutronGather gather;
    const NeutronConv2dS8 *p;
    const NeutronBuffer *output;
    const int8_t *weights;
    const NeutronRequantBlock *table;
    size_t block_bytes;
    int32_t channel, channels; /* of the output: a group's, or some of them */
    uint8_t *memory;
} Layer;

static int32_t pixels_at_a_time(const Layer *layer) {
    const int32_t pitch = (int32_t)layer->gather.pitch, pixels = TO_GATHER / pitch & -NEUTRON_PIXELS_DOT;
    if (pixels > 0) return pixels;
    return GATHERED / pitch < NEUTRON_PIXELS_DOT ? GATHERED / pitch : NEUTRON_PIXELS_DOT;
}

/* The channels of all outputs. Those of several rows make one line where they are next to each other. */
static void run_outputs(const Layer *layer) {
    const NeutronKernelCall *call = layer->gather.call;
    const NeutronWindowExtents *w = &call->window;
    const uint8_t *from = layer->memory;
    const int32_t cols = w->col1 - w->col0, most = pixels_at_a_time(layer);
    NeutronLine line = {.in_pitch = (ptrdiff_t)layer->gather.pitch, .out_pitch = layer->output->col_pitch, .in = from};
    const bool joined = neutron_rows_join(layer->output, w);
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        int32_t r = w->row0, c = 0;
        while (r < w->row1) {
            line.out = neutron_element_address(call->bases, layer->output, n, r, w->col0 + c, layer->channel);
            int32_t pixels = 0;
            do {
                const int32_t count = cols - c < most - pixels ? cols - c : most - pixels;
                neutron_gather_pixels(layer->memory + (size_t)pixels * layer->gather.pitch, &layer->gather, n, r,
                                      w->col0 + c, count);
                pixels += count;
                c += count;
                if (c == cols) {
                    c = 0;
                    r++;
                }
            } while (joined && pixels < most && r < w->row1);
            line.pixels = pixels;
            neutron_compute_line_neon(layer->p, &line, (int32_t)layer->gather.pitch, layer->weights, layer->block_bytes,
                                      layer->table, layer->channels);
        }
    }
}

/* The window's channels by as many as take the same inputs. */
static void run_groups(Layer *layer) {
    const NeutronConv2dS8 *p = layer->p;
    const NeutronWindowExtents *w = &layer->gather.call->window;
    layer->block_bytes = (size_t)p->kernel_h * (size_t)p->kernel_w * layer->gather.tap_bytes * NEUTRON_LANES;
    for (int32_t k = w->channel0; k < w->channel1; k += layer->channels) {
        const int32_t group = k / p->group_outputs, end = (group + 1) * p->group_outputs;
        const size_t block = (size_t)(k - p->constant_channel0) / NEUTRON_LANES;
        layer->channel = k;
        layer->channels = (end < w->channel1 ? end : w->channel1) - k;
        layer->gather.channel = group * p->group_inputs;
        layer->weights = neutron_packed_weights(layer->gather.call, p) + block * layer->block_bytes;
        layer->table = neutron_requant_blocks(layer->gather.call, p) + block;
        run_outputs(layer);
    }
}

/* Few input channels: the weights are gathered too. */
static void run_few(Layer *layer) {
    const NeutronConv2dS8 *p = layer->p;
    const NeutronKernelCall *call = layer->gather.call;
    const NeutronWindowExtents *w = &call->window;
    const size_t taps = (size_t)p->kernel_h * (size_t)p->kernel_w;
    const int32_t step = neutron_gather_channels(p);
    int8_t weights[NEUTRON_GATHER_WEIGHTS];
    layer->weights = weights;
    layer->block_bytes = layer->gather.pitch * NEUTRON_LANES;
    for (int32_t k = w->channel0; k < w->channel1; k += step) {
        const size_t block = (size_t)(k - p->constant_channel0) / NEUTRON_LANES;
        const int8_t *packed = neutron_packed_weights(call, p) + block * taps * NEUTRON_LANES * NEUTRON_LANES;
        layer->channel = k;
        layer->channels = w->channel1 - k < step ? w->channel1 - k : step;
        layer->table = neutron_requant_blocks(call, p) + block;
        neutron_gather_weights(weights, p, packed, neutron_blocks_of(layer->channels));
        run_outputs(layer);
    }
}

bool conv_2d_s8_run_neon(const NeutronKernelCall *call) {
    const NeutronConv2dS8 *p = call->params;
    const NeutronBuffer *input = &call->buffers[p->input], *output = &call->buffers[p->output];
    const bool few = neutron_gather_fits(p, input, output);
    const size_t tap_bytes = few ? (size_t)p->group_inputs : neutron_blocks_of(p->group_inputs) * NEUTRON_LANES;
    if (input->channel_pitch != 1 || output->channel_pitch != 1) return false;
    /* 8 channels of a block with inputs of their own, or outputs with more inputs than there is memory for. */
    if (p->group_outputs % NEUTRON_LANES != 0 && p->group_outputs != output->channels) return false;
    if ((uint64_t)p->kernel_h * (uint64_t)p->kernel_w * tap_bytes > GATHERED) return false;
    uint8_t memory[GATHERED];
    Layer layer = {.p = p, .output = output, .memory = memory};
    layer.gather = (NeutronGather){call, 0, tap_bytes, neutron_gather_pitch(p, tap_bytes)};
    /* Bytes between the inputs count as 0. */
    if (p->group_inputs % NEUTRON_LANES != 0) memset(memory, 0, (size_t)pixels_at_a_time(&layer) * layer.gather.pitch);
    (few ? run_few : run_groups)(&layer);
    return true;
}

#endif
