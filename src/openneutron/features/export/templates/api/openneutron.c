/* SPDX-License-Identifier: BSD-3-Clause */
#include "openneutron.h"

#include "NeutronDriver.h"
#include "neutron_isa.h"
#include "openneutron_models.h"
#if OPENNEUTRON_JOBS
#include "openneutron_jobs.h"
#endif

/* How long a run may take; 0: for ever. Counted by the port's clock, and not at all where it has none. */
#ifndef OPENNEUTRON_TIMEOUT_SECONDS
#define OPENNEUTRON_TIMEOUT_SECONDS 0
#endif

typedef char ContextIsLargeEnough[sizeof(OpenNeutronContext) >= NEUTRON_MODEL_CONTEXT_SIZE ? 1 : -1];

static uint32_t aligned(uint32_t size) { return (size + OPENNEUTRON_ALIGNMENT - 1) & ~(OPENNEUTRON_ALIGNMENT - 1); }

static const NeutronHeader *header_of(const OpenNeutronCall *call) { return call->microcode; }

static NeutronModelHandle handle_of(const OpenNeutronInstance *instance, uint32_t call) { return &instance->contexts[call]; }

static NeutronError prepare(OpenNeutronInstance *instance, const OpenNeutronCall *call, uint32_t index, uint8_t *state,
                            const void *weights) {
    const NeutronModelConfig config = {call->microcode, weights, NULL, OPENNEUTRON_TIMEOUT_SECONDS};
    NeutronModelHandle handle = handle_of(instance, index);
    NeutronError error = neutronModelPrepare(&config, &handle);
    if (error == ENEUTRON_STATE) { /* the driver is off */
        error = neutronInit();
        if (error == ENONE) error = neutronModelPrepare(&config, &handle);
    }
#if OPENNEUTRON_STATEFUL
    const uint32_t state_bytes = header_of(call)->state_size;
    if (error == ENONE && state_bytes > 0) error = neutronSetState(handle, state, state_bytes);
#else
    (void)state;
#endif
    return error;
}

static void place(const OpenNeutronMemory *memory, const OpenNeutronTensor *tensors, uint32_t count, void **places) {
    for (uint32_t i = 0; i < count; ++i) {
        const OpenNeutronMemory *arena = &memory[tensors[i].arena];
        const bool fits = (size_t)tensors[i].arena_offset + tensors[i].size_bytes <= arena->size_bytes;
        places[i] = fits ? (uint8_t *)arena->address + tensors[i].arena_offset : NULL;
    }
}

static NeutronError begin(OpenNeutronInstance *instance, const OpenNeutronModel *model, const OpenNeutronMemory *memory,
                          bool is_shared) {
    uint8_t *state = instance->state;
    instance->model = NULL;
    for (uint32_t i = 0; i < model->arena_count; ++i) {
        if (memory[i].address == NULL) return ENEUTRON_NULL;
        if ((uintptr_t)memory[i].address % OPENNEUTRON_ALIGNMENT != 0) return ENEUTRON_ALIGNMENT;
        if (memory[i].size_bytes < model->work_bytes[i]) return ENEUTRON_MEMORY;
    }
    instance->arenas[0] = memory[0].address;
#if OPENNEUTRON_MAX_ARENAS > 2
    instance->arenas[1] = memory[model->arena_count > 1].address;
#endif
    instance->arenas[OPENNEUTRON_MAX_ARENAS - 1] = memory[model->arena_count - 1].address;
    place(memory, model->inputs, model->input_count, instance->inputs);
    place(memory, model->outputs, model->output_count, instance->outputs);
    for (uint32_t i = 0; i < model->call_count; ++i) {
        const void *weights = model->calls[i].weights;
#if OPENNEUTRON_JOBS
        if (is_shared) weights = openneutron_jobs_weights(model, memory[0].address, i);
#else
        (void)is_shared;
#endif
        const NeutronError error = prepare(instance, &model->calls[i], i, state, weights);
        if (error != ENONE) return error;
#if OPENNEUTRON_JOBS
        if (!is_shared && neutronHasJobs(handle_of(instance, i))) return ENEUTRON_JOB_MEMORY;
#endif
        state += aligned(header_of(&model->calls[i])->state_size);
    }
    instance->model = model;
    return ENONE;
}

