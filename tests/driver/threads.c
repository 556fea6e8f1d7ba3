/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver in several threads at once, for the thread sanitizer: threads MICROCODE WEIGHTS MICROCODE WEIGHTS. Both programs
 * give their input of 90 bytes back. Four threads run two handles, two threads each, with buffers of their own; a fifth
 * checks, prepares, traces, runs and unprepares models of its own. The exit code is the number of threads that failed. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "NeutronDriver.h"
#include "neutron_isa.h"

enum { BYTES = 90, RUNS = 200, RUNNERS = 4, PREPARED = 2 };

typedef struct {
    _Alignas(16) unsigned char microcode[1 << 12];
    _Alignas(16) unsigned char weights[1 << 10];
    size_t microcode_size, weights_size;
    NeutronModelConfig config;
    NeutronModelHandle handle;
} Model;

static Model models[PREPARED];

static size_t load(const char *path, unsigned char *to, size_t room) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    const size_t size = fread(to, 1, room, file);
    fclose(file);
    return size;
}

/* Whether a run with this seed gives its input back. */
static int runs(NeutronModelHandle handle, unsigned seed) {
#ifdef SHARED_SCRATCH /* what must not be */
    static
#endif
        _Alignas(16) unsigned char scratch[128];
    unsigned char input[BYTES], output[BYTES] = {0};
    for (unsigned i = 0; i < BYTES; ++i) input[i] = (unsigned char)(seed * 31 + i * 7);
    const void *inputs[] = {input};
    void *outputs[] = {output, scratch, NULL, NULL};
    const NeutronDataConfig data = {inputs, outputs, NULL, NULL};
    return neutronRunBlocking(handle, &data) == ENONE && memcmp(input, output, BYTES) == 0;
}

static void *runner(void *number) {
    const unsigned own = *(const unsigned *)number;
    for (unsigned i = 0; i < RUNS; ++i) {
        if (!runs(models[own % PREPARED].handle, own + i)) return number;
    }
    return NULL;
}

static void count(void *user, uint32_t operator_index, uint32_t kernel_id, uint32_t cycles) {
    (void)operator_index, (void)kernel_id, (void)cycles;
    ++*(unsigned *)user;
}

static void *preparer(void *number) {
    for (unsigned i = 0; i < RUNS; ++i) {
        const Model *model = &models[i % PREPARED];
        unsigned calls = 0;
        const NeutronTraceConfig trace = {.traceConfig = TRACE_CONFIG_KERNEL_LEVEL, .afterCall = count, .user = &calls};
        NeutronModelHandle handle = NULL;
        uint32_t detail;
        if (neutronModelCheck(&model->config, model->microcode_size, model->weights_size, &detail) != ENONE ||
            neutronModelPrepare(&model->config, &handle) != ENONE || neutronSetTrace(handle, &trace) != ENONE ||
            !runs(handle, i) || calls == 0 || neutronModelUnprepare(handle) != ENONE) {
            return number;
        }
    }
    return NULL;
}

int main(int argument_count, char **arguments) {
    pthread_t threads[RUNNERS + 1];
    unsigned numbers[RUNNERS + 1];
    int failed = 0;
    if (argument_count != 1 + 2 * PREPARED || neutronInit() != ENONE) return 100;
    for (int i = 0; i < PREPARED; ++i) {
        Model *model = &models[i];
        model->microcode_size = load(arguments[1 + 2 * i], model->microcode, sizeof model->microcode);
        model->weights_size = load(arguments[2 + 2 * i], model->weights, sizeof model->weights);
        model->config = (NeutronModelConfig){model->microcode, model->weights, NULL, 60};
        if (neutronModelPrepare(&model->config, &model->handle) != ENONE) return 101;
    }
    for (unsigned i = 0; i <= RUNNERS; ++i) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, i < RUNNERS ? runner : preparer, &numbers[i]) != 0) return 102;
    }
    for (unsigned i = 0; i <= RUNNERS; ++i) {
        void *result;
        pthread_join(threads[i], &result);
        failed += result != NULL;
    }
    for (int i = 0; i < PREPARED; ++i) {
        if (neutronModelUnprepare(models[i].handle) != ENONE) return 103;
    }
    return failed;
}
