/* SPDX-License-Identifier: BSD-3-Clause */
/* Programs on given inputs, each in memory of exactly its size: exact_runs FILE.
 *
 * FILE has one case behind the other: the sizes of microcode and weights (a word each), their bytes, and the bytes of all inputs and of all
 * expected outputs. Every buffer has a block of its own, so that the address sanitizer sees one byte too many. Memory that a
 * run must write first has other bytes. Exits with 1 and the number of the case where a program is refused, or gives other outputs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "NeutronDriver.h"
#include "neutron_isa.h"

#define MAX_BINDINGS 64
#define POISON 0xA5

typedef struct {
    uint32_t microcode, weights;
} Sizes;

static uint32_t number;

static void end(const char *reason, long code) {
    fprintf(stderr, "case %u: %s %ld\n", (unsigned)number, reason, code);
    exit(1);
}

static uint8_t *block(size_t size) {
    void *memory = NULL;
    if (posix_memalign(&memory, NEUTRON_ALIGNMENT, size) != 0) end("out of memory", (long)size);
    memset(memory, POISON, size);
    return memory;
}

static uint8_t *read_block(FILE *file, size_t size) {
    uint8_t *memory = block(size);
    if (fread(memory, 1, size, file) != size) end("the file ends early", (long)size);
    return memory;
}

static void run(FILE *file, const Sizes *sizes) {
    uint8_t *microcode = read_block(file, sizes->microcode), *weights = read_block(file, sizes->weights);
    const void *given[MAX_BINDINGS];
    void *taken[MAX_BINDINGS + 3] = {NULL}, *expected[MAX_BINDINGS];
    const NeutronHeader *header = (const NeutronHeader *)(const void *)microcode;
    const NeutronBinding *bindings = (const NeutronBinding *)(const void *)(microcode + 4 * header->bindings_offset);
    const uint32_t inputs = header->input_count, outputs = header->output_count;
    const NeutronModelConfig config = {.microcode = microcode, .weights = weights};
    NeutronModelHandle handle = NULL;
    const NeutronError prepared = neutronModelPrepare(&config, &handle);
    if (prepared != ENONE) end("prepare returns", prepared);
    if (inputs > MAX_BINDINGS || outputs > MAX_BINDINGS) end("too many inputs or outputs", MAX_BINDINGS);
    for (uint32_t i = 0; i < inputs; ++i) given[i] = read_block(file, bindings[i].size);
    for (uint32_t i = 0; i < outputs; ++i) {
        expected[i] = read_block(file, bindings[inputs + i].size);
        taken[i] = block(bindings[inputs + i].size);
    }
    taken[outputs] = block(header->scratch_size);
    taken[outputs + 1] = block(header->profile_size);
    uint8_t *prefetch = block(header->prefetch_size), *state = block(header->state_size);
    if (header->state_size > 0 && neutronSetState(handle, state, header->state_size) != ENONE) end("the state is refused", 0);
    const NeutronDataConfig data = {
        .inputs = given, .outputs = taken, .scratchWeights = prefetch};
    const NeutronError error = neutronRunBlocking(handle, &data);
    if (error != ENONE) end("the run returns", error);
    for (uint32_t i = 0; i < outputs; ++i) {
        if (memcmp(taken[i], expected[i], bindings[inputs + i].size) != 0) end("differs in output", (long)i);
        free(expected[i]);
    }
    if (neutronModelUnprepare(handle) != ENONE) end("unprepare is refused", 0);
    for (uint32_t i = 0; i < inputs; ++i) free((void *)(uintptr_t)given[i]);
    for (uint32_t i = 0; i < outputs + 2; ++i) free(taken[i]);
    free(prefetch);
    free(state);
    free(weights);
    free(microcode);
}

int main(int count, char **arguments) {
    FILE *file = count == 2 ? fopen(arguments[1], "rb") : NULL;
    Sizes sizes;
    if (file == NULL) return 2;
    neutronInit();
    for (; fread(&sizes, sizeof sizes, 1, file) == 1; ++number) run(file, &sizes);
    printf("%u\n", (unsigned)number);
    return fclose(file);
}
