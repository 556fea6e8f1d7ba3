/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads on one queue, for the thread sanitizer: queue MODE RUNS MICROCODE WEIGHTS MICROCODE WEIGHTS. Both programs give their
 * input of 90 bytes back. Eight threads add RUNS jobs in all, of both models; all jobs use one scratch buffer, so that two jobs at
 * once would be a data race. MODE: "served" has a thread that serves the queue, "stopped" ends it in the middle, and in "unserved" those
 * that wait run the jobs. Prints the sum of all bytes; the exit code is the number of threads that failed. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "NeutronDriver.h"
#include "host_queue.h"

enum { BYTES = 90, THREADS = 8, MODELS = 2, AHEAD = 3 };

typedef struct {
    _Alignas(16) unsigned char microcode[1 << 12];
    _Alignas(16) unsigned char weights[1 << 10];
    NeutronModelHandle handle;
} Model;

typedef struct {
    unsigned char input[BYTES], output[BYTES];
    const void *inputs[1];
    void *outputs[4];
    NeutronDataConfig data;
} Job;

static Model models[MODELS];
static unsigned runs_of_a_thread;
static atomic_uint sum;
static _Alignas(16) unsigned char scratch[128];

static size_t load(const char *path, unsigned char *to, size_t room) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    const size_t size = fread(to, 1, room, file);
    fclose(file);
    return size;
}

static const NeutronDataConfig *filled(Job *job, unsigned seed) {
    for (unsigned i = 0; i < BYTES; ++i) job->input[i] = (unsigned char)(seed * 31 + i * 7);
    memset(job->output, 0, BYTES);
    job->inputs[0] = job->input;
    job->outputs[0] = job->output;
    job->outputs[1] = scratch;
    job->outputs[2] = job->outputs[3] = NULL;
    job->data = (NeutronDataConfig){job->inputs, job->outputs, NULL, NULL};
    return &job->data;
}

static bool is_right(const Job *job) {
    unsigned bytes = 0;
    for (unsigned i = 0; i < BYTES; ++i) bytes += job->output[i];
    sum += bytes;
    return memcmp(job->input, job->output, BYTES) == 0;
}

/* Adds up to AHEAD jobs without a wait, and then waits for each; where the queue is full, the job is added with patience. */
static bool several(unsigned seed, unsigned count) {
    Job jobs[AHEAD];
    bool is_added[AHEAD];
    bool all_right = true;
    for (unsigned i = 0; i < count; ++i) {
        const NeutronModelHandle handle = models[(seed + i) % MODELS].handle;
        const NeutronDataConfig *data = filled(&jobs[i], seed + i);
        const NeutronError error = neutronRunNonBlocking(handle, data);
        is_added[i] = error == ENONE;
        if (error == ENEUTRON_QUEUE_FULL) all_right &= neutronRunQueued(handle, data) == ENONE;
        else all_right &= error == ENONE;
    }
    for (unsigned i = 0; i < count; ++i) {
        const NeutronModelHandle handle = models[(seed + i) % MODELS].handle;
        bool is_ready;
        all_right &= neutronIsReady(handle, &is_ready) == ENONE;
        if (is_added[i]) all_right &= neutronWait(handle, &jobs[i].data) == ENONE;
        all_right &= is_right(&jobs[i]);
    }
    return all_right;
}

static void *runner(void *number) {
    const unsigned own = *(const unsigned *)number;
    for (unsigned i = 0; i < runs_of_a_thread; i += AHEAD) {
        const unsigned left = runs_of_a_thread - i;
        if (!several(own * 1000 + i, left < AHEAD ? left : AHEAD)) return number;
    }
    return NULL;
}

int main(int argument_count, char **arguments) {
    pthread_t threads[THREADS];
    unsigned numbers[THREADS];
    int failed = 0;
    if (argument_count != 3 + 2 * MODELS || neutronInit() != ENONE) return 100;
    for (int i = 0; i < MODELS; ++i) {
        Model *model = &models[i];
        const NeutronModelConfig config = {model->microcode, model->weights, NULL, 60};
        load(arguments[3 + 2 * i], model->microcode, sizeof model->microcode);
        load(arguments[4 + 2 * i], model->weights, sizeof model->weights);
        if (neutronModelPrepare(&config, &model->handle) != ENONE) return 101;
    }
    const bool is_served = strcmp(arguments[1], "unserved") != 0;
    runs_of_a_thread = (unsigned)strtoul(arguments[2], NULL, 10) / THREADS;
    if (is_served ? !neutron_host_queue_start() : neutronSetQueue(neutron_host_queue()) != ENONE) return 102;
    for (unsigned i = 0; i < THREADS; ++i) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, runner, &numbers[i]) != 0) return 103;
    }
    if (strcmp(arguments[1], "stopped") == 0) neutron_host_queue_stop();
    for (unsigned i = 0; i < THREADS; ++i) {
        void *result;
        pthread_join(threads[i], &result);
        failed += result != NULL;
    }
    neutron_host_queue_stop();
    if (neutronSetQueue(NULL) != ENONE) return 104; /* a job is left */
    for (int i = 0; i < MODELS; ++i) {
        if (neutronModelUnprepare(models[i].handle) != ENONE) return 105;
    }
    printf("%u\n", sum);
    return failed;
}
