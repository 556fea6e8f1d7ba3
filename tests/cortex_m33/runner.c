/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs on a Cortex-M33, with the driver and its portable kernels as they are built for the chip. Reads cases from the
 * file `cases` (semihosting): words bytes of microcode, of weights, of the input and of the output, then microcode,
 * weights and input. Writes each output to the file `outputs`; the exit code is the number of the case that failed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "NeutronDriver.h"
#include "neutron_isa.h"

/* Secure mode's vectors: the stack, and newlib's start. */
extern uint8_t __stack_top;
extern void _start(void);
__attribute__((section(".vectors"), used)) static const void *const vectors[2] = {&__stack_top, (const void *)_start};

static _Alignas(16) uint8_t microcode[1 << 16], weights[1 << 19], scratch[1 << 19], prefetch[1 << 19];
static uint8_t profile[1 << 12], inputs[1 << 18], outputs[1 << 18];

static int run(void) {
    const NeutronHeader *header = (const NeutronHeader *)(const void *)microcode;
    const NeutronBinding *bindings = (const NeutronBinding *)(const void *)(microcode + 4 * header->bindings_offset);
    const NeutronModelConfig config = {microcode, weights, NULL, 0};
    const void *input_pointers[16];
    void *output_pointers[16 + 3] = {NULL};
    NeutronModelHandle handle = NULL;
    if (header->scratch_size > sizeof scratch || header->prefetch_size > sizeof prefetch) return 1;
    if (header->profile_size > sizeof profile || header->input_count > 16 || header->output_count > 16) return 1;
    for (uint32_t i = 0, at = 0; i < header->input_count; at += bindings[i++].size) input_pointers[i] = inputs + at;
    bindings += header->input_count;
    for (uint32_t i = 0, at = 0; i < header->output_count; at += bindings[i++].size) output_pointers[i] = outputs + at;
    output_pointers[header->output_count] = scratch;
    output_pointers[header->output_count + 1] = profile;
    const NeutronDataConfig data = {input_pointers, output_pointers, NULL, prefetch};
    if (neutronModelPrepare(&config, &handle) != ENONE) return 1;
    const NeutronError error = neutronRunBlocking(handle, &data);
    neutronModelUnprepare(handle);
    return error != ENONE;
}

int main(void) {
    FILE *cases = fopen("cases", "rb");
    FILE *results = fopen("outputs", "wb");
    uint32_t sizes[4];
    int number = 1;
    if (cases == NULL || results == NULL) return 255;
    neutronInit();
    for (; fread(sizes, sizeof sizes, 1, cases) == 1; ++number) {
        if (sizes[0] > sizeof microcode || sizes[1] > sizeof weights || sizes[2] > sizeof inputs ||
            sizes[3] > sizeof outputs) {
            return number;
        }
        if (fread(microcode, 1, sizes[0], cases) != sizes[0] || fread(weights, 1, sizes[1], cases) != sizes[1] ||
            fread(inputs, 1, sizes[2], cases) != sizes[2]) {
            return number;
        }
        if (run() != 0) return number;
        if (fwrite(outputs, 1, sizes[3], results) != sizes[3]) return number;
    }
    fclose(results);
    return 0;
}
