/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs each model on its golden inputs and compares with the golden outputs, which the simulator computed when this folder was exported.
 * A model compiled with profiling prints the time of each kernel call. A language model also continues a text by itself. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "NeutronDriver.h"
#include "board.h"
#include "golden.h"
#if OPENNEUTRON_JOBS
#include "openneutron_jobs.h"
#endif
#if OPENNEUTRON_CAMERA
#include "camera.h"
#endif

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

static NeutronError refused(const char *step, NeutronError error) {
    board_print(step);
    board_print(": ");
    board_print(openneutron_error_text(error));
    board_print("\n");
#if OPENNEUTRON_JOBS
    board_print(openneutron_jobs_problem());
    board_print("\n");
#endif
    return error;
}

/* The bytes of each output that differ, summed over the runs of a model. */
static uint32_t differences[OPENNEUTRON_MAX_OUTPUTS];

#if OPENNEUTRON_NXP
/* The elements of each output that are one step of its scale apart, and those further apart. NXP's NPU rounds once where LiteRT rounds
 * twice. */
static uint32_t near_count[OPENNEUTRON_MAX_OUTPUTS];
static uint32_t far_count[OPENNEUTRON_MAX_OUTPUTS];

static int32_t element(const OpenNeutronTensor *tensor, const uint8_t *bytes, uint32_t index) {
    int16_t value;
    if (tensor->type == OPENNEUTRON_INT8) return (int8_t)bytes[index];
    if (tensor->type != OPENNEUTRON_INT16) return bytes[index];
    memcpy(&value, bytes + index * sizeof value, sizeof value);
    return value;
}

/* Elements of other types than int8, uint8 and int16 are compared byte by byte, and must be equal. */
static void count_steps(const OpenNeutronTensor *tensor, const uint8_t *found, const uint8_t *wanted, uint32_t output) {
    const bool has_steps = tensor->type == OPENNEUTRON_INT8 || tensor->type == OPENNEUTRON_UINT8 || tensor->type == OPENNEUTRON_INT16;
    const uint32_t count = has_steps ? tensor->elements : tensor->size_bytes;
    for (uint32_t i = 0; i < count; ++i) {
        const int32_t step = element(tensor, found, i) - element(tensor, wanted, i);
        if (step == 0) continue;
        if (has_steps && step >= -1 && step <= 1) {
            ++near_count[output];
        } else {
            ++far_count[output];
        }
    }
}

/* Adler-32, as in RFC 1950, for outputs without expected values. */
static void print_checksum(const OpenNeutronTensor *tensor, const uint8_t *bytes) {
    uint32_t first = 1;
    uint32_t second = 0;
    for (uint32_t at = 0; at < tensor->size_bytes; ++at) {
        first = (first + bytes[at]) % 65521u;
        second = (second + first) % 65521u;
    }
    board_print(tensor->name);
    board_print(": Adler-32 ");
    print_number(second << 16 | first);
    board_print(", no expected values\n");
}
#endif

/* One run on the golden inputs of a frame. */
static NeutronError run_frame(const Golden *of, uint32_t frame) {
    const OpenNeutronModel *model = of->instance->model;
    for (uint32_t i = 0; i < model->input_count; ++i) {
        const uint32_t size = model->inputs[i].size_bytes;
        const uint8_t *given = (const uint8_t *)of->inputs[i] + frame * size;
#if OPENNEUTRON_CAMERA
        if (model->inputs[i].type == OPENNEUTRON_UINT8) { /* the run reads the camera's memory: nothing is copied */
            openneutron_set_input(of->instance, i, camera_frame(given));
            continue;
        }
#endif
        memcpy(openneutron_input(of->instance, i), given, size);
    }
    const NeutronError error = openneutron_invoke(of->instance);
    if (error != ENONE) return error;
    for (uint32_t i = 0; i < model->output_count; ++i) {
        const uint32_t size = model->outputs[i].size_bytes;
        const uint8_t *found = openneutron_output(of->instance, i);
#if OPENNEUTRON_NXP
        if (of->outputs[i] == NULL) {
            print_checksum(&model->outputs[i], found);
            continue;
        }
#endif
        const uint8_t *wanted = (const uint8_t *)of->outputs[i] + frame * size;
        for (uint32_t at = 0; at < size; ++at) differences[i] += found[at] != wanted[at];
#if OPENNEUTRON_NXP
        count_steps(&model->outputs[i], found, wanted, i);
#endif
    }
    return ENONE;
}

