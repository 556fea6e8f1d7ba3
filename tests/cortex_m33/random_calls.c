/* SPDX-License-Identifier: BSD-3-Clause */
#include "random_calls.h"

#include "conv_2d/convolution.h"
#include "random_case.h"

#define CHECKED(name)                                                                                     \
    bool name##_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *); \
    void name##_run(const NeutronKernelCall *call);
CHECKED(add_s8)
CHECKED(mul_s8)
CHECKED(maximum_s8)
CHECKED(squared_difference_s8)
CHECKED(prelu_s8)
CHECKED(average_pool_2d_s8)
CHECKED(max_pool_2d_s8)
CHECKED(mean_s8)
CHECKED(sum_s8)
CHECKED(reduce_max_s8)
CHECKED(pad_s8)
CHECKED(copy_s8)
CHECKED(lookup_s8)
CHECKED(softmax_s8)
CHECKED(batch_matmul_s8)

enum { ROOM = 1 << 16, WEIGHTS = 1 << 15 };
static _Alignas(16) uint8_t weights[WEIGHTS], output_memory[ROOM];

static void make_depthwise_of(Case *c, bool usual, bool is_3x3) {
    NeutronDepthwiseConv2dS8 *p = &c->params.depthwise;
    const NeutronWindowExtents *w = &c->window;
    p->kernel_h = usual ? 3 : between(1, one_in(8) ? 12 : 5);
    p->kernel_w = usual ? 3 : between(1, one_in(8) ? 30 : 5);
    p->stride_h = between(1, 3);
    p->stride_w = between(1, 3);
    p->dilation_h = !is_3x3 && one_in(3) ? between(1, 3) : 1;
    p->dilation_w = !is_3x3 && one_in(3) ? between(1, 3) : 1;
    p->pad_top = between(-1, p->kernel_h);
    p->pad_left = between(-1, p->kernel_w);
    p->group_inputs = 1;
    p->group_outputs = !is_3x3 && one_in(4) ? between(1, 3) : 1;
    c->is_depthwise = true;
    make_output(c, 5, one_in(4) ? 24 : 8, 21);
    const NeutronBuffer *out = &c->buffers[2];
    const int32_t rows = between(1, 9), cols = between(1, 24);
    int32_t first = w->col0 * p->stride_w - p->pad_left;
    int32_t end = (w->col1 - 1) * p->stride_w - p->pad_left + (p->kernel_w - 1) * p->dilation_w + 1;
    if (first < 0) first = 0;
    if (end > cols) end = cols;
    if (first >= end) first = 0, end = 1;
    make_input(c, 0, rows, cols, out->channels / p->group_outputs,
               (int32_t[]){first, end, w->channel0 / p->group_outputs, (w->channel1 - 1) / p->group_outputs + 1});
    p->input = 0;
    p->output = 2;
    p->constant_channel0 = between(0, w->channel0 / 8) * 8;
    p->constant_channels = between(w->channel1, out->channels) - p->constant_channel0;
    p->input_zero_point = between(-128, 127);
    p->output_zero_point = between(-128, 127);
    bound(&p->clamp_min, &p->clamp_max);
    p->single_rounding = one_in(6);
    const uint32_t blocks = (uint32_t)neutron_blocks_of(p->constant_channels);
    p->weights_base = p->requant_base = NEUTRON_BASE_WEIGHTS;
    p->requant_offset = (blocks * (uint32_t)(p->kernel_h * p->kernel_w) * NEUTRON_LANES + 15) & ~15u;
    c->weights_size = p->requant_offset + blocks * (uint32_t)sizeof(NeutronRequantBlock);
    if (c->weights_size > WEIGHTS) return;
    NeutronRequantBlock *table = (NeutronRequantBlock *)(void *)(weights + p->requant_offset);
    const bool odd = one_in(4);
    for (uint32_t b = 0; b < blocks; b++) {
        for (int k = 0; k < NEUTRON_LANES; k++) {
            const bool any = odd && one_in(4);
            table[b].bias[k] = any ? (int32_t)random_word() : between(-5000, 5000);
            table[b].multiplier[k] = any ? (int32_t)random_word() : odd && one_in(4) ? 0 : multiplier();
            table[b].shift[k] = any ? between(-31, 30) : between(-12, odd ? 0 : -4);
            if (p->single_rounding != 0) table[b].shift[k] = (table[b].shift[k] & 0xFF) | between(0, 0xFFFFF) << 8;
        }
    }
}

static void make_depthwise(Case *c) { make_depthwise_of(c, one_in(2), false); }
static void make_depthwise_3x3(Case *c) { make_depthwise_of(c, true, true); }

