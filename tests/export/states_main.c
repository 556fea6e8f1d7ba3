/* SPDX-License-Identifier: BSD-3-Clause */
/* A reset before the start is refused; one after it is not, and brings the first run's outputs back. Two instances have states of their
 * own. */
#include <string.h>

#include "openneutron_models.h"

static stream_instance model, other;
static int8_t first[STREAM_OUTPUT0_BYTES];

static NeutronError run(stream_instance *instance) {
    int8_t *frame = stream_input(instance, 0);
    for (uint32_t i = 0; i < STREAM_INPUT0_BYTES; ++i) frame[i] = (int8_t)(37 * i - 90);
    return stream_invoke(instance);
}

static int differs(const stream_instance *instance) { return memcmp(first, stream_output(instance, 0), sizeof first) != 0; }

int main(void) {
    if (openneutron_reset(&model.openneutron) != ENEUTRON_STATE) return 1;
    if (stream_init(&model, openneutron_arena, sizeof openneutron_arena) != ENONE || run(&model) != ENONE) return 2;
    memcpy(first, stream_output(&model, 0), sizeof first);
    if (run(&model) != ENONE || !differs(&model)) return 3;
    if (openneutron_reset(&model.openneutron) != ENONE || run(&model) != ENONE || differs(&model)) return 4;
    if (stream_init(&other, openneutron_arena, sizeof openneutron_arena) != ENONE) return 5;
    if (run(&other) != ENONE || differs(&other)) return 6;
    if (run(&model) != ENONE || !differs(&model)) return 7;
    return 0;
}
