/* SPDX-License-Identifier: BSD-3-Clause */
/* The checks of the convolution kernels. The words may be anything; the window is inside the output's extents and
 * is not empty, and both buffers are sound by themselves. */
#define NEUTRON_SMALL_FILE

#include "convolution.h"

/* Far beyond any network's, and small enough that products of two of them fit 32 bits. */
#define LARGEST_WINDOW_WORD 32767
#define LARGEST_PADDING (1 << 30)

static bool window_words_are_sound(const NeutronConv2dS8 *p) {
    const int32_t words[] = {p->kernel_h, p->kernel_w, p->stride_h, p->stride_w, p->dilation_h, p->dilation_w};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (words[i] < 1 || words[i] > LARGEST_WINDOW_WORD) return false;
    }
    return p->pad_top >= -LARGEST_PADDING && p->pad_top <= LARGEST_PADDING && p->pad_left >= -LARGEST_PADDING &&
           p->pad_left <= LARGEST_PADDING;
}

static bool range_words_are_sound(const NeutronConv2dS8 *p) {
    return p->single_rounding >= 0 && p->single_rounding <= 1 && neutron_is_stored(p->input_zero_point) &&
           neutron_is_stored(p->output_zero_point) && neutron_bounds_are_sound(p->clamp_min, p->clamp_max);
}

static bool groups_are_sound(const NeutronConv2dS8 *p, const NeutronBuffer *input, const NeutronBuffer *output) {
    if (p->group_inputs < 1 || p->group_outputs < 1 || output->channels % p->group_outputs != 0) return false;
    return (int64_t)(output->channels / p->group_outputs) * p->group_inputs == input->channels;
}

static bool constants_are_sound(const NeutronProgramView *program, const NeutronConv2dS8 *p,
                                const NeutronWindowExtents *window, uint64_t block_bytes) {
    const int32_t first = p->constant_channel0, held = p->constant_channels;
    if (first < 0 || first % NEUTRON_LANES != 0 || held < 1) return false;
    if (window->channel0 % NEUTRON_LANES != 0 || window->channel0 < first ||
        window->channel1 > (int64_t)first + held) {
        return false;
    }
    const uint64_t blocks = neutron_blocks_of(held);
    const uint64_t taps = (uint64_t)p->kernel_h * (uint64_t)p->kernel_w;
    if (block_bytes > UINT32_MAX || taps * block_bytes > UINT32_MAX) return false;
    return neutron_range_is_sound(program, p->weights_base, p->weights_offset, blocks * taps * block_bytes,
                                  NEUTRON_ALIGNMENT) &&
           neutron_range_is_sound(program, p->requant_base, p->requant_offset, blocks * sizeof(NeutronRequantBlock),
                                  NEUTRON_ALIGNMENT);
}

/* The first input position of one axis that the outputs [first, end) look at, and the end of those positions. False
 * where a kernel's sums on the way there, or those for 64 outputs more, would not fit an int32_t. */
static bool reach(int32_t first, int32_t end, int32_t stride, int32_t pad, int32_t kernel, int32_t dilation,
                  int64_t *low, int64_t *high) {
    const int64_t last = ((int64_t)end + 64) * stride;
    const int64_t taps = (int64_t)(kernel - 1) * dilation + 1;
    *low = (int64_t)first * stride - pad;
    *high = (int64_t)(end - 1) * stride - pad + taps;
    return last <= INT32_MAX && last - pad + taps <= INT32_MAX;
}

static bool input_is_held(const NeutronConv2dS8 *p, const NeutronBuffer *input, const NeutronWindowExtents *w) {
    int64_t row0, row1, col0, col1;
    if (!reach(w->row0, w->row1, p->stride_h, p->pad_top, p->kernel_h, p->dilation_h, &row0, &row1)) return false;
    if (!reach(w->col0, w->col1, p->stride_w, p->pad_left, p->kernel_w, p->dilation_w, &col0, &col1)) return false;
    if (col0 < 0) col0 = 0;
    if (col1 > input->cols) col1 = input->cols;
    const int32_t channel0 = w->channel0 / p->group_outputs * p->group_inputs;
    const int32_t channel1 = ((w->channel1 - 1) / p->group_outputs + 1) * p->group_inputs;
    return col0 >= col1 || neutron_buffer_holds(input, (int32_t)col0, (int32_t)col1, channel0, channel1);
}

bool neutron_convolution_is_sound(const NeutronProgramView *program, const NeutronConv2dS8 *p,
                                  const NeutronWindowExtents *window, uint64_t block_bytes) {
    const NeutronBuffer *input = neutron_checked_buffer(program, p->input, false);
    const NeutronBuffer *output = neutron_window_buffer(program, p->output, true, window);
    return input != NULL && output != NULL && window_words_are_sound(p) && range_words_are_sound(p) &&
           groups_are_sound(p, input, output) && window->batch1 <= input->batches &&
           input_is_held(p, input, window) && constants_are_sound(program, p, window, block_bytes);
}
