/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver's API: settings, models and runs. Nothing here allocates or logs while a program runs, and a run keeps all it
 * needs on its own stack, so that handles can be used from several threads. */
#include "driver.h"

#include <string.h>
#ifdef NEUTRON_THREADS
#include <stdatomic.h>

#include "parts.h"
#endif
#ifndef NEUTRON_NO_HEAP
#include <stdlib.h>
#endif

#define MODEL_TAG 0x4E6D6F64u

typedef struct {
    uint32_t tag;
    uint32_t timeout_seconds;
    const void *microcode;
    const void *weights;
    NeutronCallHook after_call; /* NULL: no trace */
    void *user;
    uint8_t *state; /* the persistent area */
    NeutronError obstacle; /* of a model with a persistent area: why it can't run now */
#ifdef NEUTRON_THREADS
    NeutronThreads threads;
    atomic_flag scratch_is_used; /* that of the threads, by a run */
#endif
} Model;
NEUTRON_STATIC_ASSERT(sizeof(Model) <= NEUTRON_MODEL_CONTEXT_SIZE, "what applications set aside for a model's context");

static bool is_aligned(const void *pointer) { return ((uintptr_t)pointer & (NEUTRON_ALIGNMENT - 1)) == 0; }

static inline __attribute__((always_inline)) Model *model_of(NeutronModelHandle handle) {
    Model *model = handle;
    return model != NULL && model->tag == MODEL_TAG ? model : NULL;
}

/* ---- what holds for all models: callbacks, port and power ------------------------------------------------------------ */

typedef enum { NEUTRON_OFF, NEUTRON_SUSPENDED, NEUTRON_ON } Power;

/* A run takes config and port as they are when it begins. */
static struct {
    NeutronConfig config;
    NeutronPort port;
    Power power;
} settings;

/* The port hears of changes alone. */
NEUTRON_SMALL static void enter(Power power) {
    const bool was_on = settings.power == NEUTRON_ON;
    const bool is_on = power == NEUTRON_ON;
    settings.power = power;
    if (is_on != was_on && settings.port.power != NULL) settings.port.power(is_on);
}

NEUTRON_SMALL NeutronError neutronInit(void) {
    enter(NEUTRON_ON);
    return ENONE;
}

NEUTRON_SMALL NeutronError neutronDeinit(void) {
    enter(NEUTRON_OFF);
    return ENONE;
}

NEUTRON_SMALL NeutronError neutronSuspend(void) {
    if (settings.power == NEUTRON_OFF) return ENEUTRON_STATE;
    enter(NEUTRON_SUSPENDED);
    return ENONE;
}

NEUTRON_SMALL NeutronError neutronResume(void) {
    if (settings.power == NEUTRON_OFF) return ENEUTRON_STATE;
    enter(NEUTRON_ON);
    return ENONE;
}

NEUTRON_SMALL NeutronError neutronSetConfig(const NeutronConfig *config) {
    if (config == NULL) return ENEUTRON_NULL;
    settings.config = *config;
    return ENONE;
}

NEUTRON_SMALL NeutronError neutronSetPort(const NeutronPort *port) {
    const NeutronPort none = {0};
    settings.port = port != NULL ? *port : none;
    return ENONE;
}

/* ---- models --------------------------------------------------------------------------------------------------------- */

NEUTRON_SMALL NeutronError neutronModelCheck(const NeutronModelConfig *config, size_t microcode_size, size_t weights_size,
                               uint32_t *detail) {
    uint32_t ignored;
    if (detail == NULL) detail = &ignored;
    *detail = 0;
    if (config == NULL || config->microcode == NULL || (config->weights == NULL && weights_size != 0)) {
        return ENEUTRON_NULL;
    }
    if (!is_aligned(config->microcode) || !is_aligned(config->weights)) return ENEUTRON_ALIGNMENT;
    return neutron_validate(config->microcode, microcode_size, weights_size, detail);
}

NEUTRON_SMALL size_t neutronGetModelContextSize(void) { return sizeof(Model); }

