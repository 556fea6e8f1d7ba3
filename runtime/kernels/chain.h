/* SPDX-License-Identifier: BSD-3-Clause */
/* Two kernels in one call, the first one's output in a scratch buffer that is the second one's input.
 *
 * A call's words are its output, a bound of its work, then all words of the first kernel, whose output is the scratch buffer, and then those
 * of the second one without its input and output. Both kernels compute each position from the same position of their input. */
#ifndef NEUTRON_CHAIN_H
#define NEUTRON_CHAIN_H

#include "kernel.h"

/* The first words of each chain. */
typedef struct {
    uint32_t output;
    int32_t work;
} NeutronChain;

/* A kernel by the places of its words: its input, its output, its multiply-accumulates for each output channel of a position, and the first
 * of two words that must be 1; 0: the kernel has no stride. */
typedef struct {
    uint16_t words, input, output, taps, stride;
} NeutronLink;

#define NEUTRON_WORD(type, word) ((uint16_t)(offsetof(type, word) / sizeof(uint32_t)))
#define NEUTRON_LINK(type, taps_word, stride_word) \
    {(uint16_t)(sizeof(type) / sizeof(uint32_t)), NEUTRON_WORD(type, input), NEUTRON_WORD(type, output), \
     NEUTRON_WORD(type, taps_word), stride_word}

#define NEUTRON_NORM_LINK NEUTRON_LINK(NeutronLayerNormS8, channels, 0)
/* A linear layer, alone or with an operator behind it in place. */
#define NEUTRON_LINEAR_LINK(type) NEUTRON_LINK(type, group_inputs, NEUTRON_WORD(type, stride_h))
/* Two linear layers that are a chain themselves. */
#define NEUTRON_FEED_FORWARD_LINK \
    NEUTRON_LINK(NeutronFeedForwardS8, work, NEUTRON_WORD(NeutronFeedForwardS8, first_stride_h))

/* The kernel of this name runs these two, which a FIRST and a SECOND describe. Calls are direct, so that the stack is known. What a part needs
 * is on the stack while that part runs alone. */
#define NEUTRON_CHAIN(kernel, first, second, SecondParams)                                                            \
    bool kernel##_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) { \
        SecondParams own;                                                                                             \
        if (!neutron_chain_is_sound(program, params, window, &FIRST, &SECOND)) return false;                          \
        const NeutronWindowExtents between = neutron_chain_window(program->buffers, params, window, &FIRST);          \
        if (!first##_check(program, neutron_chain_first(params), &between)) return false;                             \
        neutron_chain_second(&own, params, &FIRST, &SECOND);                                                          \
        return second##_check(program, &own, window);                                                                 \
    }                                                                                                                 \
    static __attribute__((noinline)) void run_first(const NeutronKernelCall *call) {                                 \
        NeutronKernelCall own = *call;                                                                                \
        own.params = neutron_chain_first(call->params);                                                               \
        own.window = neutron_chain_window(call->buffers, call->params, &call->window, &FIRST);                        \
        first##_run(&own);                                                                                            \
    }                                                                                                                 \
    static __attribute__((noinline)) void run_second(const NeutronKernelCall *call) {                                \
        SecondParams params;                                                                                          \
        NeutronKernelCall own = *call;                                                                                \
        own.params = &params;                                                                                         \
        neutron_chain_second(&params, call->params, &FIRST, &SECOND);                                                 \
        second##_run(&own);                                                                                           \
    }                                                                                                                 \
    void kernel##_run(const NeutronKernelCall *call) {                                                                \
        run_first(call);                                                                                              \
        run_second(call);                                                                                             \
    }

/* The scratch buffer is writable, the strides are 1, and the word `work` bounds the work of both kernels. */
bool neutron_chain_is_sound(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window,
                            const NeutronLink *first, const NeutronLink *second);
/* The words of the first kernel. */
const uint32_t *neutron_chain_first(const void *params);
/* The window of the first kernel: all channels of the scratch buffer. */
NeutronWindowExtents neutron_chain_window(const NeutronBuffer *buffers, const void *params,
                                          const NeutronWindowExtents *window, const NeutronLink *first);
/* Writes the words of the second kernel to `to`. */
void neutron_chain_second(void *to, const void *params, const NeutronLink *first, const NeutronLink *second);

#endif
