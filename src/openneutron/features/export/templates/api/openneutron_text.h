/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts of language models: tokens in, tokens out. A tokenizer is the application's.
 *
 *     OpenNeutronText text;
 *     openneutron_text_begin(&text, &model.openneutron, &model_text);
 *     NeutronError error = openneutron_text_read(&text, prompt, count);
 *     while (error == ENONE) {
 *         const uint32_t token = openneutron_text_likeliest(&text);
 *         if (openneutron_text_is_end(&model_text, token) || openneutron_text_left(&text) == 0) break;
 *         use(token);
 *         error = openneutron_text_read(&text, &token, 1);
 *     }
 */
#ifndef OPENNEUTRON_TEXT_H
#define OPENNEUTRON_TEXT_H

#include "openneutron.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The facts of a language model. */
typedef struct {
    uint32_t rows;       /* the most tokens of a run */
    uint32_t context;    /* the positions of the cache, the most tokens of a text */
    uint32_t vocabulary; /* tokens are 0 to vocabulary - 1 */
    uint32_t end_count;
    const uint32_t *ends; /* the tokens that end a text */
} OpenNeutronTextModel;

/* A text in the cache of an instance, which has one text at a time. */
typedef struct {
    OpenNeutronInstance *instance;
    const OpenNeutronTextModel *model;
    uint32_t count; /* tokens that were read */
} OpenNeutronText;

/* Begins a text in an instance that openneutron_init has set up. */
void openneutron_text_begin(OpenNeutronText *text, OpenNeutronInstance *instance, const OpenNeutronTextModel *model);

/* Reads tokens behind those that were read, in runs of at most model->rows tokens. ENEUTRON_INDEX: a token is outside of the vocabulary, or
 * the cache has too few positions, and nothing was read. After another error the text is as before the call, too. */
NeutronError openneutron_text_read(OpenNeutronText *text, const uint32_t *tokens, uint32_t count);

/* The logits of the last token that was read, as many as the vocabulary has tokens, until the next run in the same arena. */
const float *openneutron_text_logits(const OpenNeutronText *text);

/* The token with the largest logit, the first of equal ones. */
uint32_t openneutron_text_likeliest(const OpenNeutronText *text);

/* The positions of the cache that are left. */
uint32_t openneutron_text_left(const OpenNeutronText *text);

bool openneutron_text_is_end(const OpenNeutronTextModel *model, uint32_t token);

#ifdef __cplusplus
}
#endif

#endif