NEUTRON_SMALL NeutronError neutronModelPrepare(const NeutronModelConfig *config, NeutronModelHandle *handle) {
    if (settings.power == NEUTRON_OFF) return ENEUTRON_STATE;
    if (config == NULL || config->microcode == NULL || handle == NULL) return ENEUTRON_NULL;
    if (!is_aligned(config->microcode)) return ENEUTRON_ALIGNMENT;
    const NeutronHeader *header = config->microcode;
    const NeutronError error = neutronModelCheck(config, SIZE_MAX, header->weights_size, NULL);
    if (error != ENONE) return error;
#ifdef NEUTRON_NO_HEAP
    Model *model = *handle;
    if (model == NULL) return ENEUTRON_NULL;
    if ((uintptr_t)model % sizeof(void *) != 0) return ENEUTRON_ALIGNMENT;
#else
    Model *model = malloc(sizeof *model);
    if (model == NULL) return ENEUTRON_MEMORY;
    *handle = model;
#endif
    model->tag = MODEL_TAG;
    model->timeout_seconds = config->timeoutSeconds;
    model->microcode = config->microcode;
    model->weights = config->weights;
    model->after_call = NULL;
    model->obstacle = header->state_size > 0 ? ENEUTRON_NO_STATE : ENONE;
#ifdef NEUTRON_THREADS
    model->threads = (NeutronThreads){.count = 1};
    atomic_flag_clear(&model->scratch_is_used);
#endif
    return ENONE;
}

NEUTRON_SMALL NeutronError neutronModelUnprepare(NeutronModelHandle handle) {
    Model *model = model_of(handle);
    if (model == NULL) return ENEUTRON_HANDLE;
    model->tag = 0;
#ifndef NEUTRON_NO_HEAP
    free(model);
#endif
    return ENONE;
}

NEUTRON_SMALL NeutronError neutronSetTrace(NeutronModelHandle handle, const NeutronTraceConfig *trace) {
    Model *model = model_of(handle);
    if (model == NULL) return ENEUTRON_HANDLE;
    model->after_call = NULL;
    if (trace != NULL && (trace->traceConfig & TRACE_CONFIG_KERNEL_LEVEL) != 0) {
        model->after_call = trace->afterCall;
        model->user = trace->user;
    }
    return ENONE;
}

NEUTRON_SMALL bool neutronHasJobs(NeutronModelHandle handle) {
#ifdef __linux__
    const Model *model = model_of(handle);
    if (model == NULL) return false;
    NeutronOpened program;
    neutron_open(model->microcode, &program);
    for (uint32_t i = 0; i < program.header->operator_count; i++) {
        const uint32_t code = neutron_code_of(program.words[program.operators[i]]);
        if (code == NEUTRON_KERNEL_conv_2d_job_s8 || code == NEUTRON_KERNEL_batch_matmul_job_s8 ||
            code == NEUTRON_KERNEL_recurrent_job_s8 || code == NEUTRON_KERNEL_unidirectional_sequence_lstm_job_s8) {
            return true;
        }
        if (code == NEUTRON_KERNEL_dynamic_linear_f32) {
            const NeutronDynamicLinearF32 *linear = (const void *)&program.words[program.operators[i] + 1];
            if (linear->job_from > 0) return true;
        }
    }
#else
    (void)handle; /* no kernel here gives jobs */
#endif
    return false;
}

/* ---- threads: no code without NEUTRON_THREADS ------------------------------------------------------------------------- */

#ifdef NEUTRON_THREADS
NEUTRON_SMALL size_t neutronGetThreadScratchSize(NeutronModelHandle handle) {
    const Model *model = model_of(handle);
    if (model == NULL) return 0;
    NeutronOpened program;
    neutron_open(model->microcode, &program);
    return neutron_scratch_of_a_thread(&program);
}

NEUTRON_SMALL NeutronError neutronSetThreads(NeutronModelHandle handle, const NeutronThreads *threads) {
    Model *model = model_of(handle);
    if (model == NULL) return ENEUTRON_HANDLE;
    NeutronThreads wanted = {.count = 1};
    if (threads != NULL && threads->count > 1) {
        wanted = *threads;
        if (wanted.parallel == NULL) return ENEUTRON_NULL;
        if (!is_aligned(wanted.scratch)) return ENEUTRON_ALIGNMENT;
        wanted.scratchSize &= ~(size_t)(NEUTRON_ALIGNMENT - 1);
        if (wanted.scratchSize < neutronGetThreadScratchSize(handle)) wanted.scratch = NULL;
        if (wanted.leastWork == 0) wanted.leastWork = NEUTRON_LEAST_SHARED_WORK;
        if (wanted.count > NEUTRON_MAX_THREADS) wanted.count = NEUTRON_MAX_THREADS;
    }
    model->threads = wanted;
    return ENONE;
}
#endif

/* ---- the persistent area: not linked by an application without state ------------------------------------------------- */