static void make_elements(Case *c, int inputs) {
    make_output(c, 3, 6, 40);
    for (int i = 0; i < inputs; i++) make_same(c, i);
}

static void make_add(Case *c) {
    NeutronAddS8 *p = &c->params.add;
    make_elements(c, 2);
    *p = (NeutronAddS8){.input_a = 0, .input_b = 1, .output = 2};
    p->a_zero_point = between(-128, 127);
    p->b_zero_point = between(-128, 127);
    p->a_multiplier = one_in(8) ? (int32_t)random_word() : multiplier();
    p->b_multiplier = one_in(4) ? -multiplier() : multiplier();
    p->a_shift = -between(0, one_in(4) ? 31 : 4);
    p->b_shift = -between(0, one_in(4) ? 31 : 4);
    p->output_multiplier = one_in(8) ? (int32_t)random_word() : multiplier();
    p->output_shift = one_in(4) ? between(-31, 30) : between(-20, -14);
    p->output_zero_point = between(-128, 127);
    bound(&p->clamp_min, &p->clamp_max);
}

static void make_mul(Case *c) {
    NeutronMulS8 *p = &c->params.mul;
    make_elements(c, 2);
    *p = (NeutronMulS8){.input_a = 0, .input_b = 1, .output = 2};
    p->a_zero_point = between(-128, 127);
    p->b_zero_point = between(-128, 127);
    p->output_multiplier = one_in(8) ? (int32_t)random_word() : multiplier();
    p->output_shift = one_in(3) ? between(-31, 30) : between(-10, 0);
    p->output_zero_point = between(-128, 127);
    bound(&p->clamp_min, &p->clamp_max);
}

static void make_maximum(Case *c) {
    make_elements(c, 2);
    c->params.maximum = (NeutronMaximumS8){.input_a = 0, .input_b = 1, .output = 2, .smaller = one_in(2)};
}

static void make_squared_difference(Case *c) {
    NeutronSquaredDifferenceS8 *p = &c->params.squared_difference;
    make_elements(c, 2);
    *p = (NeutronSquaredDifferenceS8){.input_a = 0, .input_b = 1, .output = 2};
    p->a_zero_point = between(-128, 127);
    p->b_zero_point = between(-128, 127);
    p->a_multiplier = multiplier();
    p->b_multiplier = multiplier();
    p->a_shift = -between(1, 6);
    p->b_shift = -between(1, 6);
    p->output_multiplier = multiplier();
    p->output_shift = -between(0, 20);
    p->output_zero_point = between(-128, 127);
}

static void make_prelu(Case *c) {
    NeutronPreluS8 *p = &c->params.prelu;
    make_elements(c, 2);
    *p = (NeutronPreluS8){.input_a = 0, .input_b = 1, .output = 2};
    p->a_zero_point = between(-128, 127);
    p->b_zero_point = between(-128, 127);
    p->positive_multiplier = multiplier();
    p->positive_shift = between(-8, 2);
    p->negative_multiplier = multiplier();
    p->negative_shift = between(-12, 1);
    p->output_zero_point = between(-128, 127);
}

static void make_pool(Case *c) {
    NeutronAveragePool2dS8 *p = &c->params.pool;
    const NeutronWindowExtents *w = &c->window;
    p->kernel_h = between(1, 5);
    p->kernel_w = between(1, 5);
    p->stride_h = between(1, 3);
    p->stride_w = between(1, 3);
    p->pad_top = between(0, p->kernel_h - 1);
    p->pad_left = between(0, p->kernel_w - 1);
    make_output(c, 4, 6, 40);
    /* Every window has a tap. */
    const NeutronBuffer *out = &c->buffers[2];
    int32_t rows = (out->rows - 1) * p->stride_h - p->pad_top + between(1, p->kernel_h);
    int32_t cols = (out->cols - 1) * p->stride_w - p->pad_left + between(1, p->kernel_w);
    if (rows < 1) rows = 1;
    if (cols < 1) cols = 1;
    int32_t first = w->col0 * p->stride_w - p->pad_left, end = (w->col1 - 1) * p->stride_w - p->pad_left + p->kernel_w;
    if (first < 0) first = 0;
    if (end > cols) end = cols;
    make_input(c, 0, rows, cols, out->channels, (int32_t[]){first, end, w->channel0, w->channel1});
    p->input = 0;
    p->output = 2;
    bound(&p->clamp_min, &p->clamp_max);
}

/* A window over one row and one column of the output, and an input that holds what it takes. */
static void make_plane(Case *c) {
    make_output(c, 1, 1, 60);
    const int32_t cols = between(1, 12);
    make_input(c, 0, between(1, 12), cols, c->buffers[2].channels,
               (int32_t[]){0, cols, c->window.channel0, c->window.channel1});
}

