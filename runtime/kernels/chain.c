/* SPDX-License-Identifier: BSD-3-Clause */
/* See chain.h. */
#include "chain.h"

enum { CHAIN_WORDS = sizeof(NeutronChain) / sizeof(uint32_t) };

const uint32_t *neutron_chain_in_place(const void *params) { return (const uint32_t *)params + CHAIN_WORDS; }

static uint32_t between_of(const void *params, const NeutronPair *pair) {
    return neutron_chain_in_place(params)[pair->copies_first ? pair->second.input : pair->first.output];
}

/* A word of either kernel that is neither its input nor its output. */
static uint32_t word_of(const void *params, const NeutronPair *pair, const NeutronLink *link, uint16_t word) {
    const bool is_copied = (link == &pair->first) == pair->copies_first;
    const NeutronLink *in_place = pair->copies_first ? &pair->second : &pair->first;
    const int ends = (link->input < word) + (link->output < word);
    return neutron_chain_in_place(params)[is_copied ? in_place->words + word - ends : word];
}

bool neutron_chain_is_sound(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window,
                            const NeutronPair *pair) {
    const NeutronChain *p = params;
    const NeutronLink *second = &pair->second;
    const NeutronBuffer *between = neutron_checked_buffer(program, between_of(params, pair), true);
    if (between == NULL) return false;
    for (uint16_t i = 0; i < 2 && second->stride != 0; i++) {
        if (word_of(params, pair, second, (uint16_t)(second->stride + i)) != 1) return false;
    }
    const uint32_t own = word_of(params, pair, &pair->first, pair->first.taps);
    const uint32_t behind = word_of(params, pair, second, second->taps);
    const int64_t outputs = (int64_t)window->channel1 - window->channel0;
    if (p->work < 1 || outputs < 1 || own > INT32_MAX || behind > (uint32_t)p->work) return false;
    /* Neither product is beyond 2^62. */
    return (int64_t)between->channels * own <= outputs * (p->work - (int32_t)behind);
}

int32_t neutron_chain_rows(const NeutronKernelCall *call, const NeutronPair *pair) {
    return call->buffers[between_of(call->params, pair)].ring;
}

void neutron_chain_copied(void *to, const void *params, const NeutronPair *pair) {
    const NeutronLink *link = pair->copies_first ? &pair->first : &pair->second;
    const uint32_t end = ((const NeutronChain *)params)->end, between = between_of(params, pair);
    uint32_t *words = to;
    for (uint16_t i = 0; i < link->words; i++) {
        words[i] = i == link->input    ? (pair->copies_first ? end : between)
                   : i == link->output ? (pair->copies_first ? between : end)
                                       : word_of(params, pair, link, i);
    }
}

NeutronWindowExtents neutron_chain_window(const NeutronBuffer *buffers, const void *params,
                                          const NeutronWindowExtents *window, const NeutronPair *pair) {
    NeutronWindowExtents between = *window;
    between.channel0 = 0;
    between.channel1 = buffers[between_of(params, pair)].channels;
    return between;
}
