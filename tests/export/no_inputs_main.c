/* SPDX-License-Identifier: BSD-3-Clause */
/* A model without inputs, whose results are constants: the bytes of its output. Everything that names an input says no. */
#include <stddef.h>
#include <stdio.h>

#include "openneutron.h"

int main(void) {
    static int8_t stored[OPENNEUTRON_OUTPUT_BYTES];
    void *outputs[OPENNEUTRON_OUTPUT_COUNT] = {stored};
    float value = 0;
    if (openneutron_quantize_input(0, &value, stored)) return 1;
    openneutron_arrange_input(0, &value, stored, 1);
    if (openneutron_init() != ENONE) return 2;
    if (openneutron_run(NULL, NULL) != ENEUTRON_NULL) return 3;
    if (openneutron_run(NULL, outputs) != ENONE) return 4;
    return fwrite(stored, 1, sizeof stored, stdout) == sizeof stored ? 0 : 5;
}
