/* SPDX-License-Identifier: BSD-3-Clause */
/* Random mutations of programs, against the driver and its kernels: fuzz SEED FIRST COUNT PROGRAM...
 *
 * A PROGRAM file is two words (bytes of microcode, bytes of weights) and the two blobs. Mutation number n is the same in
 * every run and on every machine: it depends on SEED and n alone. Its checksum is made anew, so that validation is
 * reached. Everything the driver may touch is allocated at exactly its size, so that the address sanitizer sees one byte
 * too many. What validation accepts is run. Prints how many ended in which error (0: a run); on a sanitizer's report, the
 * number of the mutation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../runtime/random_numbers.h"
#include "driver.h"

/* Programs that want more memory than this are checked but not run: there would be no such buffer. */
#define MAX_MEMORY (UINT64_C(1) << 24)
#define MAX_PROGRAMS 512
#define MAX_CODES 32

typedef struct {
    uint32_t microcode_size, weights_size;
    uint32_t *microcode;
    uint8_t *weights;
} Program;

static uint32_t below(uint32_t bound) { return bound == 0 ? 0 : random_word() % bound; }

/* ---- mutations ------------------------------------------------------------------------------------------------------ */

static const uint32_t interesting[] = {
    0,          1,          2,          3,          7,          8,          9,          15,         16,
    17,         31,         32,         63,         64,         127,        128,        255,        256,
    0xFFFF,     0x10000,    0x7FFFFFF,  0x3FFFFFFF, 0x40000000, 0x7FFFFFF0, 0x7FFFFFFE, 0x7FFFFFFF, 0x80000000,
    0x80000001, 0xFFFFFFF0, 0xFFFFFFF8, 0xFFFFFFFD, 0xFFFFFFFE, 0xFFFFFFFF,
};

static void mutate_word(uint32_t *word, const uint32_t *other) {
    switch (below(8)) {
        case 0:
            *word ^= UINT32_C(1) << below(32);
            break;
        case 1:
            *word = interesting[below(sizeof interesting / sizeof interesting[0])];
            break;
        case 2:
            *word = *other;
            break;
        case 3:
            *word <<= 1;
            break;
        case 4:
            *word >>= 1;
            break;
        case 5:
            *word = random_word();
            break;
        default: /* a small step is what most often stays valid, or nearly */
            *word += below(2) == 0 ? 1 + below(4) : UINT32_MAX - below(4);
            break;
    }
}

static bool inside(const Program *program, uint64_t word, uint64_t count) {
    return (word + count) * 4 <= program->microcode_size;
}

/* A word of one kind of record, by the header's own offsets; any word where they lead nowhere. */
static uint32_t *choose_word(Program *program) {
    uint32_t *words = program->microcode;
    const NeutronHeader *header = (const NeutronHeader *)words;
    const uint32_t any = below(program->microcode_size / 4);
    uint32_t at = any;
    switch (below(8)) {
        case 0:
            at = 3 + below(sizeof *header / 4 - 3);
            break;
        case 1:
            at = header->bindings_offset + below(3 * (header->input_count + header->output_count));
            break;
        case 2:
        case 3:
            at = header->buffers_offset + below(header->buffer_count * (uint32_t)(sizeof(NeutronBuffer) / 4));
            break;
        case 4:
        case 5: {
            const uint32_t entry = header->operators_offset + below(header->operator_count);
            if (!inside(program, entry, 1) || !inside(program, words[entry], 1)) return &words[any];
            at = words[entry] + below(1 + neutron_length_of(words[words[entry]]));
            break;
        }
        case 6:
            if (header->state_count > 0 && below(2) == 0) {
                at = header->states_offset + below(header->state_count * (uint32_t)(sizeof(NeutronState) / 4));
                break;
            }
            at = header->code_offset + below(header->code_words);
            break;
        default:
            break;
    }
    return inside(program, at, 1) ? &words[at] : &words[any];
}

static void mutate_weights(Program *program) {
    if (program->weights_size < 4) return;
    uint32_t word, other;
    uint8_t *at = program->weights + 4 * below(program->weights_size / 4);
    memcpy(&word, at, 4);
    memcpy(&other, program->weights + 4 * below(program->weights_size / 4), 4);
    mutate_word(&word, &other);
    memcpy(at, &word, 4);
}

static void mutate(Program *program) {
    for (uint32_t count = 1 + below(3); count > 0; --count) {
        if (below(8) == 0) {
            mutate_weights(program);
        } else {
            uint32_t *word = choose_word(program);
            mutate_word(word, choose_word(program));
        }
    }
    NeutronHeader *header = (NeutronHeader *)program->microcode;
    if (header->microcode_size <= program->microcode_size && below(64) != 0) {
        header->microcode_crc = neutron_microcode_crc(header, header->microcode_size);
    }
}

