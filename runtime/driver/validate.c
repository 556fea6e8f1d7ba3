/* SPDX-License-Identifier: BSD-3-Clause */
/* Validation of a microcode, once at prepare. What it accepts can be run without any further check. No word is trusted:
 * each is compared before it is used, and offsets and counts are added as 64-bit numbers. */
#include "driver.h"
#include "work.h"

/* Far above any graph's needs and small enough for the index in a base word. */
#define MAX_BINDINGS 256u

/* The place of a field in the header. */
#define WORD(field) (offsetof(NeutronHeader, field) / 4)

/* The work of an instruction beside that of its kernel: about the cost of its check and its dispatch. */
#define INSTRUCTION_WORK 256u

typedef struct {
    NeutronOpened program;
    uint32_t word_count, checks;
    uint64_t work;
    uint32_t *detail;
} Validation;

static uint32_t word_offset(const Validation *v, const void *at) {
    return (uint32_t)((const uint32_t *)at - v->program.words);
}

static NeutronError refused(Validation *v, NeutronError error, uint32_t detail) {
    *v->detail = detail;
    return error;
}

/* ---- the header and its sections ----------------------------------------------------------------------------------- */

static NeutronError check_header(Validation *v, size_t microcode_size, size_t weights_size) {
    const NeutronHeader *header = v->program.header;
    if (microcode_size < sizeof *header) return refused(v, ENEUTRON_TRUNCATED, (uint32_t)microcode_size);
    if (header->magic != NEUTRON_MAGIC) return refused(v, ENEUTRON_MAGIC, header->magic);
    const uint32_t version = header->format_version;
    if (version != NEUTRON_FORMAT_VERSION) {
        const bool is_ours = version >> 16 == NEUTRON_FORMAT_VERSION >> 16;
        return refused(v, is_ours ? ENEUTRON_VERSION : ENEUTRON_FOREIGN, version);
    }
    const uint32_t size = header->microcode_size;
    if (size > microcode_size) return refused(v, ENEUTRON_TRUNCATED, size);
    if (size < sizeof *header || size % NEUTRON_ALIGNMENT != 0) {
        return refused(v, ENEUTRON_LAYOUT, WORD(microcode_size));
    }
    if (neutron_microcode_crc(header, size) != header->microcode_crc) {
        return refused(v, ENEUTRON_CHECKSUM, header->microcode_crc);
    }
    if (header->weights_size > weights_size) return refused(v, ENEUTRON_TRUNCATED, header->weights_size);
    v->word_count = size / 4;
    if (header->flags != 0) return refused(v, ENEUTRON_LAYOUT, WORD(flags));
    for (uint32_t i = WORD(reserved0); i < sizeof *header / 4; ++i) {
        if (v->program.words[i] != 0) return refused(v, ENEUTRON_LAYOUT, i);
    }
    return ENONE;
}

/* Words of the header: where a section begins, how many records it has, and how many words each of those. */
typedef struct {
    uint8_t offset, count, record_words;
} Section;

static NeutronError check_sections(Validation *v) {
    static const Section sections[] = {
        {WORD(bindings_offset), WORD(input_count), sizeof(NeutronBinding) / 4},
        {WORD(buffers_offset), WORD(buffer_count), sizeof(NeutronBuffer) / 4},
        {WORD(operators_offset), WORD(operator_count), 1},
        {WORD(code_offset), WORD(code_words), 1},
        {WORD(states_offset), WORD(state_count), sizeof(NeutronState) / 4},
    };
    const uint32_t *header = v->program.words;
    const uint32_t inputs = header[WORD(input_count)], outputs = header[WORD(output_count)];
    if (inputs >= MAX_BINDINGS) return refused(v, ENEUTRON_LAYOUT, WORD(input_count));
    if (outputs >= MAX_BINDINGS) return refused(v, ENEUTRON_LAYOUT, WORD(output_count));
    for (size_t i = 0; i < sizeof sections / sizeof *sections; ++i) {
        const Section *section = &sections[i];
        const uint64_t count = (uint64_t)header[section->count] + (i == 0 ? outputs : 0);
        if (!neutron_is_inside(header[section->offset], count * section->record_words, v->word_count)) {
            return refused(v, ENEUTRON_LAYOUT, section->offset);
        }
    }
    return ENONE;
}

/* Returns whether a range is inside the scratch, the prefetch or the far buffer. */
static bool is_in_sram(const NeutronProgramView *view, uint32_t base, uint32_t offset, uint32_t size) {
    bool is_sram = base == NEUTRON_BASE_SCRATCH || base == NEUTRON_BASE_PREFETCH;
#if NEUTRON_REGIONS > 2
    is_sram = is_sram || base == NEUTRON_BASE_FAR;
#endif
    return is_sram &&
           neutron_is_inside(offset, size, neutron_area_size(view, base));
}

