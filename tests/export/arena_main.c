/* SPDX-License-Identifier: BSD-3-Clause */
/* Arenas of the application: each misuse has its error, two instances run in two threads with arenas of their own, and two models run one
 * after the other in one arena. Exit code 0: all outputs are those of the simulator. */
#include <pthread.h>
#include <string.h>

#include "golden.h"

enum { RUNS = 50 };

static OPENNEUTRON_ALIGNED uint8_t arenas[2][FIRST_ARENA_BYTES];
static first_instance first[2];
static second_instance second;

static const Golden *const first_golden = &golden[0], *const second_golden = &golden[1];

static int misuses(void) {
    OpenNeutronInstance *shared = &first[0].openneutron;
    if (first_invoke(&first[0]) != ENEUTRON_STATE || first_input(&first[0], 0) != NULL) return 1;
    if (first_init(&first[0], NULL, FIRST_ARENA_BYTES) != ENEUTRON_NULL) return 2;
    if (first_init(&first[0], arenas[0] + 4, FIRST_ARENA_BYTES) != ENEUTRON_ALIGNMENT) return 3;
    if (first_init(&first[0], arenas[0], FIRST_ARENA_WORK_BYTES - 1) != ENEUTRON_MEMORY) return 4;
    if (first_invoke(&first[0]) != ENEUTRON_STATE) return 5;
    /* The working memory alone: the inputs and outputs are the application's. */
    static uint8_t result[FIRST_OUTPUT0_BYTES + 1];
    if (FIRST_ARENA_WORK_BYTES >= FIRST_ARENA_BYTES) return 6;
    if (first_init(&first[0], arenas[0], FIRST_ARENA_WORK_BYTES) != ENONE || first_invoke(&first[0]) != ENEUTRON_NULL) return 7;
    if (!openneutron_set_input(shared, 0, first_golden->inputs[0]) || !openneutron_set_output(shared, 0, result + 1)) return 8;
    if (openneutron_set_input(shared, 1, result) || openneutron_set_output(shared, 1, result)) return 9;
    if (first_invoke(&first[0]) != ENONE || memcmp(result + 1, first_golden->outputs[0], FIRST_OUTPUT0_BYTES) != 0) return 10;
    return 0;
}

static void *run_often(void *number) {
    const size_t own = (size_t)(uintptr_t)number;
    if (first_init(&first[own], arenas[own], sizeof arenas[own]) != ENONE) return number;
    for (int i = 0; i < RUNS; ++i) {
        memcpy(first_input(&first[own], 0), first_golden->inputs[0], FIRST_INPUT0_BYTES);
        if (first_invoke(&first[own]) != ENONE) return NULL;
        if (memcmp(first_output(&first[own], 0), first_golden->outputs[0], FIRST_OUTPUT0_BYTES) != 0) return NULL;
    }
    return &first[own];
}

static int in_threads(void) {
    pthread_t thread;
    void *other = NULL;
    if (pthread_create(&thread, NULL, run_often, (void *)1) != 0) return 20;
    const void *own = run_often(NULL);
    if (pthread_join(thread, &other) != 0 || own != &first[0] || other != &first[1]) return 21;
    return 0;
}

static int in_one_arena(void) {
    if (first_init(&first[0], openneutron_arena, sizeof openneutron_arena) != ENONE) return 30;
    if (second_init(&second, openneutron_arena, sizeof openneutron_arena) != ENONE) return 31;
    for (int i = 0; i < 2; ++i) {
        memcpy(first_input(&first[0], 0), first_golden->inputs[0], FIRST_INPUT0_BYTES);
        if (first_invoke(&first[0]) != ENONE) return 32;
        if (memcmp(first_output(&first[0], 0), first_golden->outputs[0], FIRST_OUTPUT0_BYTES) != 0) return 33;
        memcpy(second_input(&second, 0), second_golden->inputs[0], SECOND_INPUT0_BYTES);
        if (second_invoke(&second) != ENONE) return 34;
        if (memcmp(second_output(&second, 0), second_golden->outputs[0], SECOND_OUTPUT0_BYTES) != 0) return 35;
    }
    return 0;
}

int main(void) {
    int failed = misuses();
    if (failed == 0) failed = in_threads();
    return failed == 0 ? in_one_arena() : failed;
}
