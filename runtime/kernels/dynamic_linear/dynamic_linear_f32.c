/* SPDX-License-Identifier: BSD-3-Clause */
/* Linear layers of float32 rows, which are quantized to int8 one by one, and of int8 or int4 weights.
 *
 * The CPU goes over a row of weights once for several tokens. Runs of many tokens are jobs of NXP's NPU (jobs.h): it gives the same sums. */
#include "../jobs.h"
#include "../matrix.h"

enum { TOKENS = 8, INT4_FORM = 1 << 18, ONES_BYTES = 16, TABLES = 3 };

static const NeutronMatrixWords *matrix_of(const NeutronDynamicLinearF32 *p) { return (const void *)&p->inputs; }

typedef struct {
    const NeutronKernelCall *call;
    const NeutronDynamicLinearF32 *p;
    const NeutronMatrixWords *matrix;
    const NeutronBuffer *input, *output;
    const NeutronFloat *scales, *bias;
    float cap;
    NeutronDecode decode;
    int32_t inputs; /* with the zeros behind them */
} Layer;

/* ---- check ---------------------------------------------------------------------------------------------------------- */

#ifdef __linux__

static NeutronJobMemory memory_of(const NeutronDynamicLinearF32 *p, uint8_t *header) {
    const NeutronMatrixWords *m = matrix_of(p);
    return (NeutronJobMemory){.header = header,
                              .rows = p->job_rows,
                              .channels = m->matrix_rows,
                              .inputs = neutron_matrix_inputs(m),
                              .most_inputs = m->part_inputs,
                              .copied = true};
}

static bool jobs_are_sound(const NeutronProgramView *program, const NeutronDynamicLinearF32 *p) {
    const int32_t channels = p->matrix_rows;
    if (p->job_rows < 1 || p->job_rows > NEUTRON_JOB_MOST_ROWS || channels % NEUTRON_JOB_ALIGNED != 0 || channels > UINT16_MAX) return false;
    const NeutronJobMemory memory = memory_of(p, NULL);
    const uint64_t tables = (uint64_t)channels * TABLES * sizeof(int32_t) + (p->bits == 4 ? ONES_BYTES : 0);
    return neutron_job_memory_is_sound(program, p->memory, &memory) &&
           neutron_range_is_sound(program, p->job_base, p->job_offset, tables, NEUTRON_ALIGNMENT);
}

#else

static bool jobs_are_sound(const NeutronProgramView *program, const NeutronDynamicLinearF32 *p) {
    (void)program, (void)p;
    return false;
}

#endif

bool dynamic_linear_f32_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    const NeutronDynamicLinearF32 *p = params;
    const NeutronBuffer *in = neutron_float_rows(program, p->input, false), *out = neutron_float_output(program, p->output, window);
    if (in == NULL || out == NULL || in->channels != p->inputs || (p->last == 0 && in->rows < out->rows)) return false;
    const NeutronBuffer *residual = p->add == 0 ? out : neutron_float_rows(program, p->residual, false);
    if (residual == NULL || residual->rows < out->rows || residual->channels != out->channels ||
        !neutron_integers_are_sound(program, p->span, 2) || !neutron_matrix_is_sound(program, matrix_of(p), out->channels) ||
        !neutron_floats_are_sound(program, p->bias_base, p->bias_offset, (uint64_t)out->channels)) {
        return false;
    }
    const NeutronBuffer *memory = neutron_checked_buffer(program, p->memory, true);
    return memory != NULL && memory->channel_pitch == 1 && memory->channel0 == 0 &&
           memory->channels_held >= neutron_matrix_inputs(matrix_of(p)) && p->job_from >= 0 &&
           (p->job_from == 0 || jobs_are_sound(program, p));
}

/* ---- results -------------------------------------------------------------------------------------------------------- */

/* Stores results of a token from their sums. */
static NEUTRON_INLINE void store(const Layer *layer, int32_t row, int32_t channel, int32_t sum, float scale) {
    float y = ((float)sum * scale) * layer->scales[channel] + layer->bias[channel];
    if (layer->cap != 0.0f) y = neutron_capped(y, layer->cap);
    const NeutronBases *bases = layer->call->bases;
    if (layer->p->add != 0) y = neutron_float_row(bases, &layer->call->buffers[layer->p->residual], row)[channel] + y;
    neutron_float_row(bases, layer->output, row)[channel] = y;
}

/* ---- on the CPU ----------------------------------------------------------------------------------------------------- */

