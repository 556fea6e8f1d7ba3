/* SPDX-License-Identifier: BSD-3-Clause */
/* See chain.h. */
#include "chain.h"

#include <string.h>

enum { ENDS = 2, CHAIN_WORDS = sizeof(NeutronChain) / sizeof(uint32_t) };

/* The words of the first kernel behind its input and output, and those of the second one. */
static const uint32_t *first_words(const void *params) { return (const uint32_t *)params + CHAIN_WORDS; }

static const uint32_t *second_words(const void *params, const NeutronLink *first) {
    return first_words(params) + first->words - ENDS;
}

static void take_words(NeutronChainPart *part, uint32_t input, uint32_t output, const uint32_t *rest, const NeutronLink *of) {
    part->words[0] = input;
    part->words[1] = output;
    memcpy(part->words + ENDS, rest, (size_t)(of->words - ENDS) * sizeof(uint32_t));
}

bool neutron_chain_is_sound(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window,
                            const NeutronLink *first, const NeutronLink *second) {
    const NeutronChain *p = params;
    const NeutronBuffer *between = neutron_checked_buffer(program, p->between, true);
    const uint32_t *rest = second_words(params, first);
    if (between == NULL) return false;
    if (second->stride != 0 && (rest[second->stride - ENDS] != 1 || rest[second->stride - ENDS + 1] != 1)) return false;
    const uint32_t own = first_words(params)[first->taps - ENDS], behind = rest[second->taps - ENDS];
    const int64_t outputs = (int64_t)window->channel1 - window->channel0;
    if (p->work < 1 || outputs < 1 || own > INT32_MAX || behind > (uint32_t)p->work) return false;
    /* Neither product is beyond 2^62. */
    return (int64_t)between->channels * own <= outputs * (p->work - (int32_t)behind);
}

void neutron_chain_first(NeutronChainPart *part, const NeutronBuffer *buffers, const void *params,
                         const NeutronWindowExtents *window, const NeutronLink *first) {
    const NeutronChain *p = params;
    take_words(part, p->input, p->between, first_words(params), first);
    part->window = *window;
    part->window.channel0 = 0;
    part->window.channel1 = buffers[p->between].channels;
}

void neutron_chain_second(NeutronChainPart *part, const void *params, const NeutronWindowExtents *window,
                          const NeutronLink *first, const NeutronLink *second) {
    const NeutronChain *p = params;
    take_words(part, p->between, p->output, second_words(params, first), second);
    part->window = *window;
}
