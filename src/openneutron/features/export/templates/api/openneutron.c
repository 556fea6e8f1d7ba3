/* SPDX-License-Identifier: BSD-3-Clause */
#include "openneutron.h"

#include <stddef.h>
#include <string.h>

#include "NeutronDriver.h"
#include "neutron_isa.h"
#include "openneutron_calls.h"

/* Where the buffers go: an attribute such as __attribute__((section(".sram_npu"))), or nothing. */
#ifndef OPENNEUTRON_ARENA
#define OPENNEUTRON_ARENA
#endif

/* How long a run may take; 0: for ever. Counted by the port's clock, and not at all where it has none. */
#ifndef OPENNEUTRON_TIMEOUT_SECONDS
#define OPENNEUTRON_TIMEOUT_SECONDS 0
#endif

#define AT_LEAST_ONE(count) ((count) > 0 ? (count) : 1)
#define ALIGNED(size) (((size) + 15) / 16 * 16)

static _Alignas(16) OPENNEUTRON_ARENA uint8_t openneutron_arena[AT_LEAST_ONE(OPENNEUTRON_ARENA_BYTES)];
#if OPENNEUTRON_PREFETCH_BYTES > 0
static _Alignas(16) OPENNEUTRON_ARENA uint8_t openneutron_prefetch[OPENNEUTRON_PREFETCH_BYTES];
#else
static uint8_t *const openneutron_prefetch = NULL;
#endif
static _Alignas(16) uint8_t openneutron_between[AT_LEAST_ONE(OPENNEUTRON_BETWEEN_BYTES)];
static _Alignas(16) uint8_t openneutron_profile[AT_LEAST_ONE(OPENNEUTRON_CALL_COUNT * OPENNEUTRON_PROFILE_BYTES)];
static _Alignas(16) uint8_t openneutron_context[OPENNEUTRON_CALL_COUNT][ALIGNED(NEUTRON_MODEL_CONTEXT_SIZE)];
static NeutronModelHandle handles[OPENNEUTRON_CALL_COUNT];
#if OPENNEUTRON_STATE_BYTES > 0
/* The persistent areas of all programs, one behind the other; not beside the arena, whose contents may go between runs. */
static _Alignas(16) uint8_t openneutron_state[OPENNEUTRON_STATE_BYTES];
#endif

NeutronError openneutron_init(void) {
    NeutronError error = neutronInit();
    if (error != ENONE) return error;
    for (uint32_t i = 0; i < OPENNEUTRON_CALL_COUNT; ++i) {
        const NeutronModelConfig config = {openneutron_calls[i].microcode, openneutron_calls[i].weights, NULL,
                                           OPENNEUTRON_TIMEOUT_SECONDS};
        handles[i] = openneutron_context[i];
        error = neutronModelPrepare(&config, &handles[i]);
        if (error != ENONE) {
            handles[i] = NEUTRON_INVALID_HANDLE;
            return error;
        }
    }
#if OPENNEUTRON_STATE_BYTES > 0
    uint32_t at = 0;
    for (uint32_t i = 0; i < OPENNEUTRON_CALL_COUNT && error == ENONE; ++i) {
        const uint32_t size = ((const NeutronHeader *)(const void *)openneutron_calls[i].microcode)->state_size;
        error = neutronSetState(handles[i], &openneutron_state[at], size);
        at += ALIGNED(size);
    }
#endif
    return error;
}

#if OPENNEUTRON_STATE_BYTES > 0
NeutronError openneutron_reset(void) {
    NeutronError error = ENONE;
    for (uint32_t i = 0; i < OPENNEUTRON_CALL_COUNT && error == ENONE; ++i) {
        error = handles[i] == NEUTRON_INVALID_HANDLE ? ENEUTRON_STATE : neutronReset(handles[i]);
    }
    return error;
}
#else
NeutronError openneutron_reset(void) { return ENONE; }
#endif

static NeutronError run_call(uint32_t index, const void *const inputs[], void *const outputs[]) {
    const OpenNeutronCall *call = &openneutron_calls[index];
    const void *taken[AT_LEAST_ONE(OPENNEUTRON_MAX_CALL_INPUTS)] = {NULL};
    void *given[OPENNEUTRON_MAX_CALL_OUTPUTS + 3] = {NULL};
    for (uint32_t i = 0; i < call->input_count; ++i) {
        const OpenNeutronPlace place = call->inputs[i];
        taken[i] = place.where == OPENNEUTRON_FROM_INPUT    ? inputs[place.index]
                   : place.where == OPENNEUTRON_FROM_OUTPUT ? outputs[place.index]
                                                            : openneutron_between + place.index;
    }
    for (uint32_t i = 0; i < call->output_count; ++i) {
        const OpenNeutronPlace place = call->outputs[i];
        given[i] = place.where == OPENNEUTRON_FROM_OUTPUT ? outputs[place.index] : openneutron_between + place.index;
    }
    given[call->output_count] = openneutron_arena;
    given[call->output_count + 1] = openneutron_profile + index * OPENNEUTRON_PROFILE_BYTES;
    const NeutronDataConfig data = {taken, given, NULL, openneutron_prefetch};
    return neutronRunBlocking(handles[index], &data);
}

NeutronError openneutron_run(const void *const inputs[OPENNEUTRON_INPUT_PLACES],
                             void *const outputs[OPENNEUTRON_OUTPUT_COUNT]) {
    if ((inputs == NULL && OPENNEUTRON_INPUT_COUNT > 0) || outputs == NULL) return ENEUTRON_NULL;
    for (uint32_t i = 0; i < OPENNEUTRON_CALL_COUNT; ++i) {
        if (handles[i] == NEUTRON_INVALID_HANDLE) return ENEUTRON_STATE;
        const NeutronError error = run_call(i, inputs, outputs);
        if (error != ENONE) return error;
    }
    return ENONE;
}

