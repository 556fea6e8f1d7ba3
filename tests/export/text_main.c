/* SPDX-License-Identifier: BSD-3-Clause */
/* A text that does not fit is refused, and leaves the text as it was; its end is known; runs of several tokens give what single ones do. */
#include <string.h>

#include "openneutron_models.h"

static decoder_instance model;
static float logits[DECODER_VOCABULARY];

int main(void) {
    uint32_t prompt[DECODER_CONTEXT + 1];
    OpenNeutronText text;
    for (uint32_t i = 0; i <= DECODER_CONTEXT; ++i) prompt[i] = 7 * i % DECODER_VOCABULARY;
    openneutron_text_begin(&text, &model.openneutron, &decoder_text);
    if (openneutron_text_read(&text, prompt, 1) != ENEUTRON_STATE || text.count != 0) return 1;
    if (decoder_init(&model, openneutron_arena, sizeof openneutron_arena) != ENONE) return 2;
    if (openneutron_text_read(&text, prompt, DECODER_CONTEXT + 1) != ENEUTRON_INDEX || text.count != 0) return 3;
    prompt[DECODER_ROWS] = DECODER_VOCABULARY;
    if (openneutron_text_read(&text, prompt, DECODER_ROWS + 1) != ENEUTRON_INDEX || text.count != 0) return 4;
    prompt[DECODER_ROWS] = 0;
    for (uint32_t i = 0; i < DECODER_CONTEXT; ++i) {
        if (openneutron_text_read(&text, prompt + i, 1) != ENONE) return 5;
    }
    memcpy(logits, openneutron_text_logits(&text), sizeof logits);
    const uint32_t likeliest = openneutron_text_likeliest(&text);
    for (uint32_t i = 0; i < DECODER_VOCABULARY; ++i) {
        if (logits[i] > logits[likeliest] || (i < likeliest && logits[i] == logits[likeliest])) return 6;
    }
    if (openneutron_text_left(&text) != 0 || openneutron_text_read(&text, prompt, 1) != ENEUTRON_INDEX) return 7;
    openneutron_text_begin(&text, &model.openneutron, &decoder_text);
    if (openneutron_text_read(&text, prompt, DECODER_CONTEXT) != ENONE || text.count != DECODER_CONTEXT) return 8;
    if (memcmp(logits, openneutron_text_logits(&text), sizeof logits) != 0) return 9;
    return openneutron_text_is_end(&decoder_text, 3) && !openneutron_text_is_end(&decoder_text, 2) ? 0 : 10;
}
