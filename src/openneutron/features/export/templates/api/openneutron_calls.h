/* SPDX-License-Identifier: BSD-3-Clause */
/* What openneutron.c needs to know of the model: openneutron_model.c has it. */
#ifndef OPENNEUTRON_CALLS_H
#define OPENNEUTRON_CALLS_H

#include <stdint.h>

#include "openneutron_model.h"

typedef enum { OPENNEUTRON_FROM_INPUT, OPENNEUTRON_FROM_OUTPUT, OPENNEUTRON_FROM_BETWEEN } OpenNeutronWhere;

/* A program's argument: an input or an output of the model by its index, or an offset in the memory between calls. */
typedef struct {
    OpenNeutronWhere where;
    uint32_t index;
} OpenNeutronPlace;

typedef struct {
    const uint8_t *microcode;
    const uint8_t *weights;
    const OpenNeutronPlace *inputs;
    const OpenNeutronPlace *outputs;
    uint32_t input_count;
    uint32_t output_count;
} OpenNeutronCall;

extern const OpenNeutronCall openneutron_calls[OPENNEUTRON_CALL_COUNT];

#endif
