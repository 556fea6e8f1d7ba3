/* SPDX-License-Identifier: BSD-3-Clause */
/* A long stream in the place of a bundle's example: the first half of the golden frames, a reset, and all of them. Prints the bytes
 * that differ from the simulator's. Then each misuse of the state in turn. Exit code 0: all bytes are equal, and each misuse has its
 * error. */
#include <string.h>

#include "../src/openneutron_calls.h"
#include "NeutronDriver.h"
#include "board.h"
#include "golden.h"
#include "neutron_isa.h"
#include "openneutron.h"

static uint8_t results[OPENNEUTRON_OUTPUT_BYTES];
static void *outputs[OPENNEUTRON_OUTPUT_COUNT];
static NeutronError in_a_run;

static int ended(const char *text, int code) {
    board_print(text);
    board_print("\n");
    return code;
}

static NeutronError run_frame(uint32_t frame) {
    const void *inputs[OPENNEUTRON_INPUT_PLACES] = {NULL};
    for (uint32_t i = 0; i != OPENNEUTRON_INPUT_COUNT; ++i) {
        inputs[i] = (const uint8_t *)openneutron_golden_inputs[i] + frame * openneutron_inputs[i].size_bytes;
    }
    return openneutron_run(inputs, outputs);
}

/* Runs the first so many frames; whether all their bytes are the golden ones. */
static bool are_equal(uint32_t frames) {
    for (uint32_t frame = 0; frame < frames; ++frame) {
        if (run_frame(frame) != ENONE) return false;
        for (uint32_t i = 0; i < OPENNEUTRON_OUTPUT_COUNT; ++i) {
            const uint32_t size = openneutron_outputs[i].size_bytes;
            if (memcmp(openneutron_golden_outputs[i] + frame * size, outputs[i], size) != 0) return false;
        }
    }
    return true;
}

/* A clock that the driver reads in the middle of a run. */
static uint32_t resetting_clock(void) {
    in_a_run = openneutron_reset();
    return 0;
}

static bool a_reset_in_a_run_is_refused(void) {
    const NeutronPort resetting = {.now_seconds = resetting_clock}, plain = {NULL};
    neutronSetPort(&resetting);
    const NeutronError error = run_frame(0);
    neutronSetPort(&plain);
    return error == ENONE && in_a_run == ENEUTRON_RUNNING;
}

/* The first program by itself, with memory that does not do for its state. */
static bool an_area_that_is_too_small_is_refused(void) {
    static _Alignas(16) uint8_t memory[OPENNEUTRON_STATE_BYTES], arena[OPENNEUTRON_ARENA_BYTES];
    static _Alignas(void *) uint8_t context[NEUTRON_MODEL_CONTEXT_SIZE];
    const OpenNeutronCall *call = &openneutron_calls[0];
    const uint32_t size = ((const NeutronHeader *)(const void *)call->microcode)->state_size;
    const NeutronModelConfig config = {.microcode = call->microcode, .weights = call->weights};
    NeutronModelHandle handle = context;
    const void *inputs[OPENNEUTRON_INPUT_PLACES];
    void *given[OPENNEUTRON_OUTPUT_COUNT + 3] = {NULL};
    for (uint32_t i = 0; i < OPENNEUTRON_INPUT_COUNT; ++i) inputs[i] = openneutron_golden_inputs[i];
    memcpy(given, outputs, sizeof outputs);
    given[OPENNEUTRON_OUTPUT_COUNT] = arena;
    const NeutronDataConfig data = {inputs, given, NULL, NULL};
    return neutronModelPrepare(&config, &handle) == ENONE && neutronReset(handle) == ENEUTRON_NO_STATE &&
           neutronSetState(handle, memory, size - 1) == ENEUTRON_STATE_SIZE &&
           neutronRunBlocking(handle, &data) == ENEUTRON_NO_STATE && neutronSetState(handle, memory, size) == ENONE &&
           neutronRunBlocking(handle, &data) == ENONE &&
           memcmp(openneutron_golden_outputs[0], results, openneutron_outputs[0].size_bytes) == 0;
}

int main(void) {
    for (uint32_t i = 0, at = 0; i < OPENNEUTRON_OUTPUT_COUNT; at += openneutron_outputs[i++].size_bytes) outputs[i] = &results[at];
    board_init();
    if (openneutron_init() != ENONE) return ended("openneutron_init was refused", 1);
    if (!are_equal(openneutron_golden_frames / 2)) return ended("the first half differs", 2);
    if (openneutron_reset() != ENONE) return ended("openneutron_reset was refused", 3);
    if (!are_equal(openneutron_golden_frames)) return ended("the stream behind a reset differs", 4);
    if (!a_reset_in_a_run_is_refused()) return ended("a reset in a run is not refused", 5);
    if (!an_area_that_is_too_small_is_refused()) return ended("an area that is too small is not refused", 6);
    return ended("all bytes are equal", 0);
}
