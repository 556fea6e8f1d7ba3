/* SPDX-License-Identifier: BSD-3-Clause */
/* Random calls of the convolution kernels, sound ones and damaged ones. Whatever check accepts is run by every variant that
 * the machine has, on memory of exactly the sizes that were declared; the variants must leave the same bytes. */
#ifndef RANDOM_CONVOLUTIONS_H
#define RANDOM_CONVOLUTIONS_H

#include <stdlib.h>

#include "conv_2d/convolution.h"
#include "random_buffers.h"

typedef bool (*Variant)(const NeutronKernelCall *call);

typedef struct {
    NeutronKernelCheck check;
    NeutronKernelRun portable;
    Variant fast;
} Kernel;

#if NEUTRON_X86_VARIANTS
#define VARIANTS(name) name##_check, name##_run_portable, name##_run_avx2
#elif NEUTRON_NEON_VARIANTS
#define VARIANTS(name) name##_check, name##_run_portable, name##_run_neon
#else
/* With the DSP extension, the portable run's place is taken by what the library runs. */
#define VARIANTS(name) name##_check, name##_run, NULL
#endif
static const Kernel KERNELS[3] = {
    {VARIANTS(conv_2d_s8)},
    {VARIANTS(conv_2d_1x1_s8)},
    {VARIANTS(depthwise_conv_2d_s8)},
};

static inline bool machine_has_vectors(void) {
#if NEUTRON_X86_VARIANTS || NEUTRON_NEON_VARIANTS
    return neutron_has_vectors();
#else
    return false;
#endif
}

typedef struct {
    int kernel;
    NeutronConv2dS8 params;
    NeutronBuffer buffers[2], sound_output;
    NeutronWindowExtents window;
    uint32_t weights_size, scratch_size, prefetch_size, input_size, output_size;
    NeutronBinding bindings[2];
    NeutronProgramView program;
} Case;

static void cut(int32_t *first, int32_t *end, int32_t extent, int32_t multiple) {
    *first = between(0, (extent - 1) / multiple) * multiple;
    *end = between(*first + 1, extent);
    if (one_in(2)) {
        *first = 0;
        *end = extent;
    }
}

static void make_sound(Case *c) {
    NeutronConv2dS8 *p = &c->params;
    NeutronBuffer *in = &c->buffers[0], *out = &c->buffers[1];
    NeutronWindowExtents *w = &c->window;
    memset(c, 0, sizeof *c);
    c->kernel = between(0, 2);
    const bool point = c->kernel == 1, depthwise = c->kernel == 2;
    p->kernel_h = point ? 1 : between(1, 5);
    p->kernel_w = point ? 1 : between(1, one_in(20) ? 40 : 5);
    p->stride_h = between(1, 3);
    p->stride_w = between(1, 3);
    p->dilation_h = point ? 1 : between(1, 3);
    p->dilation_w = point ? 1 : between(1, 3);
    if (!point && one_in(4)) { /* the usual kernel, for which there is code of its own */
        p->kernel_h = p->kernel_w = 3;
        p->dilation_h = p->dilation_w = 1;
    }
    p->pad_top = point ? 0 : between(-2, p->kernel_h);
    p->pad_left = point ? 0 : between(-2, p->kernel_w);
    const int32_t groups = point ? 1 : depthwise ? between(1, 50) : between(1, 3);
    p->group_inputs = depthwise ? 1 : between(1, 40);
    p->group_outputs = depthwise ? (one_in(3) ? between(1, 4) : 1) : one_in(2) ? 8 * between(1, 5) : between(1, 50);
    in->batches = out->batches = between(1, 2);
    out->rows = between(1, 6);
    out->cols = between(1, one_in(4) ? 70 : 20);
    in->rows = point ? (out->rows - 1) * p->stride_h + between(1, 3) : between(1, 12);
    in->cols = point ? (out->cols - 1) * p->stride_w + between(1, 3) : between(1, 40);
    in->channels = groups * p->group_inputs;
    out->channels = groups * p->group_outputs;
    w->batch1 = out->batches;
    cut(&w->row0, &w->row1, out->rows, 1);
    cut(&w->col0, &w->col1, out->cols, 1);
    cut(&w->channel0, &w->channel1, out->channels, 8);
    hold(&out->col0, &out->cols_held, w->col0, w->col1, out->cols);
    hold(&out->channel0, &out->channels_held, w->channel0, w->channel1, out->channels);
    out->ring = out->rows;
    int32_t first = w->col0 * p->stride_w - p->pad_left;
    int32_t end = (w->col1 - 1) * p->stride_w - p->pad_left + (p->kernel_w - 1) * p->dilation_w + 1;
    if (first < 0) first = 0;
    if (end > in->cols) end = in->cols;
    if (first >= end) first = 0, end = 1;
    hold(&in->col0, &in->cols_held, first, end, in->cols);
    hold(&in->channel0, &in->channels_held, w->channel0 / p->group_outputs * p->group_inputs,
         ((w->channel1 - 1) / p->group_outputs + 1) * p->group_inputs, in->channels);
    in->ring = between(1, in->rows); /* wrong rows are as good as any here */
    p->constant_channel0 = between(0, w->channel0 / 8) * 8;
    p->constant_channels = between(w->channel1, out->channels) - p->constant_channel0;
    p->input = 0;
    p->output = 1;
    p->input_zero_point = between(-128, 127);
    p->output_zero_point = between(-128, 127);
    p->clamp_min = one_in(2) ? -128 : between(-128, 127);
    p->clamp_max = one_in(2) ? 127 : between(p->clamp_min, 127);
    p->single_rounding = one_in(3);
    in->base = one_in(3) ? NEUTRON_BASE_SCRATCH : NEUTRON_BASE_INPUT;
    out->base = NEUTRON_BASE_OUTPUT;
    in->offset = (uint32_t)between(0, 20);
    out->offset = (uint32_t)between(0, 20);
    uint32_t *const input_size = in->base == NEUTRON_BASE_SCRATCH ? &c->scratch_size : &c->input_size;
    *input_size = lay_out(in, false);
    c->output_size = lay_out(out, false);
    c->sound_output = *out;
    const size_t blocks = neutron_blocks_of(p->constant_channels);
    const size_t tap = depthwise ? 8 : neutron_blocks_of(p->group_inputs) * 64;
    p->weights_base = NEUTRON_BASE_WEIGHTS;
    p->weights_offset = 16 * (uint32_t)between(0, 2);
    c->weights_size = p->weights_offset + (uint32_t)(blocks * (size_t)p->kernel_h * (size_t)p->kernel_w * tap);
    p->requant_base = one_in(2) ? NEUTRON_BASE_WEIGHTS : NEUTRON_BASE_PREFETCH;
    const uint32_t table = (uint32_t)(blocks * sizeof(NeutronRequantBlock));
    if (p->requant_base == NEUTRON_BASE_WEIGHTS) {
        p->requant_offset = (c->weights_size + 15) & ~15u;
        c->weights_size = p->requant_offset + table;
    } else {
        c->prefetch_size = table;
    }
}

