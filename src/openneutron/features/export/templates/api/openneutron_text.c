/* SPDX-License-Identifier: BSD-3-Clause */
#include "openneutron_text.h"

/* The inputs of a run: its tokens, and the position of the first one with their number. */
enum { TOKENS, SPAN };

void openneutron_text_begin(OpenNeutronText *text, OpenNeutronInstance *instance, const OpenNeutronTextModel *model) {
    text->instance = instance;
    text->model = model;
    text->count = 0;
}

static NeutronError run(const OpenNeutronText *text, const uint32_t *tokens, uint32_t count, uint32_t position) {
    int64_t *given = openneutron_input(text->instance, TOKENS);
    int64_t *span = openneutron_input(text->instance, SPAN);
    if (given == NULL || span == NULL) return ENEUTRON_STATE;
    for (uint32_t i = 0; i < text->model->rows; ++i) given[i] = i < count ? tokens[i] : 0;
    span[0] = position;
    span[1] = count;
    return openneutron_invoke(text->instance);
}

NeutronError openneutron_text_read(OpenNeutronText *text, const uint32_t *tokens, uint32_t count) {
    const uint32_t rows = text->model->rows;
    if (count > openneutron_text_left(text)) return ENEUTRON_INDEX;
    for (uint32_t i = 0; i < count; ++i) {
        if (tokens[i] >= text->model->vocabulary) return ENEUTRON_INDEX;
    }
    for (uint32_t done = 0; done < count; done += rows) {
        const uint32_t left = count - done;
        const NeutronError error = run(text, tokens + done, left < rows ? left : rows, text->count + done);
        if (error != ENONE) return error;
    }
    text->count += count;
    return ENONE;
}

const float *openneutron_text_logits(const OpenNeutronText *text) { return openneutron_output(text->instance, 0); }

uint32_t openneutron_text_likeliest(const OpenNeutronText *text) {
    const float *logits = openneutron_text_logits(text);
    uint32_t best = 0;
    for (uint32_t i = 1; i < text->model->vocabulary; ++i) {
        if (logits[i] > logits[best]) best = i;
    }
    return best;
}

uint32_t openneutron_text_left(const OpenNeutronText *text) { return text->model->context - text->count; }

bool openneutron_text_is_end(const OpenNeutronTextModel *model, uint32_t token) {
    for (uint32_t i = 0; i < model->end_count; ++i) {
        if (model->ends[i] == token) return true;
    }
    return false;
}
