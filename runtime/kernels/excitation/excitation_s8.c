/* SPDX-License-Identifier: BSD-3-Clause */
/* The excitation of a squeeze-excite block: the kernels of its parts one after the other, the intermediate results in scratch. */
#include <string.h>

#include "elements.h"

/* The parameters of a part; `words` are those of the call, in the order in which the part has them behind its buffers. */

static NeutronMeanS8 mean_of(const NeutronExcitationS8 *p) {
    NeutronMeanS8 mean = {.input = p->input, .output = p->squeezed};
    memcpy(&mean.input_zero_point, &p->mean_input_zero_point, sizeof mean - offsetof(NeutronMeanS8, input_zero_point));
    return mean;
}

static NeutronConv2d1x1S8 layer_of(uint32_t input, uint32_t output, const uint32_t *words) {
    NeutronConv2d1x1S8 layer = {.input = input, .output = output};
    memcpy(&layer.weights_base, words, sizeof layer - offsetof(NeutronConv2d1x1S8, weights_base));
    return layer;
}

static NeutronLookupS8 table_of(uint32_t buffer, const uint32_t *words) {
    return (NeutronLookupS8){buffer, buffer, words[0], words[1]};
}

/* ---- check ---------------------------------------------------------------------------------------------------------- */

/* All channels of one row and column, of the window's batches. */
static NeutronWindowExtents line_of(const NeutronBuffer *buffer, const NeutronWindowExtents *window) {
    return (NeutronWindowExtents){window->batch0, window->batch1, 0, 1, 0, 1, 0, buffer->channels};
}

static bool is_line(const NeutronBuffer *buffer, const NeutronWindowExtents *window) {
    return buffer != NULL && buffer->rows == 1 && buffer->cols == 1 && window->batch1 <= buffer->batches;
}

static bool mean_is_sound(const NeutronProgramView *program, const NeutronExcitationS8 *p, const NeutronWindowExtents *window) {
    const NeutronMeanS8 mean = mean_of(p);
    return mean_s8_check(program, &mean, window);
}

static bool layer_is_sound(const NeutronProgramView *program, uint32_t input, uint32_t output, const uint32_t *words,
                           const NeutronWindowExtents *window) {
    const NeutronConv2d1x1S8 layer = layer_of(input, output, words);
    return conv_2d_1x1_s8_check(program, &layer, window);
}

static bool table_is_sound(const NeutronProgramView *program, int32_t any, uint32_t buffer, const uint32_t *words,
                           const NeutronWindowExtents *window) {
    const NeutronLookupS8 table = table_of(buffer, words);
    return any == 0 || lookup_s8_check(program, &table, window);
}

bool excitation_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronExcitationS8 *p = params_block;
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    const NeutronBuffer *squeezed = neutron_checked_buffer(program, p->squeezed, true);
    const NeutronBuffer *hidden = neutron_checked_buffer(program, p->hidden, true);
    if (in == NULL || !is_line(squeezed, window) || !is_line(hidden, window)) return false;
    const NeutronWindowExtents means = line_of(squeezed, window), between = line_of(hidden, window);
    if (!mean_is_sound(program, p, &means) ||
        !layer_is_sound(program, p->squeezed, p->hidden, &p->first_weights_base, &between) ||
        !table_is_sound(program, p->first_tabled, p->hidden, &p->first_table_base, &between) ||
        !layer_is_sound(program, p->hidden, p->output, &p->second_weights_base, window) ||
        !table_is_sound(program, p->second_tabled, p->output, &p->second_table_base, window)) {
        return false;
    }
    /* A window of some channels computes all means too. The checks of the parts bound these products. */
    const int64_t channels = (int64_t)window->channel1 - window->channel0;
    const int64_t read = ((int64_t)in->rows * in->cols + hidden->channels) * squeezed->channels;
    return p->work * channels >= read + hidden->channels * channels;
}

/* ---- run ------------------------------------------------------------------------------------------------------------ */

/* A layer and its table, for a window. */
static void run_layer(const NeutronKernelCall *call, uint32_t input, uint32_t output, const uint32_t *words, int32_t tabled,
                      const uint32_t *table_words, const NeutronWindowExtents *window) {
    const NeutronConv2d1x1S8 layer = layer_of(input, output, words);
    const NeutronLookupS8 table = table_of(output, table_words);
    NeutronKernelCall part = *call;
    part.window = *window;
    part.params = &layer;
    conv_2d_1x1_s8_run(&part);
    if (tabled == 0) return;
    part.params = &table;
    lookup_s8_run(&part);
}

void excitation_s8_run(const NeutronKernelCall *call) {
    const NeutronExcitationS8 *p = call->params;
    const NeutronMeanS8 mean = mean_of(p);
    NeutronKernelCall part = *call;
    part.window = line_of(&call->buffers[p->squeezed], &call->window);
    part.params = &mean;
    mean_s8_run(&part);
    const NeutronWindowExtents between = line_of(&call->buffers[p->hidden], &call->window);
    run_layer(call, p->squeezed, p->hidden, &p->first_weights_base, p->first_tabled, &p->first_table_base, &between);
    run_layer(call, p->hidden, p->output, &p->second_weights_base, p->second_tabled, &p->second_table_base, &call->window);
}
