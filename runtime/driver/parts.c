/* SPDX-License-Identifier: BSD-3-Clause */
/* Divides kernel calls among threads. Each part computes a window inside the call's window, so that no bit depends on the number of parts.
 *
 * A call is divided only where no part writes a byte that another part reads or writes. That is decided in the run, by addresses: parts.def has
 * the words of each kernel that lead to memory, and the microcode has nothing about threads that could be wrong. */
#include "parts.h"

#ifdef NEUTRON_THREADS

#include <string.h>

#include "elements.h"
#include "work.h"

enum { BY_BATCHES = 1, BY_ROWS = 2, BY_COLS = 4, BY_CHANNELS = 8, AXES = 4 };

/* What a parameter leads to. NOTHING ends a list. READ_IN_PLACE: an element of the output needs the same element alone. */
typedef enum { NOTHING, READ, READ_IN_PLACE, WRITTEN, SCRATCH, CONSTANT } Role;

enum { MOST_PLACES = 16, MOST_PARAMS = 96 };

typedef struct {
    uint8_t word, role, element_bytes;
} Place;

/* group_word: the parameter with the channels of a group, which parts keep together; 0: there is none. */
typedef struct {
    uint8_t id, axes, group_word;
    Place places[MOST_PLACES];
} Divisible;

static const Divisible *find_divisible(uint32_t id) {
    static const Divisible kernels[] = {
#define NEUTRON_PARTS(id, axes, group_word, ...) {id, axes, group_word, {__VA_ARGS__}},
#include "parts.def"
#undef NEUTRON_PARTS
    };
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; ++i) {
        if (kernels[i].id == id) return &kernels[i];
    }
    return NULL;
}

/* ---- the memory of a call ------------------------------------------------------------------------------------------- */

/* Addresses [first, end). */
typedef struct {
    uintptr_t first, end;
} Memory;

static Memory memory_of(const NeutronBases *bases, const NeutronBuffer *buffer, uint32_t element_bytes) {
    const uintptr_t base = (uintptr_t)neutron_base_address(bases, buffer->base);
    return (Memory){base + buffer->offset, base + (uintptr_t)neutron_last_offset(buffer) + element_bytes};
}

/* A constant's size is its kernel's matter: it may reach to the end of its base. */
static Memory memory_of_constant(const NeutronKernelCall *call, const NeutronProgramView *view, const uint32_t *words) {
    const uint32_t size = neutron_base_size(view, words[0], false);
    if (words[1] >= size) return (Memory){0, 0}; /* the call reads none */
    const uintptr_t base = (uintptr_t)neutron_base_address(call->bases, words[0]);
    return (Memory){base + words[1], base + size};
}

static bool overlap(Memory a, Memory b) { return a.first < b.end && b.first < a.end; }

static bool is_same_place(const NeutronBuffer *a, const NeutronBuffer *b) {
    return a->base == b->base && a->offset == b->offset && a->batch_pitch == b->batch_pitch && a->row_pitch == b->row_pitch &&
           a->col_pitch == b->col_pitch && a->channel_pitch == b->channel_pitch && a->ring == b->ring && a->col0 == b->col0 &&
           a->channel0 == b->channel0;
}

/* Each element of the window has bytes of its own. */
static bool elements_are_apart(const NeutronBuffer *output, const NeutronWindowExtents *w, uint32_t element_bytes) {
    const int64_t counts[AXES] = {w->batch1 - w->batch0, w->row1 - w->row0 > 1 ? output->ring : 1, w->col1 - w->col0,
                                  w->channel1 - w->channel0};
    const int64_t pitches[AXES] = {output->batch_pitch, output->row_pitch, output->col_pitch, output->channel_pitch};
    if (w->row1 - w->row0 > output->ring) return false;
    bool is_done[AXES] = {false};
    int64_t inner = element_bytes; /* bytes from the first to the last element of the axes that are done */
    for (int i = 0; i < AXES; ++i) {
        int next = -1;
        for (int axis = 0; axis < AXES; ++axis) {
            if (!is_done[axis] && (next < 0 || pitches[axis] < pitches[next])) next = axis;
        }
        is_done[next] = true;
        if (counts[next] <= 1) continue;
        if (pitches[next] < inner) return false;
        inner += (counts[next] - 1) * pitches[next];
    }
    return true;
}

/* The memory that a call writes: its output, and what its buffers of scratch hold. */
typedef struct {
    const NeutronBuffer *output;
    uint32_t output_bytes; /* of an element */
    Memory written[MOST_PLACES];
    size_t count, scratch_count;
    uintptr_t scratch_first; /* the lowest address of scratch */
} Results;

