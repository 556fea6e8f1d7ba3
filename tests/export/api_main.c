/* SPDX-License-Identifier: BSD-3-Clause */
/* The C API, driven by bytes: `real` takes float inputs, in the order in which their shapes are written, and gives float outputs alike;
 * `quantize` takes float inputs in their order in memory and gives the stored values. */
#include <stdio.h>
#include <string.h>

#include "model_prefix.h"
#include "openneutron_models.h"

enum { LONGEST = 1 << 18 };
static float real[LONGEST], arranged[LONGEST];
static OF(_instance) model;

static int read_input(const OpenNeutronTensor *tensor) {
    return fread(real, sizeof(float), tensor->elements, stdin) == tensor->elements;
}

static int quantize(void) {
    static int8_t stored[LONGEST];
    for (uint32_t i = 0; i < OF(_model).input_count; ++i) {
        const OpenNeutronTensor *tensor = &OF(_model).inputs[i];
        if (!read_input(tensor) || !openneutron_quantize(tensor, real, stored)) return 1;
        fwrite(stored, 1, tensor->size_bytes, stdout);
    }
    return 0;
}

static int run_on_real_values(void) {
    NeutronError error = OF(_init)(&model, openneutron_arena, sizeof openneutron_arena);
    for (uint32_t i = 0; i < OF(_model).input_count; ++i) {
        const OpenNeutronTensor *tensor = &OF(_model).inputs[i];
        if (!read_input(tensor)) return 1;
        openneutron_to_memory_order(tensor, real, arranged, sizeof(float));
        if (!openneutron_quantize(tensor, arranged, OF(_input)(&model, i))) return 1;
    }
    if (error == ENONE) error = OF(_invoke)(&model);
    if (error != ENONE) {
        fprintf(stderr, "%s\n", openneutron_error_text(error));
        return 1;
    }
    for (uint32_t i = 0; i < OF(_model).output_count; ++i) {
        const OpenNeutronTensor *tensor = &OF(_model).outputs[i];
        if (!openneutron_dequantize(tensor, OF(_output)(&model, i), arranged)) return 1;
        openneutron_from_memory_order(tensor, arranged, real, sizeof(float));
        fwrite(real, sizeof(float), tensor->elements, stdout);
    }
    return 0;
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    return strcmp(arguments[1], "quantize") == 0 ? quantize() : run_on_real_values();
}