static void damage(Case *c) {
    static const uint32_t WORDS[] = {0, 1, 2, 7, 8, 16, 127, 128, 255, 32767, 32768, 1u << 24, 1u << 30, INT32_MAX,
                                     1u << 31, UINT32_MAX, UINT32_MAX - 7, UINT32_MAX - 1};
    for (int n = between(1, 3); n > 0; n--) {
        uint32_t *at;
        if (one_in(2)) {
            at = (uint32_t *)(void *)&c->params + random_word() % (sizeof c->params / 4);
        } else {
            at = (uint32_t *)(void *)&c->buffers[between(0, 1)] + random_word() % (sizeof(NeutronBuffer) / 4);
        }
        *at = one_in(3) ? *at + (uint32_t)between(-3, 3) : WORDS[random_word() % (sizeof WORDS / sizeof *WORDS)];
    }
}

static void clip(int32_t *first, int32_t *end, int32_t extent) {
    if (*end > extent) *end = extent;
    if (*first >= *end) *first = 0;
}

/* Gives the case its program, and its window the extents of the output; false where the driver would not ask a kernel. */
static inline bool has_window(Case *c, uint32_t output) {
    c->bindings[0] = (NeutronBinding){NEUTRON_BASE_INPUT, 0, c->input_size};
    c->bindings[1] = (NeutronBinding){NEUTRON_BASE_OUTPUT, 0, c->output_size};
    c->program = (NeutronProgramView){
        c->buffers, 2, c->bindings, 1, 1, {c->weights_size, c->scratch_size, c->prefetch_size, 0}};
    if (!neutron_buffer_is_sound(&c->program, &c->buffers[0]) || !neutron_buffer_is_sound(&c->program, &c->buffers[1]) ||
        neutron_checked_buffer(&c->program, output, true) == NULL) {
        return false;
    }
    const NeutronBuffer *out = &c->buffers[output];
    NeutronWindowExtents *w = &c->window;
    clip(&w->batch0, &w->batch1, out->batches);
    clip(&w->row0, &w->row1, out->rows);
    clip(&w->col0, &w->col1, out->cols);
    clip(&w->channel0, &w->channel1, out->channels);
    return true;
}

static inline bool is_accepted(Case *c) {
    return has_window(c, c->params.output) && KERNELS[c->kernel].check(&c->program, &c->params, &c->window);
}

