/* SPDX-License-Identifier: BSD-3-Clause */
/* A reset before openneutron_init is refused; one after it is not, and brings the first run's outputs back. */
#include <string.h>

#include "NeutronErrors.h"
#include "openneutron.h"

static int8_t frame[OPENNEUTRON_INPUT_BYTES], first[OPENNEUTRON_OUTPUT_BYTES], second[OPENNEUTRON_OUTPUT_BYTES];

static int differs(const int8_t *result) { return memcmp(first, result, sizeof first) != 0; }

int main(void) {
    const void *inputs[] = {frame};
    void *outputs[] = {first};
    for (uint32_t i = 0; i < sizeof frame; ++i) frame[i] = (int8_t)(37 * i - 90);
    if (openneutron_reset() != ENEUTRON_STATE) return 1;
    if (openneutron_init() != ENONE || openneutron_run(inputs, outputs) != ENONE) return 2;
    outputs[0] = second;
    if (openneutron_run(inputs, outputs) != ENONE || !differs(second)) return 3;
    if (openneutron_reset() != ENONE || openneutron_run(inputs, outputs) != ENONE || differs(second)) return 4;
    return 0;
}
