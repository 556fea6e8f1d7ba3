/* SPDX-License-Identifier: BSD-3-Clause */
/* A squeeze-excite block: excitation_s8 of an image, then mul_s8 of the image with its result, which may be in place. */
#include <string.h>

#include "elements.h"

/* The words from `input` on are the block of excitation_s8, whose output is the gate; then come those of mul_s8 behind its buffers. */
NEUTRON_STATIC_ASSERT(offsetof(NeutronSqueezeExciteS8, mul_a_zero_point) - offsetof(NeutronSqueezeExciteS8, input) ==
                   sizeof(NeutronExcitationS8),
               "the same words");

/* The buffers of the product, in this order. */
enum { IMAGE, GATE, RESULT, BUFFERS };

typedef struct {
    NeutronMulS8 params;
    NeutronBuffer buffers[BUFFERS];
} Product;

/* The gate is repeated in each row and column. */
static Product product_of(const NeutronSqueezeExciteS8 *p, const NeutronBuffer *buffers) {
    Product product = {{.input_a = IMAGE, .input_b = GATE, .output = RESULT},
                       {buffers[p->input], buffers[p->gate], buffers[p->output]}};
    memcpy(&product.params.a_zero_point, &p->mul_a_zero_point, sizeof product.params - offsetof(NeutronMulS8, a_zero_point));
    NeutronBuffer *gate = &product.buffers[GATE];
    gate->row_pitch = gate->col_pitch = 0;
    gate->rows = gate->ring = buffers[p->output].rows;
    gate->cols = gate->cols_held = buffers[p->output].cols;
    return product;
}

static NeutronWindowExtents line_of(const NeutronBuffer *gate, const NeutronWindowExtents *window) {
    return (NeutronWindowExtents){window->batch0, window->batch1, 0, 1, 0, 1, 0, gate->channels};
}

static bool excitation_is_sound(const NeutronProgramView *program, const NeutronSqueezeExciteS8 *p,
                                const NeutronWindowExtents *line) {
    NeutronExcitationS8 excitation;
    memcpy(&excitation, &p->input, sizeof excitation);
    excitation.work = INT32_MAX; /* the whole call's is checked */
    return excitation_s8_check(program, &excitation, line);
}

static bool product_is_sound(const NeutronProgramView *program, const NeutronSqueezeExciteS8 *p,
                             const NeutronWindowExtents *window) {
    const Product product = product_of(p, program->buffers);
    NeutronProgramView own = *program;
    own.buffers = product.buffers;
    own.buffer_count = BUFFERS;
    return mul_s8_check(&own, &product.params, window);
}

bool squeeze_excite_s8_check(const NeutronProgramView *program, const void *params_block,
                             const NeutronWindowExtents *window) {
    const NeutronSqueezeExciteS8 *p = params_block;
    const NeutronBuffer *in = neutron_checked_buffer(program, p->input, false);
    const NeutronBuffer *gate = neutron_checked_buffer(program, p->gate, true);
    if (in == NULL || gate == NULL || neutron_checked_buffer(program, p->output, true) == NULL || gate->rows != 1 ||
        gate->cols != 1 || window->batch1 > gate->batches) {
        return false;
    }
    const NeutronWindowExtents line = line_of(gate, window);
    if (!excitation_is_sound(program, p, &line) || !product_is_sound(program, p, window)) return false;
    /* A window of some elements computes the whole excitation too. The checks of the parts bound these products. */
    const int64_t hidden = program->buffers[p->hidden].channels;
    const int64_t read = ((int64_t)in->rows * in->cols + hidden) * in->channels + hidden * gate->channels;
    const int64_t results = (int64_t)(window->row1 - window->row0) * (window->col1 - window->col0) *
                            (window->channel1 - window->channel0);
    return ((int64_t)p->work - 2) * (results < INT32_MAX ? results : INT32_MAX) >= read;
}

/* Not inlined, so that the buffers are not on the stack of the excitation. */
static __attribute__((noinline)) void run_product(const NeutronKernelCall *call, const NeutronSqueezeExciteS8 *p) {
    const Product product = product_of(p, call->buffers);
    NeutronKernelCall part = *call;
    part.params = &product.params;
    part.buffers = product.buffers;
    mul_s8_run(&part);
}

void squeeze_excite_s8_run(const NeutronKernelCall *call) {
    const NeutronSqueezeExciteS8 *p = call->params;
    NeutronKernelCall part = *call;
    part.params = &p->input;
    part.window = line_of(&call->buffers[p->gate], &call->window);
    excitation_s8_run(&part);
    run_product(call, p);
}