/* Products of a run, for leaving out those that take too long. */
static inline double work_of(const Case *c) {
    const NeutronWindowExtents *w = &c->window;
    return (double)(w->batch1 - w->batch0) * (w->row1 - w->row0) * (w->col1 - w->col0) * (w->channel1 - w->channel0) *
           c->params.kernel_h * c->params.kernel_w * c->params.group_inputs;
}

static uint8_t *filled(uint32_t size) {
    uint8_t *memory = malloc(size);
    for (uint32_t i = 0; i < size; i++) memory[i] = (uint8_t)random_word();
    return memory;
}

/* Requantization words as a compiler writes them in the whole range, so that results are not all the same. */
static inline void mend_table(const Case *c, uint8_t *weights, uint8_t *prefetch) {
    const NeutronConv2dS8 *p = &c->params;
    if (p->requant_base != NEUTRON_BASE_WEIGHTS && p->requant_base != NEUTRON_BASE_PREFETCH) return;
    void *at = (p->requant_base == NEUTRON_BASE_WEIGHTS ? weights : prefetch) + p->requant_offset;
    NeutronRequantBlock *table = at;
    const int32_t low = one_in(4) ? -31 : -12, high = one_in(4) ? 6 : -4;
    for (size_t b = 0; b < neutron_blocks_of(p->constant_channels); b++) {
        for (int k = 0; k < NEUTRON_LANES; k++) {
            table[b].bias[k] = one_in(8) ? (int32_t)random_word() : between(-5000, 5000);
            /* Powers of 2 make ties. */
            table[b].multiplier[k] = one_in(4) ? 1 << 30 : (int32_t)(random_word() >> 2 | 1u << 30);
            table[b].shift[k] = between(low, high);
            if (p->single_rounding != 0) table[b].shift[k] = (table[b].shift[k] & 0xFF) | between(0, 0xFFFFF) << 8;
        }
    }
}

/* FNV-1a over results: the same on every machine and in every build. */
static uint32_t checksum = 2166136261u;

static void add_to_checksum(const uint8_t *bytes, uint32_t size) {
    for (uint32_t i = 0; i < size; i++) checksum = (checksum ^ bytes[i]) * 16777619u;
}

static inline int run(const Case *c, long *ran) {
    uint8_t *input = filled(c->input_size), *output = filled(c->output_size), *weights = filled(c->weights_size);
    uint8_t *scratch = filled(c->scratch_size), *prefetch = filled(c->prefetch_size);
    if (!one_in(4)) mend_table(c, weights, prefetch);
    const void *inputs[1] = {input};
    void *outputs[1] = {output};
    NeutronBases bases = {.inputs = inputs, .outputs = outputs, .areas = {weights, scratch, prefetch}};
    const NeutronKernelCall call = {&c->params, c->buffers, &bases, c->window, NULL};
    uint8_t *const before = malloc(c->output_size), *const want = malloc(c->output_size);
    memcpy(before, output, c->output_size);
    KERNELS[c->kernel].portable(&call);
    ran[0]++;
    memcpy(want, output, c->output_size);
    /* A call that writes over what it reads, or twice to one place, has no one result. */
    const uint32_t written = NEUTRON_BASE_OUTPUT;
    const bool comparable = c->params.output == 1 && c->buffers[c->params.input].base != written &&
                            memcmp(&c->buffers[1], &c->sound_output, sizeof(NeutronBuffer)) == 0 &&
                            c->params.weights_base != written && c->params.requant_base != written;
    if (comparable) add_to_checksum(want, c->output_size);
    int differences = 0;
    memcpy(output, before, c->output_size);
    if (machine_has_vectors() && KERNELS[c->kernel].fast(&call)) {
        ran[1]++;
        if (comparable && memcmp(output, want, c->output_size) != 0) differences++;
    }
    free(input);
    free(output);
    free(weights);
    free(scratch);
    free(prefetch);
    free(before);
    free(want);
    return differences;
}

typedef struct {
    long accepted[2]; /* sound calls, and damaged ones */
    long ran[2];      /* the portable run, and the vector variant's */
    long differ;      /* calls on which the variants don't agree */
    long refused;     /* sound calls that were not accepted */
} Totals;

/* Case number i of a seed; others don't matter to it. Its results are added to the checksum. */
static inline void run_case(uint64_t seed, long i, Totals *totals) {
    seed_numbers(seed << 32 | (uint64_t)i);
    Case c;
    make_sound(&c);
    const bool damaged = one_in(2);
    if (damaged) damage(&c);
    if (!is_accepted(&c)) {
        totals->refused += !damaged;
        return;
    }
    totals->accepted[damaged]++;
    if (work_of(&c) <= 3e6 && run(&c, totals->ran) != 0) totals->differ++;
}

#endif