/* false: scratch is outside of the scratch buffer. */
static bool find_results(const Divisible *kernel, const NeutronKernelCall *call, Results *found) {
    const uint32_t *params = call->params;
    found->output = NULL;
    found->output_bytes = 0;
    found->count = found->scratch_count = 0;
    found->scratch_first = UINTPTR_MAX;
    for (const Place *place = kernel->places; place->role != NOTHING; ++place) {
        if (place->role != WRITTEN && place->role != SCRATCH) continue;
        const NeutronBuffer *buffer = &call->buffers[params[place->word]];
        const Memory memory = memory_of(call->bases, buffer, place->element_bytes);
        found->written[found->count++] = memory;
        if (place->role == WRITTEN) {
            found->output = buffer;
            found->output_bytes = place->element_bytes;
            continue;
        }
        if (buffer->base != NEUTRON_BASE_SCRATCH) return false;
        ++found->scratch_count;
        if (memory.first < found->scratch_first) found->scratch_first = memory.first;
    }
    return true;
}

static bool is_written(const Results *results, Memory memory) {
    for (size_t i = 0; i < results->count; ++i) {
        if (overlap(results->written[i], memory)) return true;
    }
    return false;
}

/* No part of the call writes what another one reads or writes, if each part has scratch of its own. */
static bool parts_are_apart(const Divisible *kernel, const NeutronKernelCall *call, const NeutronProgramView *view,
                            const Results *results) {
    const uint32_t *params = call->params;
    const NeutronBuffer *output = results->output;
    if (!elements_are_apart(output, &call->window, results->output_bytes)) return false;
    for (const Place *place = kernel->places; place->role != NOTHING; ++place) {
        if (place->role == CONSTANT) {
            if (is_written(results, memory_of_constant(call, view, params + place->word))) return false;
            continue;
        }
        const NeutronBuffer *buffer = &call->buffers[params[place->word]];
        const Memory memory = memory_of(call->bases, buffer, place->element_bytes);
        if (place->role == SCRATCH) {
            /* The first part's is in the arena, where the others write their output. */
            if (overlap(memory, memory_of(call->bases, output, results->output_bytes))) return false;
        } else if (place->role == READ || place->role == READ_IN_PLACE) {
            const bool is_own = place->role == READ_IN_PLACE && place->element_bytes == results->output_bytes;
            if (!(is_own && is_same_place(buffer, output)) && is_written(results, memory)) return false;
        }
    }
    return true;
}

/* ---- the division --------------------------------------------------------------------------------------------------- */

/* `units` of an axis, each of them `size` rows, columns or other places. */
typedef struct {
    int32_t *first, *end; /* in the window to divide */
    int32_t size, units;
} Axis;

/* Channels begin at a multiple of NEUTRON_LANES, as those of instructions do, and the channels of a group stay together. */
static int32_t channels_of_a_unit(const Divisible *kernel, const uint32_t *params) {
    if (kernel->group_word == 0) return NEUTRON_LANES;
    const int32_t group = (int32_t)params[kernel->group_word];
    for (int32_t size = NEUTRON_LANES; size <= INT16_MAX; size += NEUTRON_LANES) {
        if (size % group == 0) return size;
    }
    return INT32_MAX;
}

/* The axis with the smallest share for the thread that has the most; the outermost one of several. */
static Axis choose_axis(const Divisible *kernel, const uint32_t *params, NeutronWindowExtents *w, uint32_t threads) {
    const Axis axes[AXES] = {{&w->batch0, &w->batch1, 1, 0},
                             {&w->row0, &w->row1, 1, 0},
                             {&w->col0, &w->col1, 1, 0},
                             {&w->channel0, &w->channel1, channels_of_a_unit(kernel, params), 0}};
    Axis best = {NULL, NULL, 1, 1};
    int64_t best_most = 1;
    for (int i = 0; i < AXES; ++i) {
        Axis axis = axes[i];
        if ((kernel->axes >> i & 1) == 0 || *axis.first % axis.size != 0) continue;
        axis.units = (int32_t)(((int64_t)*axis.end - *axis.first + axis.size - 1) / axis.size);
        const int64_t most = ((int64_t)axis.units + threads - 1) / threads;
        if (most * best.units < best_most * axis.units) {
            best = axis;
            best_most = most;
        }
    }
    return best;
}

/* ---- scratch of a part ---------------------------------------------------------------------------------------------- */

/* A base that no microcode can name: memory of one part. */
#define BASE_OWN (NEUTRON_LAST_BASE + 1)

/* The parameters, buffers and bases of a part whose scratch is its own. */
typedef struct {
    uint32_t params[MOST_PARAMS];
    NeutronBuffer buffers[MOST_PLACES];
    NeutronBases bases;
} Own;

