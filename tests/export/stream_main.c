/* SPDX-License-Identifier: BSD-3-Clause */
/* A long stream in the place of a bundle's main: the first half of the golden frames, a reset, and all of them. Prints the bytes
 * that differ from the simulator's. Then each misuse of the state in turn. Exit code 0: all bytes are equal, and each misuse has its
 * error. */
#include <string.h>

#include "NeutronDriver.h"
#include "board.h"
#include "golden.h"
#include "neutron_isa.h"

static const Golden *const of = &golden[0];
static NeutronError in_a_run;

static int ended(const char *text, int code) {
    board_print(text);
    board_print("\n");
    return code;
}

static NeutronError run_frame(uint32_t frame) {
    const OpenNeutronModel *model = of->instance->model;
    for (uint32_t i = 0; i < model->input_count; ++i) {
        const uint32_t size = model->inputs[i].size_bytes;
        memcpy(openneutron_input(of->instance, i), (const uint8_t *)of->inputs[i] + frame * size, size);
    }
    return openneutron_invoke(of->instance);
}

/* Runs the first so many frames; whether all their bytes are the golden ones. */
static bool are_equal(uint32_t frames) {
    const OpenNeutronModel *model = of->instance->model;
    for (uint32_t frame = 0; frame < frames; ++frame) {
        if (run_frame(frame) != ENONE) return false;
        for (uint32_t i = 0; i < model->output_count; ++i) {
            const uint32_t size = model->outputs[i].size_bytes;
            const uint8_t *wanted = (const uint8_t *)of->outputs[i] + frame * size;
            if (memcmp(wanted, openneutron_output(of->instance, i), size) != 0) return false;
        }
    }
    return true;
}

/* A clock that the driver reads in the middle of a run. */
static uint32_t resetting_clock(void) {
    in_a_run = openneutron_reset(of->instance);
    return 0;
}

static bool a_reset_in_a_run_is_refused(void) {
    const NeutronPort resetting = {.now_seconds = resetting_clock}, plain = {NULL};
    neutronSetPort(&resetting);
    const NeutronError error = run_frame(0);
    neutronSetPort(&plain);
    return error == ENONE && in_a_run == ENEUTRON_RUNNING;
}

/* The first program by itself, with memory that is too small for its state. */
static bool an_area_that_is_too_small_is_refused(void) {
    static OPENNEUTRON_ALIGNED uint8_t memory[1024];
    static void *context[8];
    const OpenNeutronCall *call = &of->instance->model->calls[0];
    const uint32_t size = ((const NeutronHeader *)call->microcode)->state_size;
    const NeutronModelConfig config = {.microcode = call->microcode, .weights = call->weights};
    NeutronModelHandle handle = context;
    const void *inputs[1] = {of->inputs[0]};
    void *given[4] = {of->instance->outputs[0], openneutron_arena, NULL, NULL};
    const NeutronDataConfig data = {inputs, given, NULL, NULL};
    return size <= sizeof memory && neutronModelPrepare(&config, &handle) == ENONE && neutronReset(handle) == ENEUTRON_NO_STATE &&
           neutronSetState(handle, memory, size - 1) == ENEUTRON_STATE_SIZE &&
           neutronRunBlocking(handle, &data) == ENEUTRON_NO_STATE && neutronSetState(handle, memory, size) == ENONE &&
           neutronRunBlocking(handle, &data) == ENONE &&
           memcmp(of->outputs[0], given[0], of->instance->model->outputs[0].size_bytes) == 0;
}

int main(void) {
    board_init();
    if (of->init() != ENONE) return ended("init was refused", 1);
    if (!are_equal(of->frames / 2)) return ended("the first half differs", 2);
    if (openneutron_reset(of->instance) != ENONE) return ended("openneutron_reset was refused", 3);
    if (!are_equal(of->frames)) return ended("the stream behind a reset differs", 4);
    if (!a_reset_in_a_run_is_refused()) return ended("a reset in a run is not refused", 5);
    if (!an_area_that_is_too_small_is_refused()) return ended("an area that is too small is not refused", 6);
    return ended("all bytes are equal", 0);
}
