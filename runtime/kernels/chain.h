/* SPDX-License-Identifier: BSD-3-Clause */
/* Two kernels in one call, the first one's output in a scratch buffer that is the second one's input.
 *
 * A call's words are its input, its output, the scratch buffer, a bound of its work, and then the words of both kernels without
 * their input and output. Both kernels compute each position from the same position of their input. */
#ifndef NEUTRON_CHAIN_H
#define NEUTRON_CHAIN_H

#include "kernel.h"

/* The most words of a kernel that can be part of a chain. */
enum { NEUTRON_LINK_WORDS = 72 };

/* The first words of each chain. */
typedef struct {
    uint32_t input, output, between;
    int32_t work;
} NeutronChain;

/* A kernel whose words begin with its input and its output. `taps`: the word with its multiply-accumulates for each output
 * channel of a position. `stride`: the first of two words that must be 1; 0: the kernel has no stride. */
typedef struct {
    uint16_t words, taps, stride;
} NeutronLink;

/* The words and the window of one of both kernels. */
typedef struct {
    uint32_t words[NEUTRON_LINK_WORDS];
    NeutronWindowExtents window;
} NeutronChainPart;

#define NEUTRON_WORD(type, word) ((uint16_t)(offsetof(type, word) / sizeof(uint32_t)))
#define NEUTRON_LINK(type, taps_word, stride_word) \
    {(uint16_t)(sizeof(type) / sizeof(uint32_t)), NEUTRON_WORD(type, taps_word), stride_word}

#define NEUTRON_NORM_LINK NEUTRON_LINK(NeutronLayerNormS8, channels, 0)
/* A linear layer, alone or with an operator behind it in place. */
#define NEUTRON_LINEAR_LINK(type) NEUTRON_LINK(type, group_inputs, NEUTRON_WORD(type, stride_h))
/* Two linear layers that are a chain themselves. */
#define NEUTRON_FEED_FORWARD_LINK \
    NEUTRON_LINK(NeutronFeedForwardS8, work, NEUTRON_WORD(NeutronFeedForwardS8, first_stride_h))

/* The kernel of this name runs these two, which a FIRST and a SECOND describe. Calls are direct, so that the stack is known. */
#define NEUTRON_CHAIN(kernel, first, second)                                                                          \
    bool kernel##_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) { \
        NeutronChainPart part;                                                                                        \
        if (!neutron_chain_is_sound(program, params, window, &FIRST, &SECOND)) return false;                          \
        neutron_chain_first(&part, program->buffers, params, window, &FIRST);                                         \
        if (!first##_check(program, part.words, &part.window)) return false;                                          \
        neutron_chain_second(&part, params, window, &FIRST, &SECOND);                                                 \
        return second##_check(program, part.words, &part.window);                                                     \
    }                                                                                                                 \
    void kernel##_run(const NeutronKernelCall *call) {                                                                \
        NeutronChainPart part;                                                                                        \
        NeutronKernelCall own = *call;                                                                                \
        own.params = part.words;                                                                                      \
        neutron_chain_first(&part, call->buffers, call->params, &call->window, &FIRST);                               \
        own.window = part.window;                                                                                     \
        first##_run(&own);                                                                                            \
        neutron_chain_second(&part, call->params, &call->window, &FIRST, &SECOND);                                    \
        own.window = part.window;                                                                                     \
        second##_run(&own);                                                                                           \
    }

/* The scratch buffer is writable, the strides are 1, and the word `work` bounds the work of both kernels. */
bool neutron_chain_is_sound(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window,
                            const NeutronLink *first, const NeutronLink *second);
void neutron_chain_first(NeutronChainPart *part, const NeutronBuffer *buffers, const void *params,
                         const NeutronWindowExtents *window, const NeutronLink *first);
void neutron_chain_second(NeutronChainPart *part, const void *params, const NeutronWindowExtents *window,
                          const NeutronLink *first, const NeutronLink *second);

#endif