static NeutronError check_bindings(Validation *v) {
    const NeutronProgramView *view = &v->program.view;
    for (uint32_t i = 0; i < view->input_count + view->output_count; ++i) {
        const NeutronBinding *binding = &view->bindings[i];
        const bool is_input = i < view->input_count;
        const uint32_t index = is_input ? i : i - view->input_count;
        const uint32_t own = (is_input ? NEUTRON_BASE_INPUT : NEUTRON_BASE_OUTPUT) | index << 8;
        const bool in_own = binding->base == own && binding->offset == 0;
        if (!in_own && !is_in_sram(view, binding->base, binding->offset, binding->size)) {
            return refused(v, ENEUTRON_BUFFER, word_offset(v, binding));
        }
    }
    return ENONE;
}

static NeutronError check_buffers(Validation *v) {
    const NeutronProgramView *view = &v->program.view;
    for (uint32_t i = 0; i < view->buffer_count; ++i) {
        if (!neutron_buffer_is_sound(view, &view->buffers[i])) {
            return refused(v, ENEUTRON_BUFFER, word_offset(v, &view->buffers[i]));
        }
    }
    return ENONE;
}

static NeutronError check_operators(Validation *v) {
    for (uint32_t i = 0; i < v->program.header->operator_count; ++i) {
        const uint32_t at = v->program.operators[i];
        if (at >= v->word_count) return refused(v, ENEUTRON_LAYOUT, word_offset(v, &v->program.operators[i]));
        const uint32_t word = v->program.words[at];
        const NeutronKernel *kernel = neutron_find_variant(neutron_code_of(word), NULL, NULL);
        if (kernel == NULL) {
            return refused(v, getNeutronKernelError(neutron_code_of(word), 0), neutron_code_of(word));
        }
        const uint32_t length = neutron_length_of(word);
        if (length != kernel->params_words || length >= v->word_count - at) {
            return refused(v, ENEUTRON_LAYOUT, at);
        }
        const uint32_t output = v->program.words[at + 1 + kernel->output_word];
        if (neutron_checked_buffer(&v->program.view, output, true) == NULL) return refused(v, ENEUTRON_CALL, at);
    }
    return ENONE;
}

/* ---- how long a run can take ---------------------------------------------------------------------------------------- */

static bool add_work(Validation *v, uint64_t work) {
    v->work += work;
    return v->work <= NEUTRON_MAX_WORK;
}

/* ---- the code ------------------------------------------------------------------------------------------------------- */

static NeutronError check_call(Validation *v, uint32_t opcode, const uint32_t *fields, uint32_t iterations) {
    const uint32_t at = word_offset(v, fields) - 1;
    const uint32_t operator_index = ((const NeutronCall *)(const void *)fields)->operator_index;
    if (operator_index >= v->program.header->operator_count) return refused(v, ENEUTRON_INSTRUCTION, at);
    if (opcode == NEUTRON_OP_WINDOW &&
        ((const NeutronWindow *)(const void *)fields)->channel0 % NEUTRON_LANES != 0) {
        return refused(v, ENEUTRON_INSTRUCTION, at);
    }
    const uint32_t *params = v->program.words + v->program.operators[operator_index];
    const uint32_t id = neutron_code_of(*params++);
    const NeutronKernel *kernel = neutron_find_variant(id, NULL, NULL);
    const NeutronBuffer *output = &v->program.view.buffers[params[kernel->output_word]];
    /* A window that does not move is the same in every iteration. */
    const bool moves = opcode != NEUTRON_OP_CALL && ((const NeutronRows *)(const void *)fields)->step != 0;
    const uint32_t windows = moves ? iterations : 1, times = moves ? 1 : iterations;
    v->checks += windows;
    if (v->checks > NEUTRON_MAX_CHECKS) return refused(v, ENEUTRON_WORK, at);
    /* Each of them, not the first and last alone: clipping can make those two the smallest. */
    for (uint32_t i = 0; i < windows; ++i) {
        NeutronWindowExtents window;
        if (!neutron_call_window(opcode, fields, i, output, &window)) continue;
        if (!kernel->check(&v->program.view, params, &window)) return refused(v, ENEUTRON_CALL, at);
        if (neutron_find_variant(id, v->program.view.buffers, params) == NULL) {
            return refused(v, getNeutronKernelError(id, 1), id);
        }
        const uint64_t work = neutron_bounded_product(neutron_call_work(&v->program.view, kernel, params, &window), times);
        if (!add_work(v, work)) return refused(v, ENEUTRON_WORK, at);
    }
    return ENONE;
}

static NeutronError check_fetch(Validation *v, const uint32_t *fields, uint32_t iterations) {
    const NeutronFetch *fetch = (const NeutronFetch *)(const void *)fields;
    const NeutronProgramView *view = &v->program.view;
    const uint32_t at = word_offset(v, fields) - 1;
    if (fetch->channel >= NEUTRON_CHANNELS ||
        !neutron_is_inside(fetch->source, fetch->size, neutron_area_size(view, NEUTRON_BASE_WEIGHTS)) ||
        !is_in_sram(view, fetch->base, fetch->destination, fetch->size)) {
        return refused(v, ENEUTRON_INSTRUCTION, at);
    }
    return add_work(v, neutron_bounded_product(fetch->size, iterations)) ? ENONE : refused(v, ENEUTRON_WORK, at);
}

