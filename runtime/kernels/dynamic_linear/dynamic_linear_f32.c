/* SPDX-License-Identifier: BSD-3-Clause */
/* Linear layers of float32 rows, which are quantized to int8 one by one, and of int8 or int4 weights.
 *
 * A layer is computed in steps of several rows. In a step NXP's NPU multiplies the first channels as a job (jobs.h), the CPU the others, or one
 * of both multiplies all: the sums are the same. The thread with the job waits for the NPU; the other threads take blocks of channels meanwhile.
 *
 * The integers of a step lie part by part of the inputs, as the operand of a job does. */
#include "../jobs.h"
#include "../matrix.h"
#include "../matrix_dsp.h"
#include "../matrix_neon.h"
#include "../shared_work.h"

enum { TOKENS = 32, INT4_FORM = 1 << 18, ONES_BYTES = 16, TABLES = 3 };
enum { BLOCK = 16, MOST_BLOCK = 64, BLOCKS_OF_A_THREAD = 8 }; /* channels of an item; more items than threads even out their times */

#ifdef __linux__
enum { MOST_ROWS = NEUTRON_JOB_MOST_ROWS };
#else
enum { MOST_ROWS = TOKENS };
#endif

static const NeutronMatrixWords *matrix_of(const NeutronDynamicLinearF32 *p) { return (const void *)&p->inputs; }

/* Rows that are computed together: those of the input from `from` on, to those of the output from `row` on. */
typedef struct {
    const NeutronKernelCall *call;
    const NeutronDynamicLinearF32 *p;
    const NeutronMatrixWords *matrix;
    const NeutronBuffer *input, *output;
    const NeutronFloat *scales, *bias;
    float cap;
    NeutronDecode decode;
    int32_t inputs; /* with the zeros behind them */
    int32_t from, row, count, most; /* at most `most` rows */
    uint8_t *integers; /* of all rows */
    float row_scales[MOST_ROWS];
    int32_t of_job; /* channels */
    int32_t block; /* channels of an item */
    bool stores; /* the thread with the job stores its results */
    NeutronJobMemory memory;
    NeutronError error;
    bool takes_dot_products; /* the machine has the dot product extension */
} Step;

/* ---- check ---------------------------------------------------------------------------------------------------------- */

#ifdef __linux__

static NeutronJobMemory memory_of(const NeutronDynamicLinearF32 *p, uint8_t *header, int32_t channels) {
    const NeutronMatrixWords *m = matrix_of(p);
    NeutronJobMemory memory = {.header = header,
                               .rows = p->job_rows,
                               .channels = channels,
                               .inputs = neutron_matrix_inputs(m),
                               .most_inputs = m->part_inputs,
                               .copied = true};
    /* The CPU multiplies by the integers themselves. */
    if (p->flipped != 0) memory.more = neutron_job_whole_lines((uint64_t)memory.rows * (uint64_t)memory.inputs);
    return memory;
}

/* The first channels of the matrix are whole blocks of each part. */
static bool channels_are_sound(const NeutronMatrixWords *m, int32_t channels) {
    return channels >= 0 && channels <= m->matrix_rows && channels <= UINT16_MAX && channels % NEUTRON_JOB_ALIGNED == 0 &&
           channels % ((int64_t)m->last_cores * m->last_block) == 0 &&
           (neutron_matrix_parts(m) == 1 || channels % ((int64_t)m->cores * m->block) == 0);
}

