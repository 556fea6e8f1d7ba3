/* SPDX-License-Identifier: BSD-3-Clause */
/* A model without inputs, whose results are constants: the bytes of its output. Functions refuse an input. */
#include <stdio.h>

#include "openneutron_models.h"

static constants_instance model;

int main(void) {
    static uint8_t stored[CONSTANTS_OUTPUT0_BYTES];
    if (constants_invoke(&model) != ENEUTRON_STATE) return 1;
    if (constants_init(&model, openneutron_arena, sizeof openneutron_arena) != ENONE) return 2;
    if (constants_input(&model, 0) != NULL || openneutron_set_input(&model.openneutron, 0, stored)) return 3;
    if (openneutron_quantize(NULL, NULL, NULL)) return 4;
    if (!openneutron_set_output(&model.openneutron, 0, stored)) return 5;
    if (constants_invoke(&model) != ENONE) return 6;
    return fwrite(stored, 1, sizeof stored, stdout) == sizeof stored ? 0 : 7;
}
