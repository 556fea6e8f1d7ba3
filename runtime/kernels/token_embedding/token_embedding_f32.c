/* SPDX-License-Identifier: BSD-3-Clause */
/* The row of a matrix of int8 or int4 weights for each token. */
#include "../matrix.h"
#include "../shared_work.h"

static const NeutronMatrixWords *matrix_of(const NeutronTokenEmbeddingF32 *p) { return (const void *)&p->inputs; }

bool token_embedding_f32_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    const NeutronTokenEmbeddingF32 *p = params;
    const NeutronBuffer *out = neutron_float_output(program, p->output, window);
    return out != NULL && out->channels == p->inputs && p->positions >= 1 && neutron_integers_are_sound(program, p->tokens, out->rows) &&
           neutron_integers_are_sound(program, p->span, 2) && neutron_matrix_is_sound(program, matrix_of(p), p->vocabulary) &&
           (p->learned == 0 || neutron_floats_are_sound(program, p->learned_positions_base, p->learned_positions_offset,
                                                        (uint64_t)p->positions * (uint64_t)out->channels));
}

/* The span and all tokens of the run are inside their bounds. */
static bool is_known(const NeutronKernelCall *call, int64_t position, int64_t count) {
    const NeutronTokenEmbeddingF32 *p = call->params;
    if (count < 1 || count > call->buffers[p->output].rows || count > p->positions || position < 0 || position > p->positions - count) {
        return false;
    }
    for (int32_t i = 0; i < (int32_t)count; i++) {
        const int64_t token = neutron_integer_at(call, p->tokens, i);
        if (token < 0 || token >= p->vocabulary) return false;
    }
    return true;
}

static void embed(const NeutronKernelCall *call, int32_t token, NeutronFloat *to) {
    const NeutronTokenEmbeddingF32 *p = call->params;
    const NeutronMatrixWords *m = matrix_of(p);
    const float multiplier = neutron_float_of(p->multiplier_bits);
    const float scale = neutron_float_constant(call->bases, p->scales_base, p->scales_offset)[token];
    int32_t column = 0;
    for (int32_t i = 0; i < neutron_matrix_parts(m); i++) {
        const NeutronMatrixPart part = neutron_matrix_part(call->bases, m, i);
        const NeutronMatrixRow row = neutron_matrix_row(m, &part, token);
        for (int32_t k = 0; k < part.inputs;) {
            int8_t decoded[NEUTRON_MATRIX_DECODED];
            const int8_t *values;
            const int32_t count = neutron_matrix_piece(m, &part, &row, k, NEUTRON_FASTEST(neutron_decode), decoded, &values);
            for (int32_t j = 0; j < count && column < p->inputs; j++, column++) to[column] = ((float)values[j] * scale) * multiplier;
            k += count;
        }
    }
}

static void compute_row(void *context, int32_t row, int32_t thread) {
    const NeutronKernelCall *call = *(const NeutronKernelCall **)context;
    const NeutronTokenEmbeddingF32 *p = call->params;
    const NeutronBuffer *out = &call->buffers[p->output];
    NeutronFloat *to = neutron_float_row(call->bases, out, row);
    (void)thread;
    embed(call, (int32_t)neutron_integer_at(call, p->tokens, row), to);
    if (p->learned == 0) return;
    const int64_t position = neutron_integer_at(call, p->span, 0);
    const NeutronFloat *learned = neutron_float_constant(call->bases, p->learned_positions_base, p->learned_positions_offset) +
                                  (size_t)(position + row) * (size_t)out->channels;
    for (int32_t i = 0; i < out->channels; i++) to[i] = to[i] + learned[i];
}

void token_embedding_f32_run(const NeutronKernelCall *call) {
    const NeutronTokenEmbeddingF32 *p = call->params;
    const int64_t position = neutron_integer_at(call, p->span, 0), count = neutron_integer_at(call, p->span, 1);
    if (!is_known(call, position, count)) {
        if (call->error != NULL) *call->error = ENEUTRON_INDEX;
        return;
    }
    const uint64_t work = (uint64_t)count * (uint64_t)call->buffers[p->output].channels;
    neutron_share(call, neutron_threads_for(call, work), (int32_t)count, compute_row, &call);
}