const void *openneutron_profile_events(uint32_t program) {
    if (OPENNEUTRON_PROFILE_BYTES == 0 || program >= OPENNEUTRON_CALL_COUNT) return NULL;
    return openneutron_profile + program * OPENNEUTRON_PROFILE_BYTES;
}

uint32_t openneutron_program_checksum(uint32_t program) {
    if (program >= OPENNEUTRON_CALL_COUNT) return 0;
    return ((const NeutronHeader *)(const void *)openneutron_calls[program].microcode)->microcode_crc;
}

const char *openneutron_error_text(NeutronError error) { return neutronErrorText(error); }

/* Tensor `index` of these, or NULL where there are not as many. */
static const OpenNeutronTensor *find(const OpenNeutronTensor tensors[], uint32_t count, uint32_t index) {
    return index < count ? &tensors[index] : NULL;
}

static const OpenNeutronTensor *find_input(uint32_t index) {
    return find(openneutron_inputs, OPENNEUTRON_INPUT_COUNT, index);
}

static const OpenNeutronTensor *find_output(uint32_t index) {
    return find(openneutron_outputs, OPENNEUTRON_OUTPUT_COUNT, index);
}

/* ---- real and stored values ----------------------------------------------------------------------------------------- */

/* The nearest integer, halves to the even one, of what lies inside 2^23; from there on floats are integers anyway. */
static float nearest(float value) {
    const float integers = 8388608.0f;
    volatile float sum; /* in the precision of a float, whatever the compiler would keep */
    if (!(value > -integers && value < integers)) return value;
    if (value < 0) {
        sum = value - integers;
        return sum + integers;
    }
    sum = value + integers;
    return sum - integers;
}

static bool is_quantized(const OpenNeutronTensor *tensor) {
    if (tensor == NULL || tensor->scale == 0) return false;
    return tensor->type == OPENNEUTRON_INT8 || tensor->type == OPENNEUTRON_INT16;
}

/* Elements of int16 may be at any address, as those of a run. */
static void store(const OpenNeutronTensor *tensor, void *stored, uint32_t place, float value) {
    if (tensor->type == OPENNEUTRON_INT16) {
        const int16_t element = (int16_t)value;
        memcpy((uint8_t *)stored + place * sizeof element, &element, sizeof element);
    } else {
        ((int8_t *)stored)[place] = (int8_t)value;
    }
}

static int32_t load(const OpenNeutronTensor *tensor, const void *stored, uint32_t place) {
    int16_t element;
    if (tensor->type != OPENNEUTRON_INT16) return ((const int8_t *)stored)[place];
    memcpy(&element, (const uint8_t *)stored + place * sizeof element, sizeof element);
    return element;
}

bool openneutron_quantize_input(uint32_t index, const float *values, void *stored) {
    const OpenNeutronTensor *tensor = find_input(index);
    if (!is_quantized(tensor)) return false;
    const float inverse = 1.0f / tensor->scale;
    const float zero_point = (float)tensor->zero_point;
    const float least = (float)tensor->least;
    const float most = (float)tensor->most;
    for (uint32_t i = 0; i < tensor->elements; ++i) {
        const float result = zero_point + nearest(inverse * values[i]);
        store(tensor, stored, i, !(result > least) ? least : result > most ? most : result);
    }
    return true;
}

bool openneutron_dequantize_output(uint32_t index, const void *stored, float *values) {
    const OpenNeutronTensor *tensor = find_output(index);
    if (!is_quantized(tensor)) return false;
    for (uint32_t i = 0; i < tensor->elements; ++i) {
        values[i] = (float)(load(tensor, stored, i) - tensor->zero_point) * tensor->scale;
    }
    return true;
}

/* ---- orders in memory ----------------------------------------------------------------------------------------------- */

/* Walks a tensor in the order of a run; `gathers` from the order in which its shape is written, or scatters to it. */
static void rearrange(const OpenNeutronTensor *tensor, const uint8_t *from, uint8_t *to, uint32_t element_bytes,
                      bool gathers) {
    uint32_t pitches[OPENNEUTRON_MAX_RANK] = {0};
    uint32_t at[OPENNEUTRON_MAX_RANK] = {0};
    uint32_t pitch = element_bytes;
    for (uint32_t axis = tensor->rank; axis-- > 0;) {
        pitches[axis] = pitch;
        pitch *= tensor->shape[axis];
    }
    for (uint32_t i = 0; i < tensor->elements; ++i) {
        uint32_t offset = 0;
        for (uint32_t axis = 0; axis < tensor->rank; ++axis) offset += at[axis] * pitches[axis];
        if (gathers) {
            memcpy(to + i * element_bytes, from + offset, element_bytes);
        } else {
            memcpy(to + offset, from + i * element_bytes, element_bytes);
        }
        for (uint32_t place = tensor->rank; place-- > 0;) {
            const uint32_t axis = tensor->order[place];
            if (++at[axis] < tensor->shape[axis]) break;
            at[axis] = 0;
        }
    }
}

void openneutron_arrange_input(uint32_t index, const void *as_written, void *as_run, uint32_t element_bytes) {
    const OpenNeutronTensor *tensor = find_input(index);
    if (tensor != NULL) rearrange(tensor, as_written, as_run, element_bytes, true);
}

void openneutron_arrange_output(uint32_t index, const void *as_run, void *as_written, uint32_t element_bytes) {
    const OpenNeutronTensor *tensor = find_output(index);
    if (tensor != NULL) rearrange(tensor, as_run, as_written, element_bytes, false);
}
