/* SPDX-License-Identifier: BSD-3-Clause */
/* A program from a file, run by a driver without a heap: no_heap MICROCODE WEIGHTS. Prints the output of a run on the
 * input 0, 1, 2 ... as hexadecimal bytes; the exit code says which step failed. */
#include <stdio.h>

#include "NeutronDriver.h"
#include "neutron_isa.h"

static _Alignas(16) unsigned char microcode[1 << 16], weights[1 << 16], scratch[1 << 12];
static unsigned char input[1 << 12], output[1 << 12];
static _Alignas(8) unsigned char context[64];

static int load(const char *path, unsigned char *to, size_t room) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return -1;
    const size_t size = fread(to, 1, room, file);
    fclose(file);
    return size > 0 ? 0 : -1;
}

int main(int count, char **arguments) {
    if (count != 3 || load(arguments[1], microcode, sizeof microcode) || load(arguments[2], weights, sizeof weights)) {
        return 1;
    }
    const NeutronHeader *header = (const NeutronHeader *)(const void *)microcode;
    const NeutronBinding *bindings = (const NeutronBinding *)(const void *)(microcode + 4 * header->bindings_offset);
    const NeutronModelConfig config = {microcode, weights, NULL, 0};
    NeutronModelHandle handle = NULL;
    for (unsigned i = 0; i < sizeof input; ++i) input[i] = (unsigned char)i;
    neutronInit();
    if (neutronModelPrepare(&config, &handle) != ENEUTRON_NULL) return 2;
    if (neutronGetModelContextSize() > sizeof context - 8) return 3;
    handle = context + 4;
    if (neutronModelPrepare(&config, &handle) != ENEUTRON_ALIGNMENT) return 4;
    handle = context;
    if (neutronModelPrepare(&config, &handle) != ENONE || handle != context) return 5;
    const void *inputs[] = {input};
    void *outputs[] = {output, scratch, NULL, NULL};
    const NeutronDataConfig data = {inputs, outputs, NULL, NULL};
    if (neutronRunBlocking(handle, &data) != ENONE) return 6;
    for (unsigned i = 0; i < bindings[1].size; ++i) printf("%02x", output[i]);
    if (neutronModelUnprepare(handle) != ENONE) return 7;
    return neutronRunBlocking(handle, &data) == ENEUTRON_HANDLE ? 0 : 8;
}
