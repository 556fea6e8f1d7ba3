/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions of openneutron.h on NXP's driver. Its header is that of the SDK with which this file is compiled. neutron.cmake defines
 * OPENNEUTRON_HAS_... for members that not all releases of the header have. */
#include "openneutron_nxp.h"

#include <string.h>

#include "NeutronDriver.h"
#include "openneutron_models.h"

/* Bits of an address that the NPU does not see. The NPU of MCX N947 masters the bus without TrustZone: it needs addresses without bit 28,
 * so that an application in the secure state defines 0x10000000. */
#ifndef OPENNEUTRON_ADDRESS_MASK
#define OPENNEUTRON_ADDRESS_MASK 0
#endif

/* How long a run may take, where the driver has a limit; ExecuTorch's NXP delegate has the same number. */
#ifndef OPENNEUTRON_TIMEOUT_SECONDS
#define OPENNEUTRON_TIMEOUT_SECONDS 60
#endif

/* The memory of the driver's data about a program, where the driver is built without a heap (NO_HEAP_USAGE). */
#ifndef OPENNEUTRON_CONTEXT_BYTES
#define OPENNEUTRON_CONTEXT_BYTES 512
#endif

/* The driver reads the configuration of a program at each run. */
typedef struct {
    NeutronModelConfig config;
    NeutronModelHandle handle;
} Program;

typedef char ContextIsLargeEnough[sizeof(OpenNeutronContext) >= sizeof(Program) ? 1 : -1];

/* Words of NXP's microcode that are published: executorch/backends/nxp/runtime/NeutronBackend.cpp. */
enum { MAGIC_WORD, VERSION_WORD, WEIGHTS_SIZE_WORD = 7 };
#define MAGIC 0x64434D6Eu

#ifdef OPENNEUTRON_HAS_KERNELS
static uint32_t aligned(uint32_t size) { return (size + OPENNEUTRON_ALIGNMENT - 1) & ~(OPENNEUTRON_ALIGNMENT - 1); }
#endif

static void *seen(const void *address) { return (void *)((uintptr_t)address & ~(uintptr_t)(OPENNEUTRON_ADDRESS_MASK)); }

/* ---- errors ---------------------------------------------------------------------------------------------------------- */

/* Both driver and firmware have a category for microcode that they do not take: of another release, or damaged. */
static NeutronError cause(NeutronError error) {
    const bool is_driver = GET_ERROR_COMPONENT(error) == ERROR_COMPONENT_DRIVER;
    return is_driver && GET_ERROR_CATEGORY(error) == ERROR_CATEGORY_DRIVER_UCODE ? ENEUTRON_VERSION : error;
}

static const char *number_text(NeutronError error) {
    static char text[] = "NXP's driver: error 0x00000000 (component in bits 0 to 2, category in bits 3 to 7, code in bits 8 to 30)";
    char *digits = strchr(text, 'x') + 1;
    for (uint32_t i = 0; i < 8; ++i) digits[i] = "0123456789abcdef"[(uint32_t)error >> (28 - 4 * i) & 0xF];
    return text;
}

const char *openneutron_error_text(NeutronError error) {
    switch (error) {
    case ENONE: return "no error";
    case ENEUTRON_VERSION:
        return "NXP's driver refuses the microcode: converter and driver are of different releases. Convert the model with the release "
               "of the converter that belongs to this SDK, or link the SDK of the converter's release";
    case ENEUTRON_NULL: return "a pointer is null";
    case ENEUTRON_ALIGNMENT: return "an arena is not aligned to 16 bytes";
    case ENEUTRON_MEMORY: return "an arena is too small, or OPENNEUTRON_CONTEXT_BYTES is";
    case ENEUTRON_STATE: return "the model is not initialized";
    case ENEUTRON_LIBRARY: return "libNeutronDriver.so is missing or lacks a function; the reason is on the standard error stream";
    case ENEUTRON_CRASH:
        return "NXP's driver crashed when it read the microcode: converter and driver are of different releases. Convert the model with "
               "the release of the converter that belongs to the board's image";
    default: return number_text(error);
    }
}

/* ---- programs -------------------------------------------------------------------------------------------------------- */

#if defined(NO_HEAP_USAGE) && NO_HEAP_USAGE
/* The driver's data about each program; an instance that is initialized again gets the same place. */
static NeutronModelHandle memory_for(const Program *owner) {
    static struct {
        OPENNEUTRON_ALIGNED uint8_t bytes[OPENNEUTRON_CONTEXT_BYTES];
        const Program *owner;
    } places[OPENNEUTRON_CALLS];
    if (neutronGetModelContextSize() > OPENNEUTRON_CONTEXT_BYTES) return NULL;
    for (uint32_t i = 0; i < OPENNEUTRON_CALLS; ++i) {
        if (places[i].owner != NULL && places[i].owner != owner) continue;
        places[i].owner = owner;
        return places[i].bytes;
    }
    return NULL;
}
#endif

static NeutronError prepare(Program *program, const OpenNeutronCall *call) {
    const uint32_t *words = call->microcode;
    if (words[MAGIC_WORD] != MAGIC) return ENEUTRON_VERSION;
    memset(program, 0, sizeof *program);
    program->config.microcode = seen(call->microcode);
    program->config.weights = seen(call->weights);
#ifdef OPENNEUTRON_HAS_KERNELS /* not in the headers of 2023 */
    program->config.kernels = seen((const uint8_t *)call->weights + aligned(words[WEIGHTS_SIZE_WORD]));
#endif
#ifdef OPENNEUTRON_HAS_TIMEOUTSECONDS
    program->config.timeoutSeconds = OPENNEUTRON_TIMEOUT_SECONDS;
#endif
    program->handle = NULL;
#if defined(NO_HEAP_USAGE) && NO_HEAP_USAGE
    program->handle = memory_for(program);
    if (program->handle == NULL) return ENEUTRON_MEMORY;
#endif
    return cause(neutronModelPrepare(&program->config, &program->handle));
}

