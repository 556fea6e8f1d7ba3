/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs the model on the golden inputs and compares with the golden outputs, which the simulator computed when this folder
 * was exported. A model compiled with profiling prints the time of each kernel call. Exit code 0: all bytes are equal. 1: some are not, or the driver refused. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "NeutronDriver.h"
#include "board.h"
#include "golden.h"
#include "openneutron.h"

/* Each output in a place of its own, behind the other. */
static uint8_t results[OPENNEUTRON_OUTPUT_BYTES];

static void print_number(uint32_t number) {
    char digits[11];
    uint32_t at = sizeof digits - 1;
    digits[at] = '\0';
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    board_print(&digits[at]);
}

static int refused(const char *step, NeutronError error) {
    board_print(step);
    board_print(": ");
    board_print(openneutron_error_text(error));
    board_print("\n");
    return 1;
}

/* The number of bytes of an output that differ in each run, summed over the runs. */
static uint32_t differences[OPENNEUTRON_OUTPUT_COUNT];

static void compare(uint32_t frame, uint32_t index, const uint8_t *found) {
    const uint32_t size = openneutron_outputs[index].size_bytes;
    const uint8_t *wanted = openneutron_golden_outputs[index] + frame * size;
    for (uint32_t i = 0; i < size; ++i) differences[index] += found[i] != wanted[i];
}

/* Prints how an output compares in all runs; the number of bytes that differ. */
static uint32_t print_comparison(uint32_t index, uint32_t frames) {
    const uint32_t size = openneutron_outputs[index].size_bytes * frames;
    board_print(openneutron_outputs[index].name);
    board_print(": ");
    print_number(size - differences[index]);
    board_print(" of ");
    print_number(size);
    board_print(" bytes as expected\n");
    return differences[index];
}

/* One run on the golden inputs of a frame. */
static NeutronError run_frame(uint32_t frame, void *const outputs[]) {
    const void *inputs[OPENNEUTRON_INPUT_PLACES] = {NULL};
    for (uint32_t i = 0; i != OPENNEUTRON_INPUT_COUNT; ++i) { /* a model may have none */
        inputs[i] = (const uint8_t *)openneutron_golden_inputs[i] + frame * openneutron_inputs[i].size_bytes;
    }
    const NeutronError error = openneutron_run(inputs, outputs);
    for (uint32_t i = 0; error == ENONE && i < OPENNEUTRON_OUTPUT_COUNT; ++i) compare(frame, i, outputs[i]);
    return error;
}

#if OPENNEUTRON_PROFILE_BYTES > 0
static void print_row(const uint32_t *numbers, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
        print_number(numbers[i]);
        board_print(i + 1 < count ? "," : "\n");
    }
}

/* Each kernel call with its time, for `openneutron profile --from CSV MODEL`. */
static void print_profile(void) {
    uint32_t rows = 0;
    board_print("openneutron-profile,1,");
    board_print(board_counter());
    board_print("\nprogram,checksum,call,kernel,time\n");
    for (uint32_t program = 0; program < OPENNEUTRON_CALL_COUNT; ++program) {
        const NeutronEvent *events = openneutron_profile_events(program);
        const uint32_t checksum = openneutron_program_checksum(program);
        for (uint32_t i = 0; i < OPENNEUTRON_PROFILE_BYTES / sizeof *events && events[i].start.opCode != 0; ++i, ++rows) {
            const uint32_t time = events[i].stop.time - events[i].start.time;
            print_row((const uint32_t[]){program, checksum, i, events[i].start.opCode, time}, 5);
        }
    }
    board_print("openneutron-profile,end,");
    print_row(&rows, 1);
}
#endif

int main(void) {
    void *outputs[OPENNEUTRON_OUTPUT_COUNT];
    uint32_t at = 0;
    uint32_t wrong = 0;
    board_init();
    board_print(OPENNEUTRON_MODEL_NAME "\n");
    for (uint32_t i = 0; i < OPENNEUTRON_OUTPUT_COUNT; at += openneutron_outputs[i++].size_bytes) outputs[i] = &results[at];

    NeutronError error = openneutron_init();
    if (error != ENONE) return refused("openneutron_init", error);
    for (uint32_t frame = 0; error == ENONE && frame < openneutron_golden_frames; ++frame) error = run_frame(frame, outputs);
    if (error != ENONE) return refused("openneutron_run", error);
    uint32_t frames = openneutron_golden_frames;
#if OPENNEUTRON_STATE_BYTES > 0
    /* After a reset the model begins anew. */
    error = openneutron_reset();
    if (error == ENONE) error = run_frame(0, outputs);
    if (error != ENONE) return refused("openneutron_reset", error);
    ++frames;
#endif

    for (uint32_t i = 0; i < OPENNEUTRON_OUTPUT_COUNT; ++i) wrong += print_comparison(i, frames);
#if OPENNEUTRON_PROFILE_BYTES > 0
    print_profile();
#endif
    if (board_stack_used() > 0) {
        board_print("stack used: ");
        print_number(board_stack_used());
        board_print(" bytes\n");
    }
    board_print(wrong == 0 ? "passed\n" : "FAILED\n");
    return wrong == 0 ? 0 : 1;
}