static NEUTRON_INLINE int32_t dot(const int8_t *a, const int8_t *b, int32_t count) {
    int32_t sum = 0;
    for (int32_t i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
}

/* Tokens whose integers are rows of `inputs` bytes, and the first row of their results. */
typedef struct {
    const int8_t *integers;
    float scales[TOKENS];
    int32_t count, row;
} Tokens;

static NEUTRON_INLINE void multiply_tokens(const Layer *layer, const Tokens *tokens) {
    const NeutronMatrixWords *m = layer->matrix;
    const int32_t parts = neutron_matrix_parts(m);
    for (int32_t channel = 0; channel < layer->output->channels; channel++) {
        int32_t sums[TOKENS] = {0};
        for (int32_t i = 0; i < parts; i++) {
            const NeutronMatrixPart part = neutron_matrix_part(layer->call->bases, m, i);
            const NeutronMatrixRow row = neutron_matrix_row(m, &part, channel);
            for (int32_t k = 0; k < part.inputs;) {
                int8_t decoded[NEUTRON_MATRIX_DECODED];
                const int8_t *weights, *token = tokens->integers + i * m->part_inputs + k;
                const int32_t count = neutron_matrix_piece(m, &part, &row, k, layer->decode, decoded, &weights);
                for (int32_t t = 0; t < tokens->count; t++, token += layer->inputs) sums[t] += dot(weights, token, count);
                k += count;
            }
        }
        for (int32_t t = 0; t < tokens->count; t++) store(layer, tokens->row + t, channel, sums[t], tokens->scales[t]);
    }
}

NEUTRON_FOR_VECTORS(multiply_tokens, (const Layer *layer, const Tokens *tokens), (layer, tokens))

/* The integers of a row, with zeros behind them, and their scale. */
static NEUTRON_INLINE float quantize(int8_t *to, const NeutronFloat *x, int32_t count, int32_t padded) {
    const NeutronRowScale scale = neutron_row_scale(x, count, 127.0f);
    neutron_quantize_8(to, x, count, scale);
    memset(to + count, 0, (size_t)(padded - count));
    return scale.scale;
}

/* Computes `count` rows of results from row `row` on, from the input's rows from `from` on. */
static void run_here(const Layer *layer, int32_t from, int32_t row, int32_t count) {
    const NeutronBuffer *memory = &layer->call->buffers[layer->p->memory];
    int8_t *integers = (int8_t *)neutron_row_address(layer->call->bases, memory, 0, 0);
    const int32_t room = memory->channels_held / layer->inputs, most = room < TOKENS ? room : TOKENS;
    for (int32_t done = 0; done < count;) {
        Tokens tokens = {.integers = integers, .count = count - done < most ? count - done : most, .row = row + done};
        for (int32_t t = 0; t < tokens.count; t++) {
            const NeutronFloat *x = neutron_float_row(layer->call->bases, layer->input, from + done + t);
            tokens.scales[t] = quantize(integers + (size_t)t * (size_t)layer->inputs, x, layer->p->inputs, layer->inputs);
        }
        NEUTRON_FASTEST(multiply_tokens)(layer, &tokens);
        done += tokens.count;
    }
}

/* ---- jobs ----------------------------------------------------------------------------------------------------------- */

#ifdef __linux__

/* Writes a row of the operand of all parts, and returns its scale. */
static float put_row(const Layer *layer, const NeutronJobMemory *memory, const NeutronFloat *x, int32_t row) {
    const NeutronRowScale scale = neutron_row_scale(x, layer->p->inputs, 127.0f);
    for (int32_t part = 0; part < neutron_job_parts(memory); part++) {
        const int32_t first = part * memory->most_inputs, inputs = neutron_job_inputs(memory, part);
        const int32_t there = layer->p->inputs - first < inputs ? layer->p->inputs - first : inputs;
        uint8_t *to = neutron_job_row(memory, part, row);
        neutron_quantize_8((int8_t *)to, x + first, there, scale);
        memset(to + there, 0, (size_t)(inputs - there));
        if (layer->p->flipped == 0) continue;
        /* The job's biases are those of the layer's inputs: the zeros behind them stay 0. */
        for (int32_t i = 0; i < there; i++) to[i] ^= (uint8_t)layer->p->flipped;
    }
    return scale.scale;
}

/* Sets the words of int4 weights that int8 weights do not have. Returns false where a word can't hold its offset. */
static bool set_int4(const NeutronDynamicLinearF32 *p, const NeutronMatrixPart *part, const uint8_t *ones, uint8_t *header, uint32_t *words) {
    const size_t groups = (size_t)p->matrix_rows * (size_t)part->inputs / (size_t)p->group;
    words[NEUTRON_JOB_KIND] = 0;
    if (p->job_kind != 0) {
        /* The release that has kinds has lengths of blocks too. */
        if (!neutron_job_set_offset(words, NEUTRON_JOB_LENGTHS, part->decode_biases + groups, header)) return false;
        words[NEUTRON_JOB_CHANNELS] |= INT4_FORM;
        words[NEUTRON_JOB_INT4_KIND] = (uint32_t)p->job_kind;
    }
    return neutron_job_set_offset(words, NEUTRON_JOB_DECODE_BIASES, part->decode_biases, header) &&
           neutron_job_set_offset(words, NEUTRON_JOB_DECODE_SCALES, part->decode_scales, header) &&
           neutron_job_set_offset(words, NEUTRON_JOB_ONES, ones, header);
}

/* Multiplies `rows` rows of a part of the inputs. */
static NeutronError multiply_part(const Layer *layer, const NeutronJobMemory *memory, int32_t number, int32_t rows) {
    const NeutronDynamicLinearF32 *p = layer->p;
    const NeutronBases *bases = layer->call->bases;
    const NeutronMatrixPart part = neutron_matrix_part(bases, layer->matrix, number);
    const size_t table = (size_t)p->matrix_rows * sizeof(int32_t);
    const uint8_t *tables = neutron_base_address(bases, p->job_base) + p->job_offset;
    const uint8_t *operand = neutron_job_row(memory, number, 0), *results = neutron_job_results(memory, number);
    const void *const addresses[] = {operand, part.weights, tables + (number == 0 ? 0 : table), tables + 2 * table, results};
    uint32_t words[NEUTRON_JOB_WORDS] = {
        [NEUTRON_JOB_KIND] = (uint32_t)p->job_kind,
        [NEUTRON_JOB_ROWS] = (uint32_t)rows,
        [NEUTRON_JOB_INPUTS] = (uint32_t)part.inputs,
        [NEUTRON_JOB_CHANNELS] = (uint32_t)p->matrix_rows,
        [NEUTRON_JOB_BYTES_OF_RESULT] = NEUTRON_JOB_RESULT_BYTES,
        [NEUTRON_JOB_BITS] = (uint32_t)p->bits,
        [NEUTRON_JOB_GROUP] = p->bits == 4 ? (uint32_t)p->group : UINT32_MAX,
    };
    for (int word = NEUTRON_JOB_OPERAND; word <= NEUTRON_JOB_RESULTS; word++) {
        if (!neutron_job_set_offset(words, word, addresses[word - NEUTRON_JOB_OPERAND], memory->header)) return ENEUTRON_JOB_MEMORY;
    }
    if (p->bits == 4 && !set_int4(p, &part, tables + TABLES * table, memory->header, words)) return ENEUTRON_JOB_MEMORY;
    return neutron_job_run(words, memory->header, operand, rows * part.inputs, results,
                           rows * p->matrix_rows * NEUTRON_JOB_RESULT_BYTES);
}

/* Stores the results of a job's row. */
static void store_row(const Layer *layer, const NeutronJobMemory *memory, int32_t row, int32_t to, float scale) {
    const size_t first = (size_t)row * (size_t)memory->channels;
    const int32_t parts = neutron_job_parts(memory);
    for (int32_t channel = 0; channel < layer->output->channels; channel++) {
        uint32_t sum = 0;
        for (int32_t part = 0; part < parts; part++) {
            uint32_t more;
            memcpy(&more, neutron_job_results(memory, part) + (first + (size_t)channel) * NEUTRON_JOB_RESULT_BYTES, sizeof more);
            sum += more;
        }
        store(layer, to, channel, (int32_t)sum, scale);
    }
}

static NeutronError run_jobs(const Layer *layer, int32_t from, int32_t row, int32_t count) {
    const NeutronJobMemory memory = memory_of(layer->p, neutron_job_header(layer->call, layer->p->memory));
    float scales[NEUTRON_JOB_MOST_ROWS];
    if (!neutron_jobs_are_there()) return ENEUTRON_NO_JOBS;
    for (int32_t done = 0; done < count;) {
        const int32_t rows = count - done < memory.rows ? count - done : memory.rows;
        for (int32_t i = 0; i < rows; i++) {
            scales[i] = put_row(layer, &memory, neutron_float_row(layer->call->bases, layer->input, from + done + i), i);
        }
        for (int32_t part = 0; part < neutron_job_parts(&memory); part++) {
            const NeutronError error = multiply_part(layer, &memory, part, rows);
            if (error != ENONE) return error;
        }
        for (int32_t i = 0; i < rows; i++) store_row(layer, &memory, i, row + done + i, scales[i]);
        done += rows;
    }
    return ENONE;
}

#endif

/* ---- run ------------------------------------------------------------------------------------------------------------ */

void dynamic_linear_f32_run(const NeutronKernelCall *call) {
    const NeutronDynamicLinearF32 *p = call->params;
    const NeutronBuffer *input = &call->buffers[p->input], *output = &call->buffers[p->output];
    const Layer layer = {
        .call = call,
        .p = p,
        .matrix = matrix_of(p),
        .input = input,
        .output = output,
        .scales = neutron_float_constant(call->bases, p->scales_base, p->scales_offset),
        .bias = neutron_float_constant(call->bases, p->bias_base, p->bias_offset),
        .cap = neutron_float_of(p->cap_bits),
        .decode = NEUTRON_FASTEST(neutron_decode),
        .inputs = neutron_matrix_inputs(matrix_of(p)),
    };
    const int32_t tokens = neutron_token_count(call, p->span, p->last != 0 ? input->rows : output->rows);
    const int32_t from = p->last != 0 ? tokens - 1 : 0, count = p->last != 0 ? 1 : tokens;
    if (tokens == 0) return;
#ifdef __linux__
    if (p->job_from > 0 && count >= p->job_from) {
        const NeutronError error = run_jobs(&layer, from, 0, count);
        if (error != ENONE && call->error != NULL) *call->error = error;
        return;
    }
#endif
    run_here(&layer, from, 0, count);
}