#define STATES_OF(header) ((const NeutronState *)(const void *)((const uint32_t *)(header) + (header)->states_offset))

/* Prepare has checked that the records are inside the microcode. */
static bool states_are_sound(const NeutronHeader *header) {
    const NeutronState *state = STATES_OF(header);
    for (uint32_t left = header->state_count; left > 0; --left, ++state) {
        const bool has_source = state->source != NEUTRON_STATE_NO_SOURCE;
        if (!neutron_is_inside(state->offset, state->size, header->state_size)) return false;
        if (has_source && !neutron_is_inside(state->source, state->size, header->weights_size)) return false;
    }
    return true;
}

NEUTRON_SMALL NeutronError neutronReset(NeutronModelHandle handle) {
    const Model *model = model_of(handle);
    if (model == NULL) return ENEUTRON_HANDLE;
    const NeutronHeader *header = model->microcode;
    if (header->state_size == 0) return ENONE;
    if (model->obstacle != ENONE) return model->obstacle;
    memset(model->state, 0, header->state_size);
    const NeutronState *state = STATES_OF(header);
    for (uint32_t left = header->state_count; left > 0; --left, ++state) {
        uint8_t *place = model->state + state->offset;
        if (state->source == NEUTRON_STATE_NO_SOURCE) {
            memset(place, (int)state->fill, state->size);
        } else {
            memcpy(place, (const uint8_t *)model->weights + state->source, state->size);
        }
    }
    if (settings.port.clean_cache != NULL) settings.port.clean_cache(model->state, header->state_size);
    return ENONE;
}

NEUTRON_SMALL NeutronError neutronSetState(NeutronModelHandle handle, void *memory, size_t size_bytes) {
    Model *model = model_of(handle);
    if (model == NULL) return ENEUTRON_HANDLE;
    if (model->obstacle == ENEUTRON_RUNNING) return ENEUTRON_RUNNING;
    const NeutronHeader *header = model->microcode;
    if (!states_are_sound(header)) return ENEUTRON_BUFFER;
    if (size_bytes < header->state_size) return ENEUTRON_STATE_SIZE;
    if (memory == NULL && header->state_size > 0) return ENEUTRON_NULL;
    if (!is_aligned(memory)) return ENEUTRON_ALIGNMENT;
    model->state = memory;
    model->obstacle = ENONE;
    return neutronReset(handle);
}

/* ---- one run -------------------------------------------------------------------------------------------------------- */

typedef struct {
    const Model *model;
    NeutronBases bases;
    NeutronPort port; /* a copy, made when the run begins */
    NeutronOpened program;
    uint8_t *events; /* the caller's buffer, which may be unaligned */
    uint32_t events_left;
    uint32_t modelled_cycles;
    uint32_t start_seconds;
#ifdef NEUTRON_THREADS
    NeutronThreads threads; /* a copy, made when the run begins; its scratch is this run's alone */
#endif
} Run;

static uint32_t run_cycles(const Run *run) {
    return run->port.now_cycles != NULL ? run->port.now_cycles() : run->modelled_cycles;
}

/* Returns whether the next kernel call may begin: the NPU still has power, and time is left. */
static NeutronError may_go_on(const Run *run) {
    if (settings.power != NEUTRON_ON) return ENEUTRON_STATE;
    if (run->port.now_seconds == NULL || run->model->timeout_seconds == 0) return ENONE;
    const uint32_t seconds = run->port.now_seconds() - run->start_seconds; /* right across a wrap of the clock */
    return seconds > run->model->timeout_seconds ? ENEUTRON_TIMEOUT : ENONE;
}