/* Prints the comparison of an output in all runs, and returns the number of bytes that differ. */
static uint32_t print_comparison(const OpenNeutronTensor *tensor, uint32_t wrong, uint32_t frames) {
    const uint32_t size = tensor->size_bytes * frames;
    board_print(tensor->name);
    board_print(": ");
    print_number(size - wrong);
    board_print(" of ");
    print_number(size);
    board_print(" bytes as expected\n");
    return wrong;
}

#if OPENNEUTRON_NXP
/* As print_comparison, with the elements that are one step apart. Returns the number of the others that differ. */
static uint32_t print_steps(const Golden *of, uint32_t output) {
    const OpenNeutronTensor *tensor = &of->instance->model->outputs[output];
    if (of->outputs[output] == NULL) return 0;
    print_comparison(tensor, differences[output], of->frames);
    if (differences[output] > 0) {
        print_number(near_count[output]);
        board_print(" elements are one step apart, ");
        print_number(far_count[output]);
        board_print(" further\n");
    }
    return far_count[output];
}
#endif

#if OPENNEUTRON_PROFILED
static void print_row(const uint32_t *numbers, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
        print_number(numbers[i]);
        board_print(i + 1 < count ? "," : "\n");
    }
}

#if OPENNEUTRON_NXP
/* An event of NXP's firmware. Events belong to one kernel call up to the one whose stop has the operation CALL_ENDS, as ExecuTorch's NXP
 * delegate reads them; the last call is that of the profile itself. */
#define CALL_ENDS 6
typedef struct {
    uint8_t event;
    uint8_t operation;
    uint8_t function;
    uint8_t timestamp;
    uint32_t time;
} EventPoint;

typedef struct {
    EventPoint start;
    EventPoint stop;
} Event;

static void print_profile(const OpenNeutronInstance *instance) {
    board_print("nxp-profile,1,ticks\nprogram,call,function,ticks\n");
    for (uint32_t program = 0; program < instance->model->call_count; ++program) {
        const Event *events = openneutron_profile_events(instance, program);
        const uint32_t count = instance->model->profile_bytes / (uint32_t)sizeof *events;
        uint32_t call = 0;
        uint32_t first = 0;
        for (uint32_t i = 0; i < count && (events[i].start.time | events[i].stop.time) != 0; ++i) {
            if (events[i].stop.operation != CALL_ENDS) continue;
            const uint32_t row[] = {program, call++, events[i].stop.function, events[i].stop.time - events[first].start.time};
            print_row(row, 4);
            first = i + 1;
        }
    }
    board_print("nxp-profile,end\n");
}
#else
/* Each kernel call with its time, for `openneutron profile --from CSV MODEL`. */
static void print_profile(const OpenNeutronInstance *instance) {
    uint32_t rows = 0;
    board_print("openneutron-profile,1,");
    board_print(board_counter());
    board_print("\nprogram,checksum,call,kernel,time\n");
    for (uint32_t program = 0; program < instance->model->call_count; ++program) {
        const NeutronEvent *events = openneutron_profile_events(instance, program);
        const uint32_t checksum = openneutron_program_checksum(instance->model, program);
        const uint32_t count = instance->model->profile_bytes / (uint32_t)sizeof *events;
        for (uint32_t i = 0; i < count && events[i].start.opCode != 0; ++i, ++rows) {
            const uint32_t time = events[i].stop.time - events[i].start.time;
            const uint32_t row[] = {program, checksum, i, events[i].start.opCode, time};
            print_row(row, 5);
        }
    }
    board_print("openneutron-profile,end,");
    print_row(&rows, 1);
}
#endif
#endif