static void use_own_scratch(const Divisible *kernel, uint32_t params_words, uint8_t *memory, uint32_t first_offset, Own *own,
                            NeutronKernelCall *part) {
    const uint32_t *params = part->params;
    memcpy(own->params, params, params_words * sizeof *params);
    own->bases = *part->bases;
    own->bases.areas[NEUTRON_AREA(BASE_OWN)] = memory;
    uint32_t count = 0;
    for (const Place *place = kernel->places; place->role != NOTHING; ++place) {
        if (place->role == CONSTANT) continue;
        NeutronBuffer *buffer = &own->buffers[count];
        *buffer = part->buffers[params[place->word]];
        if (place->role == SCRATCH) {
            buffer->base = BASE_OWN;
            buffer->offset -= first_offset;
        }
        own->params[place->word] = count++;
    }
    part->params = own->params;
    part->buffers = own->buffers;
    part->bases = &own->bases;
}

uint32_t neutron_scratch_of_a_thread(const NeutronOpened *program) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < program->header->operator_count; ++i) {
        const uint32_t *params = program->words + program->operators[i];
        const Divisible *kernel = find_divisible(neutron_code_of(*params++));
        uint64_t first = UINT64_MAX, end = 0;
        for (const Place *place = kernel != NULL ? kernel->places : NULL; place != NULL && place->role != NOTHING; ++place) {
            if (place->role != SCRATCH || params[place->word] >= program->view.buffer_count) continue;
            const NeutronBuffer *buffer = &program->view.buffers[params[place->word]];
            const uint64_t behind = neutron_last_offset(buffer) + place->element_bytes;
            if (buffer->offset < first) first = buffer->offset;
            if (behind > end) end = behind;
        }
        if (end > first && end - first > most) most = end - first;
    }
    return (uint32_t)((most + NEUTRON_ALIGNMENT - 1) & ~(uint64_t)(NEUTRON_ALIGNMENT - 1));
}

/* ---- a call in parts ------------------------------------------------------------------------------------------------ */

typedef struct {
    NeutronKernelRun run;
    NeutronKernelCall calls[NEUTRON_MAX_THREADS];
    NeutronError errors[NEUTRON_MAX_THREADS];
    Own own[NEUTRON_MAX_THREADS - 1];
} Parts;

static void run_part(void *context, uint32_t number) {
    const Parts *parts = context;
    parts->run(&parts->calls[number]);
}

bool neutron_run_in_parts(const NeutronKernel *kernel, const NeutronKernelCall *call, const NeutronProgramView *view,
                          const NeutronThreads *threads) {
    if (threads->count < 2) return false;
    if (neutron_call_work(view, kernel, call->params, &call->window) < threads->leastWork) return false;
    const Divisible *divisible = find_divisible(kernel->id);
    Results results;
    if (divisible == NULL || kernel->params_words > MOST_PARAMS || !find_results(divisible, call, &results)) return false;
    const bool has_scratch = results.scratch_count > 0;
    if ((has_scratch && threads->scratch == NULL) || !parts_are_apart(divisible, call, view, &results)) return false;
    NeutronWindowExtents window = call->window;
    const Axis axis = choose_axis(divisible, call->params, &window, threads->count);
    const uint32_t count = (uint32_t)axis.units < threads->count ? (uint32_t)axis.units : threads->count;
    if (count < 2) return false;

    const int32_t first = *axis.first, end = *axis.end;
    const uint8_t *arena = call->bases->areas[NEUTRON_AREA(NEUTRON_BASE_SCRATCH)];
    Parts parts;
    parts.run = kernel->run;
    for (uint32_t i = 0; i < count; ++i) {
        NeutronKernelCall *part = &parts.calls[i];
        const int64_t behind = first + axis.size * ((int64_t)axis.units * (i + 1) / count);
        *axis.first = (int32_t)(first + axis.size * ((int64_t)axis.units * i / count));
        *axis.end = behind < end ? (int32_t)behind : end;
        *part = *call;
        part->window = window;
        part->error = &parts.errors[i];
        parts.errors[i] = ENONE;
        if (!kernel->check(view, call->params, &window)) return false;
        if (has_scratch && i > 0) {
            uint8_t *memory = (uint8_t *)threads->scratch + threads->scratchSize * (i - 1);
            use_own_scratch(divisible, kernel->params_words, memory, (uint32_t)(results.scratch_first - (uintptr_t)arena),
                            &parts.own[i - 1], part);
        }
    }
    threads->parallel(count, run_part, &parts);
    for (uint32_t i = count; i > 0; --i) {
        if (parts.errors[i - 1] != ENONE) *call->error = parts.errors[i - 1];
    }
    return true;
}

#endif
