/* SPDX-License-Identifier: BSD-3-Clause */
/* What openneutron.h offers, driven by bytes: `real` takes float inputs, in the order their shapes are written, and gives
 * float outputs alike; `quantize` takes float inputs as they lie in memory and gives what is stored. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "openneutron.h"

enum { LONGEST = 1 << 18 };
static float real[LONGEST], arranged[LONGEST];
static int8_t stored[8][LONGEST];

static int read_input(uint32_t index) {
    return fread(real, sizeof(float), openneutron_inputs[index].elements, stdin) == openneutron_inputs[index].elements;
}

static int quantize(void) {
    for (uint32_t i = 0; i < OPENNEUTRON_INPUT_COUNT; ++i) {
        if (!read_input(i) || !openneutron_quantize_input(i, real, stored[0])) return 1;
        fwrite(stored[0], 1, openneutron_inputs[i].size_bytes, stdout);
    }
    return 0;
}

static int run_on_real_values(void) {
    const void *inputs[OPENNEUTRON_INPUT_COUNT];
    void *outputs[OPENNEUTRON_OUTPUT_COUNT];
    NeutronError error = openneutron_init();
    for (uint32_t i = 0; i < OPENNEUTRON_INPUT_COUNT; ++i) {
        if (!read_input(i)) return 1;
        openneutron_arrange_input(i, real, arranged, sizeof(float));
        if (!openneutron_quantize_input(i, arranged, stored[i])) return 1;
        inputs[i] = stored[i];
    }
    for (uint32_t i = 0; i < OPENNEUTRON_OUTPUT_COUNT; ++i) outputs[i] = stored[OPENNEUTRON_INPUT_COUNT + i];
    if (error == ENONE) error = openneutron_run(inputs, outputs);
    if (error != ENONE) {
        fprintf(stderr, "%s\n", openneutron_error_text(error));
        return 1;
    }
    for (uint32_t i = 0; i < OPENNEUTRON_OUTPUT_COUNT; ++i) {
        if (!openneutron_dequantize_output(i, outputs[i], arranged)) return 1;
        openneutron_arrange_output(i, arranged, real, sizeof(float));
        fwrite(real, sizeof(float), openneutron_outputs[i].elements, stdout);
    }
    return 0;
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    return strcmp(arguments[1], "quantize") == 0 ? quantize() : run_on_real_values();
}
