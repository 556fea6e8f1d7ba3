/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs a program with matrix products on the NPU: run_jobs PROGRAM INPUT OUTPUT. PROGRAM is a file as fuzz_seeds.py writes it, INPUT has the
 * bytes of all inputs of each run in turn, OUTPUT gets those of all outputs of each run. The program's states are kept between the runs. The
 * NPU's driver is found as a .pte's is. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "NeutronDriver.h"
#include "host_jobs.h"
#include "neutron_isa.h"

enum { PAGE = 4096, MOST = 16 };

static void require(const char *step, NeutronError error) {
    if (error == ENONE) return;
    fprintf(stderr, "%s: %s; %s\n", step, neutronErrorText(error), neutron_host_jobs_problem());
    exit(1);
}

static void *aligned(size_t size) {
    void *memory = aligned_alloc(PAGE, (size + PAGE) / PAGE * PAGE);
    if (memory == NULL) exit(2);
    return memory;
}

static bool at_end(FILE *file) {
    const int next = getc(file);
    return next == EOF || ungetc(next, file) == EOF;
}

static void read_exactly(FILE *file, void *to, size_t size) {
    if (fread(to, 1, size, file) != size) exit(2);
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    FILE *program = fopen(arguments[1], "rb"), *input = fopen(arguments[2], "rb"), *output = fopen(arguments[3], "wb");
    if (program == NULL || input == NULL || output == NULL) return 2;
    uint32_t sizes[2];
    read_exactly(program, sizes, sizeof sizes);
    void *microcode = aligned(sizes[0]), *weights = aligned(sizes[1]);
    read_exactly(program, microcode, sizes[0]);
    read_exactly(program, weights, sizes[1]);
    const NeutronHeader *header = microcode;
    const NeutronBinding *bindings = (const NeutronBinding *)(const void *)((const uint32_t *)microcode + header->bindings_offset);

    const size_t start = (sizes[1] + PAGE - 1) / PAGE * PAGE;
    require("open", neutron_host_jobs_open());
    uint8_t *shared = neutron_host_jobs_allocate(start + header->scratch_size + PAGE);
    if (shared == NULL) require("allocate", ENEUTRON_MEMORY);
    require("place", neutron_host_jobs_place(shared, weights, sizes[1]));

    NeutronModelHandle handle;
    const NeutronModelConfig config = {microcode, shared, NULL, 0};
    require("init", neutronInit());
    require("prepare", neutronModelPrepare(&config, &handle));
    if (header->state_size != 0) require("state", neutronSetState(handle, aligned(header->state_size), header->state_size));
    void *buffers[MOST];
    const void *inputs[MOST];
    void *outputs[MOST + 3];
    for (uint32_t i = 0; i < header->input_count; i++) {
        buffers[i] = aligned(bindings[i].size);
        inputs[i] = buffers[i];
    }
    for (uint32_t i = 0; i < header->output_count; i++) outputs[i] = aligned(bindings[header->input_count + i].size);
    outputs[header->output_count] = shared + start;
    outputs[header->output_count + 1] = outputs[header->output_count + 2] = NULL;
    const NeutronDataConfig data = {inputs, outputs, NULL, aligned(header->prefetch_size)};
    do {
        for (uint32_t i = 0; i < header->input_count; i++) read_exactly(input, buffers[i], bindings[i].size);
        require("run", neutronRunBlocking(handle, &data));
        for (uint32_t i = 0; i < header->output_count; i++) {
            fwrite(outputs[i], 1, bindings[header->input_count + i].size, output);
        }
    } while (!at_end(input));
    neutronModelUnprepare(handle);
    neutron_host_jobs_release(shared);
    return fclose(output) == 0 ? 0 : 2;
}
