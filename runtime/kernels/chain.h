/* SPDX-License-Identifier: BSD-3-Clause */
/* Two kernels in one call, the first one's output in a scratch buffer that is the second one's input.
 *
 * One part finds its words in place; those of the other one, which has fewer, are copied. A call's words are the copied part's input or output
 * that is not the scratch buffer, a bound of the call's work, then all words of the part in place, and then those of the copied part without
 * its input and output. Both kernels compute each position from the same position of their input. So a scratch buffer may hold fewer rows than
 * the call computes: the call then goes through its rows in blocks of as many. Both kernels have run on a block before the first one reads the
 * next block, so that the output may take the memory of the blocks of the input before it. */
#ifndef NEUTRON_CHAIN_H
#define NEUTRON_CHAIN_H

#include "kernel.h"

/* The first words of each chain. */
typedef struct {
    uint32_t end;
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

/* Both kernels of a chain. */
typedef struct {
    NeutronLink first, second;
    bool copies_first;
} NeutronPair;

/* The kernel of this name runs these two, which a PAIR describes; Params are the words of the copied part. Calls are direct, so that the stack
 * is known. What a part needs is on the stack while that part runs alone. */
#define NEUTRON_CHAIN_COPYING_FIRST(kernel, first, second, Params)                                                    \
    NEUTRON_PART_COPIED(first, Params, neutron_chain_window)                                                          \
    NEUTRON_PART_IN_PLACE(second, neutron_chain_same_window)                                                          \
    NEUTRON_CHAIN(kernel, first, second)
#define NEUTRON_CHAIN_COPYING_SECOND(kernel, first, second, Params)                                                   \
    NEUTRON_PART_IN_PLACE(first, neutron_chain_window)                                                                \
    NEUTRON_PART_COPIED(second, Params, neutron_chain_same_window)                                                    \
    NEUTRON_CHAIN(kernel, first, second)

#define NEUTRON_PART_IN_PLACE(part, window_of)                                                                        \
    static bool part##_is_sound(const NeutronProgramView *program, const void *params,                               \
                                const NeutronWindowExtents *window) {                                                 \
        const NeutronWindowExtents own = window_of(program->buffers, params, window, &PAIR);                          \
        return part##_check(program, neutron_chain_in_place(params), &own);                                           \
    }                                                                                                                 \
    static __attribute__((noinline)) void run_##part(const NeutronKernelCall *call, int32_t row0, int32_t row1) {    \
        NeutronKernelCall own = *call;                                                                                \
        own.params = neutron_chain_in_place(call->params);                                                            \
        own.window = window_of(call->buffers, call->params, &call->window, &PAIR);                                    \
        own.window.row0 = row0;                                                                                       \
        own.window.row1 = row1;                                                                                       \
        part##_run(&own);                                                                                             \
    }

#define NEUTRON_PART_COPIED(part, Params, window_of)                                                                  \
    static bool part##_is_sound(const NeutronProgramView *program, const void *params,                               \
                                const NeutronWindowExtents *window) {                                                 \
        Params words;                                                                                                 \
        const NeutronWindowExtents own = window_of(program->buffers, params, window, &PAIR);                          \
        neutron_chain_copied(&words, params, &PAIR);                                                                  \
        return part##_check(program, &words, &own);                                                                   \
    }                                                                                                                 \
    static __attribute__((noinline)) void run_##part(const NeutronKernelCall *call, int32_t row0, int32_t row1) {    \
        Params words;                                                                                                 \
        NeutronKernelCall own = *call;                                                                                \
        own.params = &words;                                                                                          \
        own.window = window_of(call->buffers, call->params, &call->window, &PAIR);                                    \
        own.window.row0 = row0;                                                                                       \
        own.window.row1 = row1;                                                                                       \
        neutron_chain_copied(&words, call->params, &PAIR);                                                            \
        part##_run(&own);                                                                                             \
    }

#define NEUTRON_CHAIN(kernel, first, second)                                                                          \
    bool kernel##_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) { \
        return neutron_chain_is_sound(program, params, window, &PAIR) && first##_is_sound(program, params, window) && \
               second##_is_sound(program, params, window);                                                            \
    }                                                                                                                 \
    void kernel##_run(const NeutronKernelCall *call) {                                                                \
        const int32_t rows = neutron_chain_rows(call, &PAIR), end = call->window.row1;                                \
        for (int32_t row = call->window.row0; row < end;) {                                                           \
            const int32_t next = end - row > rows ? row + rows : end;                                                 \
            run_##first(call, row, next);                                                                             \
            run_##second(call, row, next);                                                                            \
            row = next;                                                                                               \
        }                                                                                                             \
    }

/* The scratch buffer is writable, the strides are 1, and the word `work` bounds the work of both kernels. */
bool neutron_chain_is_sound(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window,
                            const NeutronPair *pair);
/* The most rows of a block: those that the scratch buffer holds. */
int32_t neutron_chain_rows(const NeutronKernelCall *call, const NeutronPair *pair);
/* The words of the part in place. */
const uint32_t *neutron_chain_in_place(const void *params);
/* Writes the words of the copied part to `to`. */
void neutron_chain_copied(void *to, const void *params, const NeutronPair *pair);
/* The window of the first kernel: all channels of the scratch buffer. */
NeutronWindowExtents neutron_chain_window(const NeutronBuffer *buffers, const void *params,
                                          const NeutronWindowExtents *window, const NeutronPair *pair);

/* The window of the second kernel is that of the call. */
static inline NeutronWindowExtents neutron_chain_same_window(const NeutronBuffer *buffers, const void *params,
                                                             const NeutronWindowExtents *window, const NeutronPair *pair) {
    (void)buffers, (void)params, (void)pair;
    return *window;
}

#endif
