/* SPDX-License-Identifier: BSD-3-Clause */
/* Random calls of the convolution kernels for int16: those for int8 (random_convolutions.h), with elements of two bytes. What the
 * library runs leaves the same bytes as the portable code. */
#ifndef RANDOM_CONVOLUTIONS_16_H
#define RANDOM_CONVOLUTIONS_16_H

#include "convolution_16.h"
#include "random_convolutions.h"

typedef struct {
    NeutronKernelCheck check;
    NeutronKernelRun run, portable;
} Kernel16;

#if NEUTRON_DSP
#define VARIANTS_16(name) name##_check, name##_run, name##_run
#else
#define VARIANTS_16(name) name##_check, name##_run, name##_run_portable
#endif
static const Kernel16 KERNELS_16[2] = {
    {VARIANTS_16(conv_2d_s16)},
    {VARIANTS_16(depthwise_conv_2d_s16)},
};

typedef struct {
    Case bytes; /* sizes, buffers and window; `params` below are the call's */
    int kernel;
    NeutronConv2dS16 params;
} Case16;

/* The buffer with elements of two bytes. Returns the bytes from the base to its end. */
static uint32_t widen(NeutronBuffer *b, uint32_t size) {
    const uint32_t reach = size - 1 - b->offset;
    b->batch_pitch *= 2;
    b->row_pitch *= 2;
    b->col_pitch *= 2;
    b->channel_pitch *= 2;
    return b->offset + 2 * reach + 2;
}

static void make_sound_16(Case16 *c) {
    do make_sound(&c->bytes);
    while (c->bytes.kernel == 1);
    c->kernel = c->bytes.kernel == 2;
    Case *const b = &c->bytes;
    const NeutronConv2dS8 *s8 = &b->params;
    uint32_t *const input_size = b->buffers[0].base == NEUTRON_BASE_SCRATCH ? &b->scratch_size : &b->input_size;
    *input_size = widen(&b->buffers[0], *input_size);
    b->output_size = widen(&b->buffers[1], b->output_size);
    b->sound_output = b->buffers[1];
    c->params = (NeutronConv2dS16){
        s8->input,        s8->output,      s8->weights_base, s8->weights_offset,    s8->requant_base,
        s8->requant_offset, s8->constant_channel0, s8->constant_channels, s8->kernel_h, s8->kernel_w,
        s8->stride_h,     s8->stride_w,    s8->dilation_h,   s8->dilation_w,        s8->pad_top,
        s8->pad_left,     s8->group_inputs, s8->group_outputs, between(0, 3),
        one_in(2) ? INT16_MIN : between(INT16_MIN, 0), one_in(2) ? INT16_MAX : between(0, INT16_MAX),
    };
    const uint32_t blocks = (uint32_t)neutron_blocks_of(s8->constant_channels);
    const uint32_t more = blocks * (uint32_t)(sizeof(NeutronRequantBlock16) - sizeof(NeutronRequantBlock));
    *(s8->requant_base == NEUTRON_BASE_WEIGHTS ? &b->weights_size : &b->prefetch_size) += more;
}

static bool is_accepted_16(Case16 *c) {
    Case *const b = &c->bytes;
    return has_window(b, c->params.output) && KERNELS_16[c->kernel].check(&b->program, &c->params, &b->window);
}

/* Words as a compiler writes them, for each rounding. */
static void mend_table_16(const Case16 *c, uint8_t *weights, uint8_t *prefetch) {
    const NeutronConv2dS16 *p = &c->params;
    if (p->requant_base != NEUTRON_BASE_WEIGHTS && p->requant_base != NEUTRON_BASE_PREFETCH) return;
    void *at = (p->requant_base == NEUTRON_BASE_WEIGHTS ? weights : prefetch) + p->requant_offset;
    NeutronRequantBlock16 *table = at;
    for (size_t b = 0; b < neutron_blocks_of(p->constant_channels); b++) {
        for (int k = 0; k < NEUTRON_LANES; k++) {
            const bool large = one_in(8);
            table[b].bias_low[k] = random_word();
            table[b].bias_high[k] = large ? between(-32768, 32767) : between(-1, 0);
            const int32_t multiplier = one_in(4) ? 1 << 30 : (int32_t)(random_word() >> 2 | 1u << 30);
            table[b].multiplier[k] = p->rounding == 0 ? multiplier >> 16 : multiplier;
            table[b].shift[k] = one_in(4) ? between(-31, 7) : between(-18, -8);
            if (p->rounding >= 2) table[b].shift[k] = (table[b].shift[k] & 0xFF) | between(0, 0x3FFFFF) << 8;
        }
    }
}

/* False where the library's run and the portable one leave different bytes. */
static bool run_16(const Case16 *c, bool *comparable) {
    const Case *const b = &c->bytes;
    uint8_t *input = filled(b->input_size), *output = filled(b->output_size), *weights = filled(b->weights_size);
    uint8_t *scratch = filled(b->scratch_size), *prefetch = filled(b->prefetch_size);
    if (!one_in(4)) mend_table_16(c, weights, prefetch);
    const void *inputs[1] = {input};
    void *outputs[1] = {output};
    NeutronBases bases = {.inputs = inputs, .outputs = outputs, .areas = {weights, scratch, prefetch}};
    const NeutronKernelCall call = {&c->params, b->buffers, &bases, b->window, NULL};
    uint8_t *const before = malloc(b->output_size), *const want = malloc(b->output_size);
    memcpy(before, output, b->output_size);
    KERNELS_16[c->kernel].portable(&call);
    memcpy(want, output, b->output_size);
    const uint32_t written = NEUTRON_BASE_OUTPUT;
    *comparable = c->params.output == 1 && b->buffers[c->params.input].base != written &&
                  memcmp(&b->buffers[1], &b->sound_output, sizeof(NeutronBuffer)) == 0 &&
                  c->params.weights_base != written && c->params.requant_base != written;
    if (*comparable) add_to_checksum(want, b->output_size);
    memcpy(output, before, b->output_size);
    KERNELS_16[c->kernel].run(&call);
    const bool same = !*comparable || memcmp(output, want, b->output_size) == 0;
    free(input);
    free(output);
    free(weights);
    free(scratch);
    free(prefetch);
    free(before);
    free(want);
    return same;
}

/* Case number i of a seed; others don't matter to it. */
static void run_case_16(uint64_t seed, long i, Totals *totals) {
    seed_numbers(seed << 32 | (uint64_t)i);
    Case16 c;
    make_sound_16(&c);
    const bool damaged = one_in(2);
    if (damaged) {
        /* Words of the buffers, and of the block at the place of the other form's words. */
        Case *const b = &c.bytes;
        NeutronConv2dS8 words;
        memcpy(&words, &b->params, sizeof words);
        memcpy(&b->params, &c.params, sizeof c.params);
        damage(b);
        memcpy(&c.params, &b->params, sizeof c.params);
        memcpy(&b->params, &words, sizeof words);
    }
    if (!is_accepted_16(&c)) {
        totals->refused += !damaged;
        return;
    }
    totals->accepted[damaged]++;
    const NeutronWindowExtents *w = &c.bytes.window;
    const double work = (double)(w->batch1 - w->batch0) * (w->row1 - w->row0) * (w->col1 - w->col0) *
                        (w->channel1 - w->channel0) * c.params.kernel_h * c.params.kernel_w * c.params.group_inputs;
    bool comparable = false;
    if (work > 3e6) return;
    totals->ran[0]++;
    if (!run_16(&c, &comparable)) totals->differ++;
}

#endif