static void make_mean(Case *c) {
    NeutronMeanS8 *p = &c->params.mean;
    make_plane(c);
    *p = (NeutronMeanS8){.input = 0, .output = 2};
    p->input_zero_point = between(-128, 127);
    p->weight = one_in(2) ? 1 : between(2, 127);
    p->output_multiplier = one_in(8) ? (int32_t)random_word() : multiplier();
    p->output_shift = one_in(3) ? between(-31, 30) : between(-9, -4);
    p->output_zero_point = between(-128, 127);
    bound(&p->clamp_min, &p->clamp_max);
}

static void make_sum(Case *c) {
    make_plane(c);
    c->params.sum = (NeutronSumS8){.input = 0, .output = 2, .output_zero_point = between(-128, 127)};
    /* Exponents of usual scales, or any. */
    const int32_t exponent = one_in(8) ? between(0, 254) : between(110, 128);
    c->params.sum.scale = exponent << 23 | between(0, 0x7FFFFF);
    c->params.sum.bias = one_in(3) ? 0 : (one_in(2) ? INT32_MIN : 0) | between(110, 140) << 23 | between(0, 0x7FFFFF);
}

static void make_reduce_max(Case *c) {
    make_plane(c);
    c->params.reduce_max = (NeutronReduceMaxS8){.input = 0, .output = 2, .smaller = one_in(2)};
}

static void make_pad(Case *c) {
    NeutronPadS8 *p = &c->params.pad;
    make_output(c, 4, 8, 50);
    const NeutronBuffer *out = &c->buffers[2];
    const int32_t cols = between(1, out->cols), channels = one_in(2) ? out->channels : between(1, out->channels);
    make_input(c, 0, between(1, out->rows), cols, channels, (int32_t[]){0, cols, 0, channels});
    *p = (NeutronPadS8){.input = 0, .output = 2};
    p->pad_batch = one_in(8);
    p->pad_top = between(0, out->rows - c->buffers[0].rows);
    p->pad_left = between(0, out->cols - cols);
    p->pad_channel = between(0, out->channels - channels);
    p->value = between(-128, 127);
}

static void make_copy(Case *c) {
    make_output(c, 4, 20, 50);
    make_same(c, 0);
    c->params.copy = (NeutronCopyS8){.input = 0, .output = 2};
}

static void make_lookup(Case *c) {
    make_elements(c, 1);
    c->params.lookup = (NeutronLookupS8){.input = 0, .output = 2, .table_base = NEUTRON_BASE_WEIGHTS};
    c->params.lookup.table_offset = (uint32_t)between(0, 3);
    c->weights_size = c->params.lookup.table_offset + 256;
}

static void make_softmax(Case *c) {
    NeutronSoftmaxS8 *p = &c->params.softmax;
    const NeutronWindowExtents *w = &c->window;
    make_output(c, 3, 6, 40);
    const int32_t channels = c->buffers[2].channels;
    make_input(c, 0, c->buffers[2].rows, c->buffers[2].cols, channels, (int32_t[]){w->col0, w->col1, 0, channels});
    *p = (NeutronSoftmaxS8){.input = 0, .output = 2, .exp_base = NEUTRON_BASE_WEIGHTS, .channels = channels};
    p->exp_count = one_in(3) ? 256 : between(1, 256);
    if (one_in(2)) {
        p->multiplier = between(1 << 30, INT32_MAX - 1);
        p->shift = between(-12, 9);
        p->output_zero_point = between(-128, 127);
    }
    c->weights_size = (uint32_t)p->exp_count * 4;
    /* As a compiler writes them: from 1 downwards. */
    int32_t *table = (int32_t *)(void *)weights;
    uint32_t value = INT32_MAX;
    const uint32_t factor = (uint32_t)between(60000, 65535);
    for (int32_t i = 0; i < p->exp_count; i++) {
        table[i] = (int32_t)value;
        value = (uint32_t)((uint64_t)value * factor >> 16);
    }
}

static void make_batch_matmul(Case *c) {
    NeutronBatchMatmulS8 *p = &c->params.batch_matmul;
    const NeutronWindowExtents *w = &c->window;
    make_output(c, 6, 1, 30);
    const NeutronBuffer *out = &c->buffers[2];
    const int32_t depth = between(1, one_in(6) ? 420 : 24), more = between(0, 2);
    make_input(c, 0, out->rows, 1, depth + more, (int32_t[]){0, 1, 0, depth});
    make_input(c, 1, depth + more, 1, out->channels, (int32_t[]){0, 1, w->channel0, w->channel1});
    *p = (NeutronBatchMatmulS8){.input_a = 0, .input_b = 1, .output = 2, .depth = depth};
    p->a_zero_point = between(-128, 127);
    p->b_zero_point = between(-128, 127);
    p->output_multiplier = one_in(8) ? (int32_t)random_word() : multiplier();
    p->output_shift = one_in(3) ? between(-31, 30) : between(-12, -6);
    p->output_zero_point = between(-128, 127);
}

