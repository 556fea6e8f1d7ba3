/* SPDX-License-Identifier: BSD-3-Clause */
/* RMSNorm and LayerNorm of rows of float32. */
#include "../language.h"
#include "../shared_work.h"

bool norm_f32_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    const NeutronNormF32 *p = params;
    const NeutronBuffer *in = neutron_float_rows(program, p->input, false), *out = neutron_float_output(program, p->output, window);
    if (in == NULL || out == NULL || in->rows < out->rows || in->channels != out->channels) return false;
    const NeutronBuffer *residual = p->add == 0 ? in : neutron_float_rows(program, p->residual, false);
    return residual != NULL && residual->rows >= out->rows && residual->channels == out->channels &&
           neutron_integers_are_sound(program, p->span, 2) &&
           neutron_floats_are_sound(program, p->scale_base, p->scale_offset, (uint64_t)out->channels) &&
           (p->centred == 0 || neutron_floats_are_sound(program, p->bias_base, p->bias_offset, (uint64_t)out->channels));
}

typedef struct {
    const NeutronKernelCall *call;
    int32_t channels;
    bool centred;
    float epsilon;
    const NeutronFloat *scale, *bias;
} Norm;

/* residual: NULL for none. It may be the output. */
static NEUTRON_INLINE void norm_row(const Norm *norm, NeutronFloat *to, const NeutronFloat *x, const NeutronFloat *residual) {
    const int32_t channels = norm->channels;
    const float mean = norm->centred ? neutron_sum_values(x, channels, 0.0f) / (float)channels : 0.0f;
    const float squares = norm->centred ? neutron_sum_deviations(x, channels, mean) : neutron_sum_squares(x, channels, 0.0f);
    const float inverse = 1.0f / neutron_sqrt(squares / (float)channels + norm->epsilon);
    for (int32_t i = 0; i < channels; i++) {
        const float from = norm->centred ? x[i] - mean : x[i];
        float y = (from * inverse) * norm->scale[i];
        if (norm->centred) y = y + norm->bias[i];
        to[i] = residual == NULL ? y : residual[i] + y;
    }
}

NEUTRON_FOR_VECTORS(norm_row, (const Norm *norm, NeutronFloat *to, const NeutronFloat *x, const NeutronFloat *residual),
                    (norm, to, x, residual))

static void compute_row(void *context, int32_t row, int32_t thread) {
    const Norm *norm = context;
    const NeutronKernelCall *call = norm->call;
    const NeutronNormF32 *p = call->params;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const NeutronFloat *residual = p->add == 0 ? NULL : neutron_float_row(call->bases, &call->buffers[p->residual], row);
    (void)thread;
    NEUTRON_FASTEST(norm_row)(norm, neutron_float_row(call->bases, out, row), neutron_float_row(call->bases, in, row), residual);
}

void norm_f32_run(const NeutronKernelCall *call) {
    const NeutronNormF32 *p = call->params;
    const NeutronBuffer *out = &call->buffers[p->output];
    Norm norm = {
        .call = call,
        .channels = out->channels,
        .centred = p->centred != 0,
        .epsilon = neutron_float_of(p->epsilon_bits),
        .scale = neutron_float_constant(call->bases, p->scale_base, p->scale_offset),
        .bias = p->centred == 0 ? NULL : neutron_float_constant(call->bases, p->bias_base, p->bias_offset),
    };
    const int32_t count = neutron_token_count(call, p->span, out->rows);
    neutron_share(call, neutron_threads_for(call, (uint64_t)count * (uint64_t)out->channels), count, compute_row, &norm);
}