NeutronError openneutron_nxp_prepare_once(const OpenNeutronModel *model) {
    static Program program;
    NeutronError error = neutronInit();
    for (uint32_t i = 0; i < model->call_count && error == ENONE; ++i) {
        error = prepare(&program, &model->calls[i]);
        if (error == ENONE) error = neutronModelUnprepare(program.handle);
    }
    if (error == ENONE) error = neutronDeinit();
    return error;
}

#if OPENNEUTRON_PREFETCHED
static void copy(void *to, const void *from, uint32_t size, uint32_t channel) {
    (void)channel;
    memcpy(to, from, size);
}

static void wait(uint32_t channel) { (void)channel; }
#endif

static NeutronError start(void) {
    static bool is_on;
    if (is_on) return ENONE;
    NeutronError error = neutronInit();
#if OPENNEUTRON_PREFETCHED
    static NeutronConfig config = {copy, wait};
    if (error == ENONE) error = neutronSetConfig(&config);
#endif
    is_on = error == ENONE;
    return error;
}

static Program *program_of(const OpenNeutronInstance *instance, uint32_t call) { return (Program *)(void *)&instance->contexts[call]; }

static void place(const OpenNeutronMemory *memory, const OpenNeutronTensor *tensors, uint32_t count, void **places) {
    for (uint32_t i = 0; i < count; ++i) {
        const OpenNeutronMemory *arena = &memory[tensors[i].arena];
        const bool fits = (size_t)tensors[i].arena_offset + tensors[i].size_bytes <= arena->size_bytes;
        places[i] = fits ? (uint8_t *)arena->address + tensors[i].arena_offset : NULL;
    }
}

NeutronError openneutron_init(OpenNeutronInstance *instance, const OpenNeutronModel *model, const OpenNeutronMemory *memory) {
    instance->model = NULL;
    for (uint32_t i = 0; i < model->arena_count; ++i) {
        if (memory[i].address == NULL) return ENEUTRON_NULL;
        if ((uintptr_t)memory[i].address % OPENNEUTRON_ALIGNMENT != 0) return ENEUTRON_ALIGNMENT;
        if (memory[i].size_bytes < model->work_bytes[i]) return ENEUTRON_MEMORY;
    }
    instance->arenas[0] = memory[0].address;
    instance->arenas[OPENNEUTRON_MAX_ARENAS - 1] = memory[model->arena_count - 1].address;
    place(memory, model->inputs, model->input_count, instance->inputs);
    place(memory, model->outputs, model->output_count, instance->outputs);
    NeutronError error = openneutron_nxp_try(model);
    if (error == ENONE) error = start();
    for (uint32_t i = 0; i < model->call_count && error == ENONE; ++i) error = prepare(program_of(instance, i), &model->calls[i]);
    if (error == ENONE) instance->model = model;
    return error;
}

/* NXP's programs keep nothing between runs. */
NeutronError openneutron_reset(OpenNeutronInstance *instance) { return instance->model == NULL ? ENEUTRON_STATE : ENONE; }

static void *address_of(const OpenNeutronInstance *instance, OpenNeutronPlace at) {
    if (at.where == OPENNEUTRON_FROM_INPUT) return seen(instance->inputs[at.index]);
    if (at.where == OPENNEUTRON_FROM_OUTPUT) return seen(instance->outputs[at.index]);
    return seen(instance->arenas[OPENNEUTRON_MAX_ARENAS - 1] + at.index);
}

/* The driver reads three addresses behind those of the outputs, whatever the microcode's version: scratch, profile, debug. */
static NeutronError run_call(const OpenNeutronInstance *instance, uint32_t index) {
    const OpenNeutronModel *model = instance->model;
    const OpenNeutronCall *call = &model->calls[index];
    for (uint32_t i = 0; i < call->input_count; ++i) instance->taken[i] = address_of(instance, call->inputs[i]);
    for (uint32_t i = 0; i < call->output_count; ++i) instance->given[i] = address_of(instance, call->outputs[i]);
    instance->given[call->output_count] = seen(instance->arenas[0]);
    instance->given[call->output_count + 1] = NULL;
    instance->given[call->output_count + 2] = NULL;
    if (model->profile_bytes > 0) {
        uint8_t *events = instance->profile + index * model->profile_bytes;
        memset(events, 0, model->profile_bytes);
        instance->given[call->output_count + 1] = seen(events);
    }
    NeutronDataConfig data;
    memset(&data, 0, sizeof data);
    data.inputs = instance->taken;
    data.outputs = instance->given;
    data.scratch = instance->given[call->output_count];
#if OPENNEUTRON_PREFETCHED
    data.scratchWeights = seen(instance->arenas[OPENNEUTRON_MAX_ARENAS - 1] + model->prefetch_offset);
#endif
    return cause(neutronRunBlocking(program_of(instance, index)->handle, &data));
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

/* ---- profiles -------------------------------------------------------------------------------------------------------- */

const void *openneutron_profile_events(const OpenNeutronInstance *instance, uint32_t program) {
    const OpenNeutronModel *model = instance->model;
    if (model == NULL || model->profile_bytes == 0 || program >= model->call_count) return NULL;
    return instance->profile + program * model->profile_bytes;
}

/* The second word of the microcode, which differs between releases of the converter. */
uint32_t openneutron_program_checksum(const OpenNeutronModel *model, uint32_t program) {
    return program < model->call_count ? ((const uint32_t *)model->calls[program].microcode)[VERSION_WORD] : 0;
}