typedef struct {
    void (*make)(Case *c);
    NeutronKernelCheck check;
    NeutronKernelRun run;
} Kernel;

static const Kernel KERNELS[] = {
    {make_depthwise, depthwise_conv_2d_s8_check, depthwise_conv_2d_s8_run},
    {make_add, add_s8_check, add_s8_run},
    {make_mul, mul_s8_check, mul_s8_run},
    {make_maximum, maximum_s8_check, maximum_s8_run},
    {make_squared_difference, squared_difference_s8_check, squared_difference_s8_run},
    {make_prelu, prelu_s8_check, prelu_s8_run},
    {make_pool, average_pool_2d_s8_check, average_pool_2d_s8_run},
    {make_pool, max_pool_2d_s8_check, max_pool_2d_s8_run},
    {make_mean, mean_s8_check, mean_s8_run},
    {make_sum, sum_s8_check, sum_s8_run},
    {make_reduce_max, reduce_max_s8_check, reduce_max_s8_run},
    {make_pad, pad_s8_check, pad_s8_run},
    {make_copy, copy_s8_check, copy_s8_run},
    {make_lookup, lookup_s8_check, lookup_s8_run},
    {make_softmax, softmax_s8_check, softmax_s8_run},
    {make_batch_matmul, batch_matmul_s8_check, batch_matmul_s8_run},
    {make_depthwise_3x3, depthwise_conv_2d_s8_check, depthwise_conv_2d_s8_run_3x3},
};

/* Some tensors have all values, some only the outermost, so that sums become large. */
static void fill(uint8_t *memory, uint32_t size) {
    const bool outermost = one_in(6);
    for (uint32_t i = 0; i < size; i += 4) {
        const uint32_t word = random_word();
        for (uint32_t j = i; j < i + 4 && j < size; j++) {
            const uint8_t value = (uint8_t)(word >> 8 * (j - i));
            memory[j] = outermost ? (value & 1 ? 0x7Fu : 0x80u) : value;
        }
    }
}

uint32_t random_call(uint32_t kernel, uint32_t number, uint8_t *a_end, uint8_t *b_end) {
    if (kernel >= sizeof KERNELS / sizeof KERNELS[0]) return 1;
    seed_numbers((uint64_t)kernel << 32 | number);
    fill(weights, sizeof weights);
    Case c = {0};
    KERNELS[kernel].make(&c);
    if (c.sizes[0] > ROOM || c.sizes[1] > ROOM || c.sizes[2] > ROOM || c.weights_size > WEIGHTS) return 2;
    if (c.sizes[1] == 0) {
        c.buffers[1] = c.buffers[0];
        c.sizes[1] = 1;
    }
    uint8_t *const a = a_end - c.sizes[0], *const b = b_end - c.sizes[1];
    fill(a, c.sizes[0]);
    fill(b, c.sizes[1]);
    fill(output_memory, c.sizes[2]);
    const void *inputs[2] = {a, b};
    void *outputs[1] = {output_memory};
    NeutronBases bases = {.inputs = inputs, .outputs = outputs, .areas = {weights}};
    const NeutronBinding bindings[3] = {{NEUTRON_BASE_INPUT, 0, c.sizes[0]},
                                        {NEUTRON_BASE_INPUT | 1u << 8, 0, c.sizes[1]},
                                        {NEUTRON_BASE_OUTPUT, 0, c.sizes[2]}};
    const NeutronProgramView program = {c.buffers, 3, bindings, 2, 1, {c.weights_size, 0, 0, 0}};
    for (int i = 0; i < 3; i++) {
        if (!neutron_buffer_is_sound(&program, &c.buffers[i])) return 0;
    }
    if (!KERNELS[kernel].check(&program, &c.params, &c.window)) return 0;
    const NeutronKernelCall call = {&c.params, c.buffers, &bases, c.window, NULL};
    KERNELS[kernel].run(&call);
    /* FNV-1a */
    uint32_t checksum = 2166136261u;
    for (uint32_t i = 0; i < c.sizes[2]; i++) checksum = (checksum ^ output_memory[i]) * 16777619u;
    return checksum | 8u;
}
