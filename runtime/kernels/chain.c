/* SPDX-License-Identifier: BSD-3-Clause */
/* See chain.h. */
#include "chain.h"

enum { CHAIN_WORDS = sizeof(NeutronChain) / sizeof(uint32_t) };

const uint32_t *neutron_chain_first(const void *params) { return (const uint32_t *)params + CHAIN_WORDS; }

static uint32_t between_of(const void *params, const NeutronLink *first) { return neutron_chain_first(params)[first->output]; }

/* A word of the second kernel, which is neither its input nor its output. */
static uint32_t second_word(const void *params, const NeutronLink *first, const NeutronLink *second, uint16_t word) {
    const int ends = (second->input < word) + (second->output < word);
    return neutron_chain_first(params)[first->words + word - ends];
}

bool neutron_chain_is_sound(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window,
                            const NeutronLink *first, const NeutronLink *second) {
    const NeutronChain *p = params;
    const NeutronBuffer *between = neutron_checked_buffer(program, between_of(params, first), true);
    if (between == NULL) return false;
    for (uint16_t i = 0; i < 2 && second->stride != 0; i++) {
        if (second_word(params, first, second, (uint16_t)(second->stride + i)) != 1) return false;
    }
    const uint32_t own = neutron_chain_first(params)[first->taps];
    const uint32_t behind = second_word(params, first, second, second->taps);
    const int64_t outputs = (int64_t)window->channel1 - window->channel0;
    if (p->work < 1 || outputs < 1 || own > INT32_MAX || behind > (uint32_t)p->work) return false;
    /* Neither product is beyond 2^62. */
    return (int64_t)between->channels * own <= outputs * (p->work - (int32_t)behind);
}

NeutronWindowExtents neutron_chain_window(const NeutronBuffer *buffers, const void *params,
                                          const NeutronWindowExtents *window, const NeutronLink *first) {
    NeutronWindowExtents between = *window;
    between.channel0 = 0;
    between.channel1 = buffers[between_of(params, first)].channels;
    return between;
}

void neutron_chain_second(void *to, const void *params, const NeutronLink *first, const NeutronLink *second) {
    const uint32_t *rest = neutron_chain_first(params) + first->words;
    uint32_t *words = to;
    for (uint16_t i = 0; i < second->words; i++) {
        words[i] = i == second->input    ? between_of(params, first)
                   : i == second->output ? ((const NeutronChain *)params)->output
                                         : *rest++;
    }
}
