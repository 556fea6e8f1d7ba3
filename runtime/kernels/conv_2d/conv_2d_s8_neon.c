/* SPDX-License-Identifier: BSD-3-Clause */
/* conv_2d_s8 for NEON. Outputs whose taps are all inside the input read them where they are; the inputs of the others are gathered. */
#include "gather.h"
#include "neon.h"

#if NEUTRON_NEON_VARIANTS

enum {
    RUNS = 64,          /* of an output's inputs where they are, at most */
    GATHERED = 32 * 1024 /* bytes at a time */
};

typedef struct {
    NeutronGather gather;
    const NeutronConv2dS8 *p;
    const NeutronBuffer *input, *output;
    const int8_t *weights;
    const NeutronRequantBlock *table;
    size_t block_bytes;
    int32_t channel, channels; /* of the output: a group's, or some of them */
    int32_t runs, run_taps;    /* of an output; 0 runs: the inputs are gathered */
    uint8_t *memory;
} Layer;

static void compute_line(const Layer *layer, NeutronRunsNeon *line, int32_t n, int32_t r, int32_t c, int32_t pixels) {
    line->out_pitch = layer->output->col_pitch;
    line->out = neutron_element_address(layer->gather.call->bases, layer->output, n, r, c, layer->channel);
    line->pixels = pixels;
    neutron_compute_line_neon(layer->p, line, layer->weights, layer->block_bytes, layer->table, layer->channels);
}

/* Columns [c, end) of row r. */
static void run_gathered(const Layer *layer, int32_t n, int32_t r, int32_t c, int32_t end) {
    const NeutronGather *gather = &layer->gather;
    const uint8_t *from = layer->memory;
    NeutronRunsNeon line = {.from = &from, .runs = 1, .run_bytes = (int32_t)gather->pitch, .in_pitch = (ptrdiff_t)gather->pitch};
    const int32_t step = GATHERED / (int32_t)gather->pitch;
    for (; c < end; c += step) {
        const int32_t pixels = end - c < step ? end - c : step;
        neutron_gather_pixels(layer->memory, gather, n, r, c, pixels);
        compute_line(layer, &line, n, r, c, pixels);
    }
}

/* The same for columns whose taps are inside, of a row whose taps are. */
static void run_inside(const Layer *layer, int32_t n, int32_t r, int32_t c, int32_t end) {
    const NeutronConv2dS8 *p = layer->p;
    const NeutronBuffer *input = layer->input;
    const uint8_t *from[RUNS];
    int32_t run = 0;
    for (int32_t i = 0; i < p->kernel_h; i++) {
        const int32_t row = r * p->stride_h - p->pad_top + i * p->dilation_h, col = c * p->stride_w - p->pad_left;
        const uint8_t *tap =
            neutron_element_address(layer->gather.call->bases, input, n, row, col, layer->gather.channel);
        for (int32_t j = 0; j < p->kernel_w; j += layer->run_taps) {
            from[run++] = tap;
            tap += (ptrdiff_t)(p->dilation_w * layer->run_taps) * input->col_pitch;
        }
    }
    NeutronRunsNeon line = {
        .from = from,
        .runs = run,
        .run_bytes = layer->run_taps * p->group_inputs,
        .in_pitch = (ptrdiff_t)p->stride_w * input->col_pitch,
    };
    compute_line(layer, &line, n, r, c, end - c);
}

static void run_row(const Layer *layer, int32_t n, int32_t r) {
    const NeutronConv2dS8 *p = layer->p;
    const NeutronWindowExtents *w = &layer->gather.call->window;
    const int32_t row = r * p->stride_h - p->pad_top, last = row + (p->kernel_h - 1) * p->dilation_h;
    /* The first column without a tap left of the input, and the one behind the last without a tap right of it. */
    const int32_t room = layer->input->cols - 1 - (p->kernel_w - 1) * p->dilation_w + p->pad_left;
    int32_t first = p->pad_left > 0 ? (p->pad_left + p->stride_w - 1) / p->stride_w : 0;
    int32_t end = room >= 0 ? room / p->stride_w + 1 : 0;
    if (first < w->col0) first = w->col0;
    if (end > w->col1) end = w->col1;
    if (layer->runs == 0 || row < 0 || last >= layer->input->rows || first >= end) {
        run_gathered(layer, n, r, w->col0, w->col1);
        return;
    }
    run_gathered(layer, n, r, w->col0, first);
    run_inside(layer, n, r, first, end);
    run_gathered(layer, n, r, end, w->col1);
}

/* The window's channels by as many as take the same inputs. */
static void run_groups(Layer *layer) {
    const NeutronConv2dS8 *p = layer->p;
    const NeutronWindowExtents *w = &layer->gather.call->window;
    for (int32_t k = w->channel0; k < w->channel1; k += layer->channels) {
        const int32_t group = k / p->group_outputs, end = (group + 1) * p->group_outputs;
        const size_t block = (size_t)(k - p->constant_channel0) / NEUTRON_LANES;
        layer->channel = k;
        layer->channels = (end < w->channel1 ? end : w->channel1) - k;
        layer->gather.channel = group * p->group_inputs;
        layer->weights = neutron_packed_weights(layer->gather.call, p) + block * layer->block_bytes;
        layer->table = neutron_requant_blocks(layer->gather.call, p) + block;
        NEUTRON_FOR_EACH_ROW(w, n, r) run_row(layer, n, r);
    }
}

/* Few input channels: the weights are gathered too. */
static void run_few(Layer *layer) {
    const NeutronConv2dS8 *p = layer->p;
    const NeutronWindowExtents *w = &layer->gather.call->window;
    const size_t taps = (size_t)p->kernel_h * (size_t)p->kernel_w;
    const int32_t step = neutron_gather_channels(p);
    int8_t weights[NEUTRON_GATHER_WEIGHTS];
    layer->weights = weights;
    layer->block_bytes = layer->gather.pitch * NEUTRON_LANES;
    for (int32_t k = w->channel0; k < w->channel1; k += step) {
        const size_t block = (size_t)(k - p->constant_channel0) / NEUTRON_LANES;
        layer->channel = k;
        layer->channels = w->channel1 - k < step ? w->channel1 - k : step;
        layer->table = neutron_requant_blocks(layer->gather.call, p) + block;
        neutron_gather_weights(weights, p,
                               neutron_packed_weights(layer->gather.call, p) + block * taps * NEUTRON_LANES * NEUTRON_LANES,
                               neutron_blocks_of(layer->channels));
        NEUTRON_FOR_EACH_ROW(w, n, r) run_gathered(layer, n, r, w->col0, w->col1);
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
    Layer layer = {.p = p, .input = input, .output = output, .memory = memory};
    layer.gather = (NeutronGather){call, 0, tap_bytes, neutron_gather_pitch(p, tap_bytes)};
    /* Bytes between the inputs count as 0. */
    if (p->group_inputs % NEUTRON_LANES != 0) memset(memory, 0, sizeof memory);
    if (few) {
        run_few(&layer);
        return true;
    }
    layer.block_bytes = (size_t)p->kernel_h * (size_t)p->kernel_w * tap_bytes * NEUTRON_LANES;
    layer.run_taps = p->dilation_w == 1 && input->col_pitch == p->group_inputs ? p->kernel_w : 1;
    const int64_t runs = (int64_t)p->kernel_h * (p->kernel_w / layer.run_taps);
    layer.runs = p->group_inputs % NEUTRON_LANES == 0 && runs <= RUNS ? (int32_t)runs : 0;
    run_groups(&layer);
    return true;
}

#endif