static NeutronError run_call(Run *run, uint32_t opcode, const uint32_t *fields, uint32_t iteration) {
    const NeutronCall *call = (const NeutronCall *)(const void *)fields;
    const uint32_t *params = run->program.words + run->program.operators[call->operator_index];
    const uint32_t id = neutron_code_of(*params++);
    const NeutronKernel *kernel = neutron_find_variant(id, NULL, NULL);
    NeutronError error = ENONE;
    NeutronKernelCall kernel_call = {
        .params = params, .buffers = run->program.view.buffers, .bases = &run->bases, .error = &error};
#ifdef NEUTRON_THREADS
    kernel_call.threads = &run->threads;
#endif
    const NeutronBuffer *output = &kernel_call.buffers[params[kernel->output_word]];
    if (!neutron_call_window(opcode, fields, iteration, output, &kernel_call.window)) return ENONE;
    error = may_go_on(run);
    if (error != ENONE) return error;
    /* Only now: the parameters of an operator whose windows hold nothing were never checked. */
    if (kernel->takes != NULL) kernel = neutron_find_variant(id, run->program.view.buffers, params);

    const NeutronEventPoint start = {0, (uint8_t)id, (uint8_t)call->operator_index, 0, run_cycles(run)};
#ifdef NEUTRON_THREADS
    if (!neutron_run_in_parts(kernel, &kernel_call, &run->program.view, &run->threads))
#endif
        kernel->run(&kernel_call);
    run->modelled_cycles += call->cycles;
    if (run->events_left > 0) {
        NeutronEvent event = {start, start};
        event.stop.opCode = NEUTRON_EVENT_CALL_ENDS;
        event.stop.time = run_cycles(run);
        memcpy(run->events, &event, sizeof event);
        run->events += sizeof event;
        --run->events_left;
    }
    const Model *model = run->model;
    if (model->after_call != NULL) model->after_call(model->user, call->operator_index, id, call->cycles);
    return error;
}

/* The address in this run of an offset in a base's memory. */
static inline uint8_t *place_of(const Run *run, uint32_t base, uint32_t offset) {
    return neutron_base_address(&run->bases, base) + offset;
}

static void run_fetch(Run *run, const NeutronFetch *fetch) {
    uint8_t *destination = place_of(run, fetch->base, fetch->destination);
    const uint8_t *source = run->bases.areas[NEUTRON_AREA(NEUTRON_BASE_WEIGHTS)] + fetch->source;
    if (fetch->size == 0) return;
    if (run->bases.config.copy != NULL) {
        run->bases.config.copy(destination, source, fetch->size, fetch->channel);
        run->bases.channels_open |= 1u << fetch->channel;
    } else {
        memcpy(destination, source, fetch->size);
    }
}

static void run_wait(Run *run, uint32_t channel) {
    if (run->bases.config.wait != NULL) run->bases.config.wait(channel);
    run->bases.channels_open &= ~(1u << channel);
}

/* No transfer outlives its run, however that ended: the caller may reuse the memory at once. */
static void end_transfers(Run *run) {
    for (uint32_t channel = 0; run->bases.channels_open != 0; ++channel) {
        if ((run->bases.channels_open >> channel & 1u) != 0) run_wait(run, channel);
    }
}

static NeutronError run_code(Run *run) {
    const uint32_t *at = run->program.code;
    const uint32_t *body = NULL;
    const uint32_t *body_end = NULL;
    uint32_t iteration = 0;
    uint32_t iterations = 1;
    for (;;) {
        const uint32_t opcode = neutron_code_of(*at);
        const uint32_t *fields = at + 1;
        at = fields + neutron_length_of(*at);
        switch (opcode) {
            case NEUTRON_OP_END:
                return ENONE;
            case NEUTRON_OP_LOOP:
                iterations = ((const NeutronLoop *)(const void *)fields)->count;
                body = at;
                body_end = at + ((const NeutronLoop *)(const void *)fields)->body_words;
                break;
            case NEUTRON_OP_FETCH:
                run_fetch(run, (const NeutronFetch *)(const void *)fields);
                break;
            case NEUTRON_OP_WAIT:
                run_wait(run, ((const NeutronWait *)(const void *)fields)->channel);
                break;
            default: {
                const NeutronError error = run_call(run, opcode, fields, iteration);
                if (error != ENONE) return error;
                break;
            }
        }
        if (at == body_end) {
            if (++iteration < iterations) {
                at = body;
            } else {
                body_end = NULL;
                iteration = 0;
            }
        }
    }
}

static NeutronError check_area(const void *memory, uint32_t size) {
    if (size == 0) return ENONE;
    if (memory == NULL) return ENEUTRON_NULL;
    return is_aligned(memory) ? ENONE : ENEUTRON_ALIGNMENT;
}

static NeutronError check_data(const NeutronHeader *header, const NeutronProgramView *view,
                               const NeutronDataConfig *data) {
    const uint32_t inputs = view->input_count, outputs = view->output_count;
    if (data == NULL || data->outputs == NULL || (data->inputs == NULL && inputs > 0)) return ENEUTRON_NULL;
    for (uint32_t i = 0; i < inputs + outputs; ++i) {
        const void *address = i < inputs ? data->inputs[i] : data->outputs[i - inputs];
        if (address == NULL && view->bindings[i].size > 0) return ENEUTRON_NULL;
    }
    void *const *behind = data->outputs + outputs;
    NeutronError error = check_area(behind[0], neutron_area_size(view, NEUTRON_BASE_SCRATCH));
    if (error == ENONE && header->profile_size > 0 && behind[1] == NULL) error = ENEUTRON_NULL;
    if (error == ENONE) error = check_area(data->scratchWeights, neutron_area_size(view, NEUTRON_BASE_PREFETCH));
#if NEUTRON_REGIONS > 2
    if (error == ENONE && header->debug_size > 0) error = check_area(behind[2], header->debug_size);
#endif
    return error;
}