/* ---- one mutation --------------------------------------------------------------------------------------------------- */

static void *exactly(size_t size) {
    void *memory = NULL;
    if (posix_memalign(&memory, NEUTRON_ALIGNMENT, size) != 0) abort();
    for (size_t i = 0; i < size; ++i) ((uint8_t *)memory)[i] = (uint8_t)random_word();
    return memory;
}

static Program copied(const Program *seed) {
    Program program = *seed;
    program.microcode = exactly(seed->microcode_size);
    program.weights = exactly(seed->weights_size);
    memcpy(program.microcode, seed->microcode, seed->microcode_size);
    memcpy(program.weights, seed->weights, seed->weights_size);
    return program;
}

static uint64_t memory_needed(const NeutronOpened *opened) {
    const NeutronHeader *header = opened->header;
    uint64_t size = (uint64_t)header->scratch_size + header->profile_size + header->prefetch_size + header->state_size;
    for (uint32_t i = 0; i < header->input_count + header->output_count; ++i) size += opened->view.bindings[i].size;
    return size;
}

static uint32_t added(uint32_t sum, const uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; ++i) sum = (sum ^ bytes[i]) * UINT32_C(16777619);
    return sum;
}

#ifdef NEUTRON_THREADS
static void backwards(uint32_t count, void (*part)(void *context, uint32_t number), void *context) {
    while (count > 0) part(context, --count);
}
#endif

/* A driver of the NPU that reads a job's operand and writes its results. Blocks of a sanitizer are mostly too far apart for a job. */
static NeutronError matmul(const void *header, int header_size, const void *operand, int operand_size, const void *results,
                           int results_size, int slot) {
    (void)slot;
    const uint32_t sum = added(added(0, header, (size_t)header_size), operand, (size_t)operand_size);
    memset((void *)(uintptr_t)results, (int)(sum & 0xFF), (size_t)results_size);
    return sum % 64 == 0 ? ENEUTRON_JOB : ENONE;
}

static NeutronError clean_cache(const void *address, int size) { return added(0, address, (size_t)size) == 0 ? ENEUTRON_JOB : ENONE; }

static bool is_of_jobs(NeutronError error) { return error == ENEUTRON_JOB || error == ENEUTRON_JOB_MEMORY; }

/* How a run computes each call: in up to `count` parts, the last part first, with scratch of their own or without. */
typedef struct {
    uint32_t count;
    bool has_scratch;
} Division;

/* Returns the division's scratch. */
static void *divide(NeutronModelHandle handle, Division division) {
#ifdef NEUTRON_THREADS
    const size_t size = neutronGetThreadScratchSize(handle);
    void *scratch = division.has_scratch ? exactly(size * division.count) : NULL;
    const NeutronThreads threads = {division.count, 1, backwards, scratch, size};
    if (neutronSetThreads(handle, &threads) != ENONE) abort();
    return scratch;
#else
    (void)handle, (void)division;
    return NULL;
#endif
}

/* The runs of one program on random memory, the same for each call of this function with the same random_state. *sum gets a checksum of the
 * outputs and the states. */
static NeutronError run(const NeutronModelConfig *config, const NeutronOpened *opened, Division division, uint32_t *sum) {
    const NeutronHeader *header = opened->header;
    const uint32_t inputs = header->input_count;
    const uint32_t outputs = header->output_count;
    void *memory[2 * 256 + 3];
    const void *input_pointers[256];
    void *output_pointers[256 + 3];
    for (uint32_t i = 0; i < inputs + outputs; ++i) memory[i] = exactly(opened->view.bindings[i].size);
    for (uint32_t i = 0; i < inputs; ++i) input_pointers[i] = memory[i];
    memcpy(output_pointers, memory + inputs, outputs * sizeof memory[0]);
    output_pointers[outputs] = exactly(header->scratch_size);
    output_pointers[outputs + 1] = exactly(header->profile_size);
    output_pointers[outputs + 2] = NULL;
    void *prefetch = exactly(header->prefetch_size), *state = exactly(header->state_size);
    const NeutronDataConfig data = {input_pointers, output_pointers, NULL, prefetch};
    NeutronModelHandle handle = NULL;
    NeutronError error = neutronModelPrepare(config, &handle);
    if (error != ENONE) abort(); /* it must agree with neutronModelCheck */
    error = neutronSetState(handle, state, header->state_size);
    void *scratch = divide(handle, division);
    if (error == ENONE) error = neutronRunBlocking(handle, &data);
    if (error == ENONE && header->state_size > 0) error = neutronRunBlocking(handle, &data);
    neutronModelUnprepare(handle);
    *sum = added(0, state, header->state_size);
    for (uint32_t i = inputs; i < inputs + outputs; ++i) *sum = added(*sum, memory[i], opened->view.bindings[i].size);
    for (uint32_t i = 0; i < inputs + outputs; ++i) free(memory[i]);
    free(output_pointers[outputs]);
    free(output_pointers[outputs + 1]);
    free(prefetch);
    free(state);
    free(scratch);
    return error;
}

