/* SPDX-License-Identifier: BSD-3-Clause */
/* Kernel calls that several threads compute: parts PROGRAM... A PROGRAM file is two words (bytes of microcode,
 * bytes of weights) and the two blobs. Each program runs in one thread, in two to four, and in three for two callers at once. The exit code
 * is 1 where results differ. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../runtime/random_numbers.h"
#include "host_threads.h"
#include "neutron_isa.h"

enum { MOST_THREADS = 4, CALLERS = 2 };

typedef struct {
    const NeutronHeader *header;
    const NeutronBinding *bindings;
    NeutronModelHandle handle;
} Model;

/* The memory of a run: inputs, outputs, then scratch, profile and debug. */
typedef struct {
    const Model *model;
    const void *inputs[256];
    void *outputs[256 + 3];
    void *prefetch, *state;
    NeutronError error;
} Buffers;

static void *allocated(size_t size) {
    const size_t whole = (size + 31) & ~(size_t)15;
    void *memory = aligned_alloc(16, whole);
    if (memory == NULL) exit(100);
    memset(memory, 0, whole);
    return memory;
}

static void prepare(const char *path, Model *model) {
    uint32_t sizes[2];
    FILE *file = fopen(path, "rb");
    if (file == NULL || fread(sizes, sizeof sizes, 1, file) != 1) exit(101);
    void *blobs[2];
    for (int i = 0; i < 2; ++i) {
        blobs[i] = allocated(sizes[i]);
        if (fread(blobs[i], 1, sizes[i], file) != sizes[i]) exit(102);
    }
    fclose(file);
    const NeutronModelConfig config = {blobs[0], blobs[1], NULL, 0};
    model->handle = NULL;
    if (neutronModelPrepare(&config, &model->handle) != ENONE) exit(103);
    model->header = blobs[0];
    model->bindings = (const void *)((const uint32_t *)blobs[0] + model->header->bindings_offset);
}

static Buffers *make_buffers(const Model *model) {
    const NeutronHeader *header = model->header;
    Buffers *made = allocated(sizeof *made);
    made->model = model;
    random_state = 1;
    for (uint32_t i = 0; i < header->input_count; ++i) {
        uint8_t *input = allocated(model->bindings[i].size);
        for (uint32_t at = 0; at < model->bindings[i].size; ++at) input[at] = (uint8_t)random_word();
        made->inputs[i] = input;
    }
    for (uint32_t i = 0; i < header->output_count; ++i) {
        made->outputs[i] = allocated(model->bindings[header->input_count + i].size);
    }
    made->outputs[header->output_count] = allocated(header->scratch_size);
    made->outputs[header->output_count + 1] = allocated(header->profile_size);
    made->prefetch = allocated(header->prefetch_size);
    return made;
}

static void *run(void *context) {
    Buffers *buffers = context;
    const NeutronDataConfig data = {buffers->inputs, buffers->outputs, NULL, buffers->prefetch};
    buffers->error = neutronRunBlocking(buffers->model->handle, &data);
    return NULL;
}

static bool are_equal(const Buffers *a, const Buffers *b) {
    const Model *model = a->model;
    bool equal = a->error == b->error;
    for (uint32_t i = 0; equal && a->error == ENONE && i < model->header->output_count; ++i) {
        const size_t size = model->bindings[model->header->input_count + i].size;
        equal = memcmp(a->outputs[i], b->outputs[i], size) == 0;
    }
    return equal;
}

static void reset(const Model *model) {
    if (model->header->state_size > 0 && neutronReset(model->handle) != ENONE) exit(104);
}

static bool is_right(const char *path) {
    Model model;
    prepare(path, &model);
    void *state = allocated(model.header->state_size);
    if (model.header->state_size > 0 && neutronSetState(model.handle, state, model.header->state_size) != ENONE) exit(105);
    const size_t size = neutronGetThreadScratchSize(model.handle);
    void *scratch = allocated(size * (MOST_THREADS - 1));
    Buffers *want = make_buffers(&model), *got[CALLERS] = {make_buffers(&model), make_buffers(&model)};
    run(want);
    bool equal = true;
    for (uint32_t threads = 2; threads <= MOST_THREADS; ++threads) {
        const NeutronThreads all = {threads, 1, neutron_host_threads_parallel, scratch, size}; /* small calls too */
        if (neutron_host_threads_set(model.handle, threads, scratch, size) != ENONE) exit(106);
        if (neutronSetThreads(model.handle, &all) != ENONE) exit(106);
        reset(&model);
        run(got[0]);
        equal = equal && are_equal(got[0], want);
    }
    if (model.header->state_size == 0) {
        pthread_t caller;
        if (pthread_create(&caller, NULL, run, got[1]) != 0) exit(107);
        run(got[0]);
        pthread_join(caller, NULL);
        equal = equal && are_equal(got[0], want) && are_equal(got[1], want);
    }
    return neutronModelUnprepare(model.handle) == ENONE && equal;
}

int main(int argument_count, char **arguments) {
    int differing = 0;
    neutronInit();
    for (int i = 1; i < argument_count; ++i) {
        if (is_right(arguments[i])) continue;
        printf("%s\n", arguments[i]);
        differing = 1;
    }
    neutron_host_threads_stop();
    return differing;
}