static bool has_state(const NeutronProgramView *view) { return neutron_area_size(view, NEUTRON_BASE_STATE) > 0; }

/* The port learns of memory that the NPU will read. */
static void take_inputs(const Run *run) {
    const NeutronBinding *binding = run->program.view.bindings;
    for (uint32_t i = 0; i < run->program.view.input_count; ++i, ++binding) {
        const uint8_t *own = run->bases.inputs[i];
        if (binding->size == 0) continue;
        uint8_t *place = place_of(run, binding->base, binding->offset);
        if (place != own) memcpy(place, own, binding->size);
        if (run->port.clean_cache != NULL) run->port.clean_cache(place, binding->size);
    }
}

static void give_outputs(const Run *run) {
    const NeutronProgramView *view = &run->program.view;
    const NeutronBinding *binding = view->bindings + view->input_count;
    for (uint32_t i = 0; i < view->output_count; ++i, ++binding) {
        uint8_t *own = run->bases.outputs[i];
        if (binding->size == 0) continue;
        uint8_t *place = place_of(run, binding->base, binding->offset);
        if (run->port.invalidate_cache != NULL) run->port.invalidate_cache(place, binding->size);
        if (place != own) memcpy(own, place, binding->size);
    }
}

NEUTRON_SMALL NeutronError neutronRunBlocking(NeutronModelHandle handle, const NeutronDataConfig *data) {
    Model *model = model_of(handle);
    if (model == NULL) return ENEUTRON_HANDLE;
    if (settings.power != NEUTRON_ON) return ENEUTRON_STATE;
    Run run = {.model = model, .port = settings.port, .bases.config = settings.config};
    neutron_open(model->microcode, &run.program);
    const NeutronHeader *header = run.program.header;
    const NeutronProgramView *view = &run.program.view;
    NeutronError error = check_data(header, view, data);
    if (error != ENONE) return error;
    if (has_state(view) && model->obstacle != ENONE) return model->obstacle;
    if (has_state(view)) model->obstacle = ENEUTRON_RUNNING; /* others may be in several runs at once */
    run.bases.inputs = data->inputs;
    run.bases.outputs = data->outputs;
    run.bases.areas[NEUTRON_AREA(NEUTRON_BASE_WEIGHTS)] = (uint8_t *)(uintptr_t)model->weights;
    run.bases.areas[NEUTRON_AREA(NEUTRON_BASE_SCRATCH)] = data->outputs[view->output_count];
    run.bases.areas[NEUTRON_AREA(NEUTRON_BASE_PREFETCH)] = data->scratchWeights;
    run.bases.areas[NEUTRON_AREA(NEUTRON_BASE_STATE)] = model->state;
#if NEUTRON_REGIONS > 2
    if (header->debug_size > 0) run.bases.areas[NEUTRON_AREA(NEUTRON_BASE_FAR)] = data->outputs[view->output_count + 2];
#endif
    if (header->profile_size > 0) {
        run.events = data->outputs[view->output_count + 1];
        run.events_left = header->profile_size / (uint32_t)sizeof(NeutronEvent);
    }
    if (run.port.now_seconds != NULL) run.start_seconds = run.port.now_seconds();
#ifdef NEUTRON_THREADS
    run.threads = model->threads;
    const bool takes_scratch = run.threads.scratch != NULL && !atomic_flag_test_and_set(&model->scratch_is_used);
    if (!takes_scratch) run.threads.scratch = NULL;
#endif
    take_inputs(&run);
    error = run_code(&run);
    end_transfers(&run);
#ifdef NEUTRON_THREADS
    if (takes_scratch) atomic_flag_clear(&model->scratch_is_used);
#endif
    if (has_state(view)) model->obstacle = ENONE;
    if (run.events_left > 0) memset(run.events, 0, run.events_left * sizeof(NeutronEvent));
    if (error == ENONE) give_outputs(&run);
    return error;
}