static int32_t check_and_run(const Program *program) {
    const NeutronModelConfig config = {program->microcode, program->weights, NULL, 0};
    uint32_t detail;
    NeutronError error = neutronModelCheck(&config, program->microcode_size, program->weights_size, &detail);
    if (error != ENONE) return GET_ERROR_CODE(error);
    NeutronOpened opened;
    neutron_open(program->microcode, &opened);
    if (memory_needed(&opened) > MAX_MEMORY) return GET_ERROR_CODE(ENEUTRON_MEMORY);
    uint32_t sum, divided_sum;
    const uint64_t state = random_state;
    error = run(&config, &opened, (Division){1, false}, &sum);
#ifdef NEUTRON_THREADS
    const uint32_t parts = 2 + below(3);
    random_state = state;
    const NeutronError divided = run(&config, &opened, (Division){parts, false}, &divided_sum);
    if (divided != error || (error == ENONE && divided_sum != sum)) abort(); /* a part wrote what another one reads */
    /* A mutation can read scratch that nothing wrote, so that results may differ. */
    random_state = state;
    run(&config, &opened, (Division){parts, true}, &divided_sum);
#else
    (void)state, (void)divided_sum;
#endif
    /* Once validation has passed, nothing but a null pointer, an index among the inputs, the states' records and a job can go wrong. */
    if (error != ENONE && error != ENEUTRON_INDEX && error != ENEUTRON_BUFFER && !is_of_jobs(error)) abort();
    return GET_ERROR_CODE(error);
}

/* ---- the command ---------------------------------------------------------------------------------------------------- */

static uint32_t current;

extern void __sanitizer_set_death_callback(void (*callback)(void));

static void tell_which(void) { fprintf(stderr, "mutation %u\n", current); }

static Program loaded(const char *path) {
    Program program;
    FILE *file = fopen(path, "rb");
    if (file == NULL || fread(&program, 4, 2, file) != 2) {
        fprintf(stderr, "%s can't be read\n", path);
        exit(2);
    }
    program.microcode = exactly(program.microcode_size);
    program.weights = exactly(program.weights_size);
    const bool whole = fread(program.microcode, 1, program.microcode_size, file) == program.microcode_size &&
                       fread(program.weights, 1, program.weights_size, file) == program.weights_size;
    fclose(file);
    const int32_t ended = whole ? check_and_run(&program) : -1;
    if (ended != 0 && ended != GET_ERROR_CODE(ENEUTRON_INDEX) && ended != GET_ERROR_CODE(ENEUTRON_JOB) &&
        ended != GET_ERROR_CODE(ENEUTRON_JOB_MEMORY)) {
        fprintf(stderr, "%s is not a sound program\n", path);
        exit(2);
    }
    return program;
}

int main(int count, char **arguments) {
    static Program programs[MAX_PROGRAMS];
    uint32_t ended[MAX_CODES] = {0};
    if (count < 5 || count - 4 > MAX_PROGRAMS) return 2;
    const uint64_t seed = strtoull(arguments[1], NULL, 10);
    const uint32_t first = (uint32_t)strtoul(arguments[2], NULL, 10);
    const uint32_t mutations = (uint32_t)strtoul(arguments[3], NULL, 10);
    const uint32_t program_count = (uint32_t)count - 4;
    __sanitizer_set_death_callback(tell_which);
    neutronInit();
    neutronSetJobs(&(NeutronJobs){matmul, clean_cache});
    for (uint32_t i = 0; i < program_count; ++i) programs[i] = loaded(arguments[4 + i]);
    for (uint32_t i = 0; i < mutations; ++i) {
        current = first + i;
        seed_numbers(seed ^ (uint64_t)current << 32);
        Program program = copied(&programs[current % program_count]);
        mutate(&program);
        ++ended[check_and_run(&program) % MAX_CODES];
        free(program.microcode);
        free(program.weights);
    }
    for (uint32_t i = 0; i < program_count; ++i) {
        free(programs[i].microcode);
        free(programs[i].weights);
    }
    for (uint32_t code = 0; code < MAX_CODES; ++code) {
        if (ended[code] > 0) printf("%u %u\n", code, ended[code]);
    }
    return 0;
}