NeutronError openneutron_init(OpenNeutronInstance *instance, const OpenNeutronModel *model, const OpenNeutronMemory *memory) {
#if OPENNEUTRON_JOBS
    if (memory[0].address == NULL) { /* the memory is that of the NPU's driver */
        OpenNeutronMemory arena;
        NeutronError error = openneutron_jobs_begin(model, &arena);
        if (error != ENONE) return error;
        error = begin(instance, model, &arena, true);
        if (error != ENONE) openneutron_jobs_end(model, arena.address);
        return error;
    }
#endif
    return begin(instance, model, memory, false);
}

NeutronError openneutron_reset(OpenNeutronInstance *instance) {
    if (instance->model == NULL) return ENEUTRON_STATE;
    NeutronError error = ENONE;
#if OPENNEUTRON_STATEFUL
    for (uint32_t i = 0; i < instance->model->call_count && error == ENONE; ++i) error = neutronReset(handle_of(instance, i));
#endif
    return error;
}

static uint8_t *last_arena(const OpenNeutronInstance *instance) { return instance->arenas[OPENNEUTRON_MAX_ARENAS - 1]; }

static void *address_of(const OpenNeutronInstance *instance, OpenNeutronPlace at) {
    if (at.where == OPENNEUTRON_FROM_INPUT) return instance->inputs[at.index];
    return at.where == OPENNEUTRON_FROM_OUTPUT ? instance->outputs[at.index] : last_arena(instance) + at.index;
}

static NeutronError run_call(const OpenNeutronInstance *instance, uint32_t index) {
    const OpenNeutronModel *model = instance->model;
    const OpenNeutronCall *call = &model->calls[index];
    const void **taken = instance->taken;
    void **given = instance->given;
    for (uint32_t i = 0; i < call->input_count; ++i) taken[i] = address_of(instance, call->inputs[i]);
    for (uint32_t i = 0; i < call->output_count; ++i) given[i] = address_of(instance, call->outputs[i]);
    given[call->output_count] = instance->arenas[0];
    given[call->output_count + 1] = model->profile_bytes > 0 ? instance->profile + index * model->profile_bytes : NULL;
#if OPENNEUTRON_MAX_ARENAS > 2
    given[call->output_count + 2] = last_arena(instance); /* the far buffer, where the program has one */
#else
    given[call->output_count + 2] = NULL;
#endif
    const NeutronDataConfig data = {taken, given, NULL, instance->arenas[1] + model->prefetch_offset};
    return neutronRunBlocking(handle_of(instance, index), &data);
}

NeutronError openneutron_invoke(OpenNeutronInstance *instance) {
    if (instance->model == NULL) return ENEUTRON_STATE;
    NeutronError error = ENONE;
    for (uint32_t i = 0; i < instance->model->call_count && error == ENONE; ++i) error = run_call(instance, i);
    return error;
}

/* ---- memory of inputs and outputs ------------------------------------------------------------------------------------ */

void *openneutron_input(const OpenNeutronInstance *instance, uint32_t index) {
    const OpenNeutronModel *model = instance->model;
    return model != NULL && index < model->input_count ? instance->inputs[index] : NULL;
}

const void *openneutron_output(const OpenNeutronInstance *instance, uint32_t index) {
    const OpenNeutronModel *model = instance->model;
    return model != NULL && index < model->output_count ? instance->outputs[index] : NULL;
}

bool openneutron_set_input(OpenNeutronInstance *instance, uint32_t index, const void *memory) {
    const bool is_there = instance->model != NULL && index < instance->model->input_count;
    if (is_there) instance->inputs[index] = (void *)(uintptr_t)memory; /* runs read it alone */
    return is_there;
}

bool openneutron_set_output(OpenNeutronInstance *instance, uint32_t index, void *memory) {
    const bool is_there = instance->model != NULL && index < instance->model->output_count;
    if (is_there) instance->outputs[index] = memory;
    return is_there;
}

/* ---- profiles and errors --------------------------------------------------------------------------------------------- */

const void *openneutron_profile_events(const OpenNeutronInstance *instance, uint32_t program) {
    const OpenNeutronModel *model = instance->model;
    if (model == NULL || model->profile_bytes == 0 || program >= model->call_count) return NULL;
    return instance->profile + program * model->profile_bytes;
}

uint32_t openneutron_program_checksum(const OpenNeutronModel *model, uint32_t program) {
    return program < model->call_count ? header_of(&model->calls[program])->microcode_crc : 0;
}

const char *openneutron_error_text(NeutronError error) { return neutronErrorText(error); }