static bool jobs_are_sound(const NeutronProgramView *program, const NeutronDynamicLinearF32 *p) {
    const NeutronMatrixWords *m = matrix_of(p);
    if (p->job_rows < 1 || p->job_rows > NEUTRON_JOB_MOST_ROWS || p->job_channels < 1 || !channels_are_sound(m, p->job_channels) ||
        !channels_are_sound(m, p->few_channels)) {
        return false;
    }
    const NeutronJobMemory memory = memory_of(p, NULL, p->job_channels > p->few_channels ? p->job_channels : p->few_channels);
    const uint64_t tables = (uint64_t)m->matrix_rows * TABLES * sizeof(int32_t) + (p->bits == 4 ? ONES_BYTES : 0);
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

/* Stores `count` results of a row from their sums, from channel `first` on. */
static NEUTRON_INLINE void store(const Step *step, int32_t row, int32_t first, const int32_t *sums, int32_t count) {
    const NeutronBases *bases = step->call->bases;
    const float scale = step->row_scales[row], cap = step->cap;
    const NeutronFloat *scales = step->scales + first, *bias = step->bias + first;
    NeutronFloat *to = neutron_float_row(bases, step->output, step->row + row) + first;
    const NeutronFloat *residual = NULL;
    if (step->p->add != 0) residual = neutron_float_row(bases, &step->call->buffers[step->p->residual], step->row + row) + first;
    for (int32_t i = 0; i < count; i++) {
        float y = ((float)sums[i] * scale) * scales[i] + bias[i];
        if (cap != 0.0f) y = neutron_capped(y, cap);
        if (residual != NULL) y = residual[i] + y;
        to[i] = y;
    }
}

/* ---- on the CPU ----------------------------------------------------------------------------------------------------- */

/* The integers of a row for a part of the inputs. */
static NEUTRON_INLINE int8_t *integers_of(const Step *step, int32_t part, int32_t inputs, int32_t row) {
    return (int8_t *)step->integers + (size_t)step->most * (size_t)(part * step->matrix->part_inputs) + (size_t)row * (size_t)inputs;
}

#if NEUTRON_MATRIX_DSP

enum { TILE_ROWS = 8, TILE_CHANNELS = 16, TILE_SUMS = TILE_ROWS * TILE_CHANNELS };

/* Channels of rows whose sums [rows, channels] are computed together. */
typedef struct {
    const Step *step;
    NeutronMatrixPart part;
    int32_t number; /* of the part */
    int32_t row, rows, channel, channels;
    int32_t *sums;
} Tile;

static const int8_t *integers_of_tile(const Tile *tile, int32_t row) {
    return integers_of(tile->step, tile->number, tile->part.inputs, tile->row + row);
}

/* Each row of weights by `count` rows of integers, four at a time. */
static void multiply_rows(const Tile *tile, int32_t count) {
    const NeutronMatrixWords *m = tile->step->matrix;
    const int32_t inputs = tile->part.inputs;
    const size_t four = NEUTRON_FOUR * (size_t)inputs;
    for (int32_t c = 0; c < tile->channels; c++) {
        const NeutronMatrixRow weights = neutron_matrix_row(m, &tile->part, tile->channel + c);
        for (int32_t k = 0; k < inputs;) {
            int8_t decoded[NEUTRON_MATRIX_DECODED];
            const int8_t *values, *integers = integers_of_tile(tile, 0) + k;
            const int32_t columns = neutron_matrix_piece(m, &tile->part, &weights, k, neutron_decode_dsp, decoded, &values);
            int32_t *sums = tile->sums + c;
            for (int32_t t = 0; t < count; t += NEUTRON_FOUR, integers += four, sums += NEUTRON_FOUR * tile->channels) {
                neutron_dot_four_dsp(values, integers, (size_t)inputs, columns, sums, tile->channels);
            }
            k += columns;
        }
    }
}

/* Rows of integers from `row` on by rows of int8 weights, four of which follow each other where one core has them all. */
static void multiply_channels(const Tile *tile, int32_t row) {
    for (int32_t c = 0, taken; c < tile->channels; c += taken) {
        const NeutronMatrixRow weights = neutron_matrix_row(tile->step->matrix, &tile->part, tile->channel + c);
        taken = tile->part.cores == 1 && c + NEUTRON_FOUR <= tile->channels ? NEUTRON_FOUR : 1;
        const size_t pitch = taken == 1 ? 0 : (size_t)tile->part.inputs;
        for (int32_t t = row; t < tile->rows; t++) {
            const int8_t *integers = integers_of_tile(tile, t), *values;
            int32_t found[NEUTRON_FOUR] = {0};
            for (int32_t k = 0, columns; k < tile->part.inputs; k += columns) {
                columns = neutron_matrix_columns(&tile->part, &weights, k, &values);
                neutron_dot_four_dsp(integers + k, values, pitch, columns, found, 1);
            }
            for (int32_t i = 0; i < taken; i++) tile->sums[t * tile->channels + c + i] += found[i];
        }
    }
}

/* The same of int4 weights. The tile's first channel is a multiple of 16. */
static void multiply_int4_channels(const Tile *tile, int32_t row) {
    const NeutronMatrixWords *m = tile->step->matrix;
    for (int32_t k = 0; k < tile->part.inputs; k += m->group) {
        for (int32_t t = row; t < tile->rows; t++) {
            const int8_t *integers = integers_of_tile(tile, t) + k;
            int32_t *sums = tile->sums + t * tile->channels;
            uint32_t widened[NEUTRON_MATRIX_MOST_GROUP / 2 + 1];
            neutron_widen_dsp(widened, integers, m->group);
            for (int32_t c = 0; c < tile->channels; c += NEUTRON_MATRIX_STEP) {
                const int32_t left = tile->channels - c, count = left < NEUTRON_MATRIX_STEP ? left : NEUTRON_MATRIX_STEP;
                const NeutronMatrixRow weights = neutron_matrix_row(m, &tile->part, tile->channel + c);
                neutron_add_groups_dsp(sums + c, count, m, &weights, k, widened, integers);
            }
        }
    }
}

/* Computes four rows at a time, then the others. */
static void multiply_tile(Tile *tile) {
    const Step *step = tile->step;
    const int32_t fours = tile->rows / NEUTRON_FOUR * NEUTRON_FOUR;
    for (int32_t i = 0; i < tile->rows * tile->channels; i++) tile->sums[i] = 0;
    for (tile->number = 0; tile->number < neutron_matrix_parts(step->matrix); tile->number++) {
        tile->part = neutron_matrix_part(step->call->bases, step->matrix, tile->number);
        if (fours > 0) multiply_rows(tile, fours);
        if (fours == tile->rows) continue;
        if (step->matrix->bits == 4) {
            multiply_int4_channels(tile, fours);
        } else {
            multiply_channels(tile, fours);
        }
    }
    for (int32_t t = 0; t < tile->rows; t++) {
        store(step, tile->row + t, tile->channel, tile->sums + t * tile->channels, tile->channels);
    }
}

/* Computes channels [channel, end), at most MOST_BLOCK, of all rows. */
static void multiply_block(const Step *step, int32_t channel, int32_t end) {
    int32_t sums[TILE_SUMS];
    Tile tile = {.step = step, .sums = sums};
    for (tile.row = 0; tile.row < step->count; tile.row += tile.rows) {
        const int32_t left = step->count - tile.row;
        tile.rows = left < TILE_ROWS ? left : TILE_ROWS;
        const int32_t most = tile.rows * MOST_BLOCK <= TILE_SUMS ? MOST_BLOCK : TILE_CHANNELS;
        for (tile.channel = channel; tile.channel < end; tile.channel += tile.channels) {
            tile.channels = end - tile.channel < most ? end - tile.channel : most;
            multiply_tile(&tile);
        }
    }
}

#else

static NEUTRON_INLINE int32_t dot(const int8_t *a, const int8_t *b, int32_t count) {
    int32_t sum = 0;
    for (int32_t i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
}

/* Multiplies a row of weights by `count` rows of integers, at most TOKENS, from row `first` on. */
static NEUTRON_INLINE void multiply_row(const Step *step, int32_t channel, int32_t first, int32_t count, int32_t *sums) {
    const NeutronMatrixWords *m = step->matrix;
    for (int32_t t = 0; t < count; t++) sums[t] = 0;
    for (int32_t i = 0; i < neutron_matrix_parts(m); i++) {
        const NeutronMatrixPart part = neutron_matrix_part(step->call->bases, m, i);
        const NeutronMatrixRow row = neutron_matrix_row(m, &part, channel);
        for (int32_t k = 0; k < part.inputs;) {
            int8_t decoded[NEUTRON_MATRIX_DECODED];
            const int8_t *weights, *token = integers_of(step, i, part.inputs, first) + k;
            const int32_t pieces = neutron_matrix_piece(m, &part, &row, k, step->decode, decoded, &weights);
            for (int32_t t = 0; t < count; t++, token += part.inputs) sums[t] += dot(weights, token, pieces);
            k += pieces;
        }
    }
}

/* Computes channels [channel, end), at most MOST_BLOCK, of all rows. */
static NEUTRON_INLINE void multiply_block(const Step *step, int32_t channel, int32_t end) {
    for (int32_t first = 0; first < step->count; first += TOKENS) {
        const int32_t count = step->count - first < TOKENS ? step->count - first : TOKENS;
        int32_t sums[TOKENS];
        for (int32_t c = channel; c < end; c++) {
            multiply_row(step, c, first, count, sums);
            for (int32_t t = 0; t < count; t++) store(step, first + t, c, sums + t, 1);
        }
    }
}

NEUTRON_FOR_VECTORS(multiply_block, (const Step *step, int32_t channel, int32_t end), (step, channel, end))

#endif

#if NEUTRON_VECTORS && defined(__aarch64__)

/* The same for cores with the dot product extension. `channel` is a multiple of 16. */
NEUTRON_DOT_PRODUCT static void multiply_block_dot(const Step *step, int32_t channel, int32_t end) {
    for (int32_t first = 0; first < step->count; first += TOKENS) {
        const int32_t count = step->count - first < TOKENS ? step->count - first : TOKENS;
        for (int32_t c = channel; c < end; c += NEUTRON_DOT_ROWS) {
            const int32_t rows = end - c < NEUTRON_DOT_ROWS ? end - c : NEUTRON_DOT_ROWS;
            int32_t sums[TOKENS * NEUTRON_DOT_ROWS];
            memset(sums, 0, (size_t)(count * NEUTRON_DOT_ROWS) * sizeof *sums);
            for (int32_t i = 0; i < neutron_matrix_parts(step->matrix); i++) {
                const NeutronMatrixPart part = neutron_matrix_part(step->call->bases, step->matrix, i);
                const NeutronIntegers integers = {integers_of(step, i, part.inputs, first), (size_t)part.inputs, count};
                neutron_add_products_dot(sums, step->matrix, &part, c, rows, &integers);
            }
            for (int32_t t = 0; t < count; t++) store(step, first + t, c, sums + t * NEUTRON_DOT_ROWS, rows);
        }
    }
}

#endif

static NEUTRON_INLINE void quantize(Step *step, int32_t row) {
    const NeutronMatrixWords *m = step->matrix;
    const NeutronFloat *x = neutron_float_row(step->call->bases, step->input, step->from + row);
    const NeutronRowScale scale = neutron_row_scale(x, step->p->inputs, 127.0f);
    step->row_scales[row] = scale.scale;
    for (int32_t first = 0, part = 0; first < step->inputs; first += m->part_inputs, part++) {
        const int32_t left = step->inputs - first, inputs = left < m->part_inputs ? left : m->part_inputs;
        const int32_t given = step->p->inputs - first, there = given < inputs ? given : inputs;
        int8_t *to = integers_of(step, part, inputs, row);
        neutron_quantize_8(to, x + first, there, scale);
        memset(to + there, 0, (size_t)(inputs - there));
#if NEUTRON_MATRIX_DSP
        if (m->bits == 4) neutron_reorder_dsp(to, inputs);
#endif
    }
}

NEUTRON_FOR_VECTORS(quantize, (Step *step, int32_t row), (step, row))

/* ---- jobs ----------------------------------------------------------------------------------------------------------- */

#ifdef __linux__

/* Writes a row of an operand of uint8 from its integers. */
static void flip_row(const Step *step, int32_t row) {
    for (int32_t part = 0; part < neutron_job_parts(&step->memory); part++) {
        const int32_t inputs = neutron_job_inputs(&step->memory, part), given = step->p->inputs - part * step->memory.most_inputs;
        const int32_t there = given < inputs ? given : inputs;
        const int8_t *from = integers_of(step, part, inputs, row);
        uint8_t *to = neutron_job_row(&step->memory, part, row);
        for (int32_t i = 0; i < there; i++) to[i] = (uint8_t)from[i] ^ (uint8_t)step->p->flipped;
        /* The job's biases are those of the layer's inputs: the zeros behind them stay 0. */
        memset(to + there, 0, (size_t)(inputs - there));
    }
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

/* Multiplies the rows of a part of the inputs by the job's channels. Their weights and tables are the first ones of the matrix. */
static NeutronError multiply_part(const Step *step, int32_t number) {
    const NeutronDynamicLinearF32 *p = step->p;
    const NeutronBases *bases = step->call->bases;
    const NeutronJobMemory *memory = &step->memory;
    const NeutronMatrixPart part = neutron_matrix_part(bases, step->matrix, number);
    const size_t table = (size_t)p->matrix_rows * sizeof(int32_t);
    const uint8_t *tables = neutron_base_address(bases, p->job_base) + p->job_offset;
    const uint8_t *operand = neutron_job_row(memory, number, 0), *results = neutron_job_results(memory, number);
    const void *const addresses[] = {operand, part.weights, tables + (number == 0 ? 0 : table), tables + 2 * table, results};
    uint32_t words[NEUTRON_JOB_WORDS] = {
        [NEUTRON_JOB_KIND] = (uint32_t)p->job_kind,
        [NEUTRON_JOB_ROWS] = (uint32_t)step->count,
        [NEUTRON_JOB_INPUTS] = (uint32_t)part.inputs,
        [NEUTRON_JOB_CHANNELS] = (uint32_t)step->of_job,
        [NEUTRON_JOB_BYTES_OF_RESULT] = NEUTRON_JOB_RESULT_BYTES,
        [NEUTRON_JOB_BITS] = (uint32_t)p->bits,
        [NEUTRON_JOB_GROUP] = p->bits == 4 ? (uint32_t)p->group : UINT32_MAX,
    };
    for (int word = NEUTRON_JOB_OPERAND; word <= NEUTRON_JOB_RESULTS; word++) {
        if (!neutron_job_set_offset(words, word, addresses[word - NEUTRON_JOB_OPERAND], memory->header)) return ENEUTRON_JOB_MEMORY;
    }
    if (p->bits == 4 && !set_int4(p, &part, tables + TABLES * table, memory->header, words)) return ENEUTRON_JOB_MEMORY;
    return neutron_job_run(words, memory->header, operand, step->count * part.inputs, results,
                           step->count * step->of_job * NEUTRON_JOB_RESULT_BYTES);
}

/* Stores the results of a job's row. */
static NEUTRON_INLINE void store_row(const Step *step, int32_t row) {
    const NeutronJobMemory *memory = &step->memory;
    const int32_t parts = neutron_job_parts(memory), channels = step->output->channels;
    const int32_t end = step->of_job < channels ? step->of_job : channels;
    int32_t sums[MOST_BLOCK];
    for (int32_t first = 0; first < end; first += MOST_BLOCK) {
        const int32_t count = end - first < MOST_BLOCK ? end - first : MOST_BLOCK;
        const size_t at = ((size_t)row * (size_t)memory->channels + (size_t)first) * NEUTRON_JOB_RESULT_BYTES;
        memcpy(sums, neutron_job_results(memory, 0) + at, (size_t)count * sizeof *sums);
        for (int32_t part = 1; part < parts; part++) {
            int32_t more[MOST_BLOCK];
            memcpy(more, neutron_job_results(memory, part) + at, (size_t)count * sizeof *more);
            for (int32_t i = 0; i < count; i++) sums[i] = (int32_t)((uint32_t)sums[i] + (uint32_t)more[i]);
        }
        store(step, row, first, sums, count);
    }
}

NEUTRON_FOR_VECTORS(store_row, (const Step *step, int32_t row), (step, row))

static void store_item(void *context, int32_t row, int32_t thread) {
    (void)thread;
    NEUTRON_FASTEST(store_row)(context, row);
}

static void run_job(Step *step) {
    for (int32_t part = 0; step->error == ENONE && part < neutron_job_parts(&step->memory); part++) step->error = multiply_part(step, part);
    for (int32_t row = 0; step->stores && step->error == ENONE && row < step->count; row++) store_item(step, row, 0);
}

#endif

/* ---- run ------------------------------------------------------------------------------------------------------------ */

static void quantize_item(void *context, int32_t row, int32_t thread) {
    Step *step = context;
    (void)thread;
    NEUTRON_FASTEST(quantize)(step, row);
#ifdef __linux__
    if (step->of_job > 0 && step->p->flipped != 0) flip_row(step, row);
#endif
}

/* Item 0 is the job, if there is one; each other item is a block of the CPU's channels. */
static void multiply_item(void *context, int32_t item, int32_t thread) {
    Step *step = context;
    (void)thread;
#ifdef __linux__
    if (step->of_job > 0 && item-- == 0) {
        run_job(step);
        return;
    }
#endif
    const int32_t channels = step->output->channels, channel = step->of_job + item * step->block;
    const int32_t end = channels - channel < step->block ? channels : channel + step->block;
#if NEUTRON_VECTORS && defined(__aarch64__)
    if (step->takes_dot_products) {
        multiply_block_dot(step, channel, end);
        return;
    }
#endif
    NEUTRON_FASTEST(multiply_block)(step, channel, end);
}

/* Multiples of BLOCK: several items for each thread. */
static int32_t block_of(int32_t channels, int32_t threads) {
    const int32_t share = channels / (threads * BLOCKS_OF_A_THREAD) / BLOCK * BLOCK;
    return share < BLOCK ? BLOCK : share > MOST_BLOCK ? MOST_BLOCK : share;
}

static void run_step(Step *step) {
    const NeutronKernelCall *call = step->call;
    const uint64_t values = (uint64_t)step->count * (uint64_t)step->inputs;
    const int32_t here = step->output->channels > step->of_job ? step->output->channels - step->of_job : 0;
    /* A job takes a thread, which only waits, so that others multiply. */
    const int32_t threads = neutron_threads_for(call, values * (uint64_t)step->output->channels);
    step->block = block_of(here, threads);
    neutron_share(call, neutron_threads_for(call, values), step->count, quantize_item, step);
#ifdef __linux__
    const int32_t storing = neutron_threads_for(call, (uint64_t)step->count * (uint64_t)step->of_job);
    step->stores = storing == 1;
#endif
    neutron_share(call, threads, (step->of_job > 0) + (here + step->block - 1) / step->block, multiply_item, step);
#ifdef __linux__
    if (step->of_job > 0 && !step->stores && step->error == ENONE) neutron_share(call, storing, step->count, store_item, step);
#endif
}

/* Sets where the integers of a step are, and how many rows it has at most. */
static void take_memory(Step *step) {
    const NeutronBuffer *memory = &step->call->buffers[step->p->memory];
    const int32_t room = memory->channels_held / step->inputs;
    step->integers = neutron_row_address(step->call->bases, memory, 0, 0);
    step->most = room < TOKENS ? room : TOKENS;
#ifdef __linux__
    if (step->of_job == 0) return;
    step->memory = memory_of(step->p, neutron_job_header(step->call, step->p->memory), step->of_job);
    step->integers = step->p->flipped != 0 ? neutron_job_more(&step->memory) : neutron_job_row(&step->memory, 0, 0);
    step->most = step->p->job_rows;
    if (!neutron_jobs_are_there()) step->error = ENEUTRON_NO_JOBS;
#endif
}

void dynamic_linear_f32_run(const NeutronKernelCall *call) {
    const NeutronDynamicLinearF32 *p = call->params;
    const NeutronBuffer *input = &call->buffers[p->input], *output = &call->buffers[p->output];
    const int32_t tokens = neutron_token_count(call, p->span, p->last != 0 ? input->rows : output->rows);
    const int32_t from = p->last != 0 ? tokens - 1 : 0, count = p->last != 0 ? 1 : tokens;
    if (tokens == 0) return;
    Step step;
    step.call = call;
    step.p = p;
    step.matrix = matrix_of(p);
    step.input = input;
    step.output = output;
    step.scales = neutron_float_constant(call->bases, p->scales_base, p->scales_offset);
    step.bias = neutron_float_constant(call->bases, p->bias_base, p->bias_offset);
    step.cap = neutron_float_of(p->cap_bits);
    step.decode = NEUTRON_FASTEST(neutron_decode);
    step.inputs = neutron_matrix_inputs(step.matrix);
    step.of_job = p->job_from == 0 ? 0 : count >= p->job_from ? p->job_channels : p->few_channels;
    step.error = ENONE;
#if NEUTRON_VECTORS && defined(__aarch64__)
    step.takes_dot_products = neutron_has_dot_product();
#endif
    take_memory(&step);
    for (int32_t done = 0; done < count && step.error == ENONE; done += step.count) {
        step.from = from + done;
        step.row = done;
        step.count = count - done < step.most ? count - done : step.most;
        run_step(&step);
    }
    if (step.error != ENONE && call->error != NULL) *call->error = step.error;
}
