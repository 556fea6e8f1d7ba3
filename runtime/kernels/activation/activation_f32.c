/* SPDX-License-Identifier: BSD-3-Clause */
/* The activations of language models, with and without a gate. */
#include "../language.h"
#include "../shared_work.h"

enum { SILU, GELU_TANH, GELU, RELU };

bool activation_f32_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    const NeutronActivationF32 *p = params;
    const NeutronBuffer *in = neutron_float_rows(program, p->input, false), *out = neutron_float_output(program, p->output, window);
    return in != NULL && out != NULL && in->rows >= out->rows && p->kind >= SILU && p->kind <= RELU &&
           in->channels == (int64_t)out->channels * (p->gated != 0 ? 2 : 1) && neutron_integers_are_sound(program, p->span, 2);
}

/* Abramowitz and Stegun, 7.1.26. */
static NEUTRON_INLINE float error_function(float v) {
    const float z = v < 0.0f ? -v : v, t = 1.0f / (1.0f + 0.3275911f * z);
    const float p = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    const float y = 1.0f - p * neutron_exp(-(z * z));
    return v < 0.0f ? -y : y;
}

static NEUTRON_INLINE float activated(float x, const int32_t kind) {
    switch (kind) {
        case SILU:
            return x / (1.0f + neutron_exp(-x));
        case GELU_TANH:
            return (0.5f * x) * (1.0f + neutron_tanh(0.7978845608f * (x + 0.044715f * ((x * x) * x))));
        case GELU:
            return (0.5f * x) * (1.0f + error_function(x * 0.7071067812f));
        default:
            return x > 0.0f ? x : 0.0f;
    }
}

static NEUTRON_INLINE void activate(NeutronFloat *to, const NeutronFloat *x, const NeutronFloat *up, int32_t count, const int32_t kind) {
    if (up == NULL) {
        for (int32_t i = 0; i < count; i++) to[i] = activated(x[i], kind);
    } else {
        for (int32_t i = 0; i < count; i++) to[i] = activated(x[i], kind) * up[i];
    }
}

/* up: NULL without a gate. */
static NEUTRON_INLINE void activate_row(NeutronFloat *to, const NeutronFloat *x, const NeutronFloat *up, int32_t count, int32_t kind) {
    if (kind == SILU) {
        activate(to, x, up, count, SILU);
    } else if (kind == GELU_TANH) {
        activate(to, x, up, count, GELU_TANH);
    } else if (kind == GELU) {
        activate(to, x, up, count, GELU);
    } else {
        activate(to, x, up, count, RELU);
    }
}

NEUTRON_FOR_VECTORS(activate_row, (NeutronFloat *to, const NeutronFloat *x, const NeutronFloat *up, int32_t count, int32_t kind),
                    (to, x, up, count, kind))

static void compute_row(void *context, int32_t row, int32_t thread) {
    const NeutronKernelCall *call = *(const NeutronKernelCall **)context;
    const NeutronActivationF32 *p = call->params;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const NeutronFloat *x = neutron_float_row(call->bases, in, row), *up = p->gated != 0 ? x + out->channels : NULL;
    (void)thread;
    NEUTRON_FASTEST(activate_row)(neutron_float_row(call->bases, out, row), x, up, out->channels, p->kind);
}

void activation_f32_run(const NeutronKernelCall *call) {
    const NeutronActivationF32 *p = call->params;
    const NeutronBuffer *out = &call->buffers[p->output];
    const int32_t count = neutron_token_count(call, p->span, out->rows);
    neutron_share(call, neutron_threads_for(call, (uint64_t)count * (uint64_t)out->channels), count, compute_row, &call);
}
