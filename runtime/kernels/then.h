/* SPDX-License-Identifier: BSD-3-Clause */
/* A kernel and an operator of its result in one call: both kernels run on one window, one after the other, the second one in place. */
#ifndef NEUTRON_THEN_H
#define NEUTRON_THEN_H

#include <string.h>

#include "kernel.h"

/* <first>_<second>_check() and _run(); the first kernel is <first>_s8. Params, Second: the parameter blocks of the call and of the second
 * kernel. operand: the second kernel's operand that is the first one's output. first_word: the second kernel's first word behind its buffers;
 * from there on its words are those of the call from then_<first_word> on. The further arguments initialize its other operands from `p`. */
#define NEUTRON_THEN(first, second, Params, Second, operand, first_word, ...)                                               \
    static Second second_of(const Params *p) {                                                                              \
        Second words = {.operand = p->output, .output = p->output, __VA_ARGS__};                                            \
        memcpy(&words.first_word, &p->then_##first_word, sizeof words - offsetof(Second, first_word));                      \
        return words;                                                                                                       \
    }                                                                                                                       \
    bool first##_##second##_check(const NeutronProgramView *program, const void *params,                                    \
                                 const NeutronWindowExtents *window) {                                                      \
        const Second words = second_of(params);                                                                             \
        return first##_s8_check(program, params, window) && second##_check(program, &words, window);                        \
    }                                                                                                                       \
    void first##_##second##_run(const NeutronKernelCall *call) {                                                            \
        const Second words = second_of(call->params);                                                                       \
        first##_s8_run(call);                                                                                               \
        NeutronKernelCall then = *call;                                                                                     \
        then.params = &words;                                                                                               \
        second##_run(&then);                                                                                                \
    }

#endif