static uint32_t instruction_words(uint32_t opcode) {
    static const uint8_t words[] = {
        [NEUTRON_OP_CALL] = sizeof(NeutronCall) / 4,     [NEUTRON_OP_ROWS] = sizeof(NeutronRows) / 4,
        [NEUTRON_OP_WINDOW] = sizeof(NeutronWindow) / 4, [NEUTRON_OP_LOOP] = sizeof(NeutronLoop) / 4,
        [NEUTRON_OP_FETCH] = sizeof(NeutronFetch) / 4,   [NEUTRON_OP_WAIT] = sizeof(NeutronWait) / 4,
    }; /* END has none */
    return opcode < sizeof words ? words[opcode] : UINT32_MAX;
}

static NeutronError check_wait(Validation *v, const uint32_t *fields) {
    const NeutronWait *wait = (const NeutronWait *)(const void *)fields;
    return wait->channel < NEUTRON_CHANNELS ? ENONE : refused(v, ENEUTRON_INSTRUCTION, word_offset(v, fields) - 1);
}

/* The loop around an instruction; outside one, body_end is NULL and iterations is 1. */
typedef struct {
    const uint32_t *body_end;
    uint32_t iterations;
} Around;

/* A loop whose body begins at `body` and ends before `end`. There are no loops in loops. */
static NeutronError check_loop(Validation *v, const uint32_t *fields, const uint32_t *body, const uint32_t *end,
                               Around *around) {
    const NeutronLoop *loop = (const NeutronLoop *)(const void *)fields;
    if (around->body_end != NULL || loop->count == 0 || loop->count > NEUTRON_MAX_LOOP_COUNT || loop->body_words == 0 ||
        loop->body_words > (size_t)(end - body)) {
        return refused(v, ENEUTRON_INSTRUCTION, word_offset(v, fields) - 1);
    }
    around->iterations = loop->count;
    around->body_end = body + loop->body_words;
    return ENONE;
}

/* An instruction other than END, whose fields are there. */
static NeutronError check_instruction(Validation *v, const uint32_t *at, const uint32_t *end, Around *around) {
    const uint32_t opcode = neutron_code_of(*at);
    const uint32_t *const fields = at + 1;
    switch (opcode) {
        case NEUTRON_OP_LOOP:
            return check_loop(v, fields, fields + neutron_length_of(*at), end, around);
        case NEUTRON_OP_FETCH:
            return check_fetch(v, fields, around->iterations);
        case NEUTRON_OP_WAIT:
            return check_wait(v, fields);
        default:
            return check_call(v, opcode, fields, around->iterations);
    }
}

static NeutronError check_code(Validation *v) {
    const uint32_t *at = v->program.code;
    const uint32_t *const end = at + v->program.header->code_words;
    Around around = {.body_end = NULL, .iterations = 1};
    while (at < end) {
        const uint32_t opcode = neutron_code_of(*at);
        const uint32_t length = neutron_length_of(*at);
        const uint32_t *const limit = around.body_end != NULL ? around.body_end : end;
        const bool is_there = length == instruction_words(opcode) && length < (size_t)(limit - at);
        if (!is_there) return refused(v, ENEUTRON_INSTRUCTION, word_offset(v, at));
        if (!add_work(v, (uint64_t)INSTRUCTION_WORK * around.iterations)) {
            return refused(v, ENEUTRON_WORK, word_offset(v, at));
        }
        if (opcode == NEUTRON_OP_END) {
            const bool is_last = around.body_end == NULL && at + 1 == end;
            return is_last ? ENONE : refused(v, ENEUTRON_INSTRUCTION, word_offset(v, at));
        }
        const NeutronError error = check_instruction(v, at, end, &around);
        if (error != ENONE) return error;
        at += 1 + length;
        if (at == around.body_end) around = (Around){.body_end = NULL, .iterations = 1};
    }
    return refused(v, ENEUTRON_INSTRUCTION, word_offset(v, end));
}

NeutronError neutron_validate(const void *microcode, size_t microcode_size, size_t weights_size, uint32_t *detail) {
    Validation v = {.word_count = 0, .checks = 0, .work = 0, .detail = detail};
    v.program.words = microcode;
    v.program.header = microcode;
    NeutronError error = check_header(&v, microcode_size, weights_size);
    if (error == ENONE) error = check_sections(&v);
    if (error != ENONE) return error;
    neutron_open(microcode, &v.program);
    error = check_bindings(&v);
    if (error == ENONE) error = check_buffers(&v);
    if (error == ENONE) error = check_operators(&v);
    if (error == ENONE) error = check_code(&v);
    return error;
}