#if OPENNEUTRON_TEXTS
/* Reads the tokens of the first frame, then always the likeliest one. Prints them, and compares with those of the frames. */
static NeutronError continue_text(const Golden *of, uint32_t *wrong) {
    const OpenNeutronModel *model = of->instance->model;
    const int64_t *tokens = of->inputs[0];
    const int64_t *spans = of->inputs[1];
    OpenNeutronText text;
    uint32_t equal = 0;
    openneutron_text_begin(&text, of->instance, of->text);
    board_print("text:");
    for (uint32_t frame = 0; frame < of->frames; ++frame) {
        const uint32_t count = (uint32_t)spans[2 * frame + 1];
        for (uint32_t i = 0; i < count; ++i) {
            const uint32_t token = frame == 0 ? (uint32_t)tokens[i] : openneutron_text_likeliest(&text);
            const NeutronError error = openneutron_text_read(&text, &token, 1);
            if (error != ENONE) return refused("text", error);
            equal += token == (uint32_t)tokens[frame * model->inputs[0].elements + i];
            board_print(" ");
            print_number(token);
        }
        if (frame == 0) board_print(",");
    }
    board_print("\ntext: ");
    print_number(equal);
    board_print(" of ");
    print_number(text.count);
    board_print(" tokens as expected\n");
    *wrong += text.count - equal;
    return ENONE;
}
#endif

/* Runs all frames of a model. Adds the bytes that differ to *wrong. */
static NeutronError check(const Golden *of, uint32_t *wrong) {
    NeutronError error = of->init();
#ifdef NEUTRON_THREADS
    if (error == ENONE) error = board_set_threads(of->instance);
#endif
    if (error != ENONE) return refused("init", error);
    const OpenNeutronModel *model = of->instance->model;
    board_print(model->name);
    board_print("\n");
    memset(differences, 0, sizeof differences);
#if OPENNEUTRON_NXP
    memset(near_count, 0, sizeof near_count);
    memset(far_count, 0, sizeof far_count);
#endif
    for (uint32_t frame = 0; error == ENONE && frame < of->frames; ++frame) error = run_frame(of, frame);
    if (error != ENONE) return refused("invoke", error);
    uint32_t frames = of->frames;
    if (frames > 1) { /* the model has a state; after a reset it begins anew */
        error = openneutron_reset(of->instance);
        if (error == ENONE) error = run_frame(of, 0);
        if (error != ENONE) return refused("reset", error);
        ++frames;
    }
#if OPENNEUTRON_NXP
    for (uint32_t i = 0; i < model->output_count; ++i) *wrong += print_steps(of, i);
#else
    for (uint32_t i = 0; i < model->output_count; ++i) *wrong += print_comparison(&model->outputs[i], differences[i], frames);
#endif
#if OPENNEUTRON_PROFILED
    if (model->profile_bytes > 0) print_profile(of->instance);
#endif
#if OPENNEUTRON_TEXTS
    if (of->text != NULL) return continue_text(of, wrong);
#endif
    return ENONE;
}

int selfcheck(void) {
    uint32_t wrong = 0;
    board_init();
    for (uint32_t i = 0; i < OPENNEUTRON_MODEL_COUNT; ++i) {
        if (check(&golden[i], &wrong) != ENONE) return 1;
    }
    if (board_stack_used() > 0) {
        board_print("stack used: ");
        print_number(board_stack_used());
        board_print(" bytes\n");
    }
    board_print(wrong == 0 ? "passed\n" : "FAILED\n");
    return wrong == 0 ? 0 : 1;
}
