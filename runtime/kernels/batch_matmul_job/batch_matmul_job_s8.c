/* SPDX-License-Identifier: BSD-3-Clause */
/* Products of two matrices of activations by the matrix products that the driver of NXP's NPU takes as jobs (jobs.h).
 *
 * A job's operand has the rows of a, its weights are the columns of b, one behind the other, in the form that is not packed. They are read
 * where they lie, or are put together in the call's memory. With the stored values a and b, and their zero points s and t,
 *     sum((a - s) * (b - t)) = sum(a * b) - s * sum(b) + depth * s * t - t * sum(a).
 * The job adds the parts of the right side that a column has, as its bias, and the CPU adds the last one. All are exact modulo 2^32, and
 * the sum on the left side has 32 bits. */
#include "batch_matmul/matmul.h"
#include "conv_2d/neon.h"
#include "jobs.h"

#ifdef __linux__

enum { TABLES = 2 };

static uint64_t weights_bytes(const NeutronBatchMatmulJobS8 *p) {
    const uint64_t bytes = (uint64_t)p->job_channels * (uint64_t)neutron_job_padded(p->depth);
    return p->b_copied != 0 ? neutron_job_whole_lines(bytes) : 0;
}

static NeutronJobMemory memory_of(const NeutronBatchMatmulJobS8 *p, uint8_t *header) {
    const uint64_t biases = neutron_job_whole_lines((uint64_t)p->job_channels * sizeof(int32_t));
    return (NeutronJobMemory){.header = header,
                              .rows = p->job_rows,
                              .channels = p->job_channels,
                              .inputs = (int32_t)neutron_job_padded(p->depth),
                              .most_inputs = p->job_inputs,
                              .copied = p->a_copied != 0,
                              .more = weights_bytes(p) + biases};
}

/* ---- check ---------------------------------------------------------------------------------------------------------- */

/* Lines of so many elements follow each other in the buffer, whose lines begin at `line_pitch` bytes. */
static bool lines_join(const NeutronBatchMatmulJobS8 *p, const NeutronBuffer *buffer, int32_t pitch, int32_t line_pitch) {
    return pitch == 1 && line_pitch == p->depth && p->depth % NEUTRON_JOB_ALIGNED == 0 && p->job_inputs >= p->depth &&
           buffer->ring >= buffer->rows && buffer->offset % NEUTRON_JOB_ALIGNED == 0 &&
           (buffer->batches == 1 || buffer->batch_pitch % NEUTRON_JOB_ALIGNED == 0);
}

static bool numbers_are_sound(const NeutronBatchMatmulJobS8 *p, const NeutronBuffer *out) {
    return p->job_inputs >= NEUTRON_JOB_ALIGNED && p->job_inputs <= NEUTRON_JOB_MOST_INPUTS &&
           p->job_inputs % NEUTRON_JOB_ALIGNED == 0 && p->job_rows >= 1 && p->job_rows <= NEUTRON_JOB_MOST_ROWS &&
           p->job_channels >= out->channels && p->job_channels % NEUTRON_JOB_ALIGNED == 0 && p->job_channels <= UINT16_MAX &&
           (p->flipped == 0 || (p->flipped == 128 && p->a_copied != 0));
}

bool batch_matmul_job_s8_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    const NeutronBatchMatmulJobS8 *p = params;
    const NeutronBuffer *out = neutron_window_buffer(program, p->output, true, window);
    if (!neutron_matmul_is_sound(program, p->input_a, p->input_b, out, p->depth, window) ||
        !neutron_is_stored(p->a_zero_point) || !neutron_is_stored(p->b_zero_point) ||
        !neutron_shift_is_sound(p->output_shift) || !neutron_is_stored(p->output_zero_point) || window->channel0 != 0 ||
        window->channel1 != out->channels || !numbers_are_sound(p, out)) {
        return false;
    }
    const NeutronBuffer *a = &program->buffers[p->input_a], *b = &program->buffers[p->input_b];
    const NeutronJobMemory memory = memory_of(p, NULL);
    return b->ring >= p->depth && (p->a_copied != 0 || lines_join(p, a, a->channel_pitch, a->rows == 1 ? p->depth : a->row_pitch)) &&
           (p->b_copied != 0 || (lines_join(p, b, b->row_pitch, b->channel_pitch) && p->job_channels == out->channels)) &&
           neutron_job_memory_is_sound(program, p->memory, &memory) &&
           neutron_range_is_sound(program, p->job_base, p->job_offset,
                                  (uint64_t)p->job_channels * TABLES * sizeof(int32_t), NEUTRON_ALIGNMENT);
}

/* ---- operands ------------------------------------------------------------------------------------------------------- */

typedef struct {
    const NeutronKernelCall *call;
    const NeutronBatchMatmulJobS8 *p;
    const NeutronBuffer *a, *b, *out;
    NeutronJobMemory memory;
    int32_t parts;
    const uint8_t *weights; /* of the batch */
    uint8_t *biases;
} Product;

static int32_t sum_of(const uint8_t *from, ptrdiff_t pitch, int32_t count) {
    int32_t sum = 0;
    if (pitch == 1) {
        for (int32_t i = 0; i < count; i++) sum += (int8_t)from[i];
    } else {
        for (int32_t i = 0; i < count; i++) sum += (int8_t)from[i * pitch];
    }
    return sum;
}

/* The weights and the biases of a batch. */
static NeutronError prepare_columns(Product *product, int32_t n) {
    const NeutronBatchMatmulJobS8 *p = product->p;
    const NeutronBuffer *b = product->b;
    const int32_t channels = p->job_channels, zero_point = p->a_zero_point + p->flipped;
    const uint8_t *const columns = neutron_element_address(product->call->bases, b, n, 0, 0, 0);
    uint8_t *copied = neutron_job_more(&product->memory);
    for (int32_t k = 0; k < product->out->channels; k++) {
        const uint8_t *from = columns + (ptrdiff_t)k * b->channel_pitch;
        if (p->b_copied != 0) neutron_job_put_line(&product->memory, copied, channels, k, from, b->row_pitch, p->depth);
        uint32_t bias = (uint32_t)p->depth * (uint32_t)zero_point * (uint32_t)p->b_zero_point;
        if (zero_point != 0) bias -= (uint32_t)zero_point * (uint32_t)sum_of(from, b->row_pitch, p->depth);
        memcpy(product->biases + sizeof bias * (size_t)k, &bias, sizeof bias);
    }
    product->weights = p->b_copied != 0 ? copied : columns;
    const NeutronError error = neutron_job_clean(product->weights, channels * product->memory.inputs);
    return error == ENONE ? neutron_job_clean(product->biases, channels * (int32_t)sizeof(int32_t)) : error;
}

/* The address of the first of `rows` rows of a as an operand. */
static const uint8_t *prepare_rows(const Product *product, int32_t n, int32_t row, int32_t rows) {
    const NeutronBatchMatmulJobS8 *p = product->p;
    const NeutronBuffer *a = product->a;
    if (p->a_copied == 0) return neutron_element_address(product->call->bases, a, n, row, 0, 0);
    uint8_t *operand = neutron_job_row(&product->memory, 0, 0);
    for (int32_t r = 0; r < rows; r++) {
        const uint8_t *from = neutron_element_address(product->call->bases, a, n, row + r, 0, 0);
        neutron_job_put_line(&product->memory, operand, p->job_rows, r, from, a->channel_pitch, p->depth);
    }
    const size_t size = (size_t)p->job_rows * (size_t)product->memory.inputs;
    for (size_t i = 0; p->flipped != 0 && i < size; i++) operand[i] ^= 128;
    return operand;
}

/* ---- results -------------------------------------------------------------------------------------------------------- */

#if NEUTRON_NEON_VARIANTS

static void store_row(const Product *product, const uint8_t *results, uint32_t more, uint8_t *to) {
    const NeutronBatchMatmulJobS8 *p = product->p;
    const size_t part_bytes = (size_t)p->job_rows * (size_t)p->job_channels * NEUTRON_JOB_RESULT_BYTES;
    const NeutronRangeNeon range = {vdupq_n_s8(INT8_MIN), vdupq_n_s8(INT8_MAX), vdupq_n_s16((int16_t)p->output_zero_point)};
    const int32x4_t multiplier = vdupq_n_s32(p->output_multiplier), shift = vdupq_n_s32(p->output_shift);
    const int32x4_t left = vmaxq_s32(shift, vdupq_n_s32(0)), right = vminq_s32(shift, vdupq_n_s32(0));
    const NeutronRescaleNeon rescale = {.multiplier = {multiplier, multiplier}, .left = {left, left}, .right = {right, right}};
    for (int32_t channels = product->out->channels; channels > 0; channels -= 16, results += 64, to += 16) {
        int32x4_t y[4];
        NEUTRON_UNROLL
        for (int i = 0; i < 4; i++) {
            const uint8_t *from = results + 16 * i;
            uint32x4_t sum = vaddq_u32(vreinterpretq_u32_u8(vld1q_u8(from)), vdupq_n_u32(more));
            for (int32_t part = 1; part < product->parts; part++) {
                from += part_bytes;
                sum = vaddq_u32(sum, vreinterpretq_u32_u8(vld1q_u8(from)));
            }
            y[i] = neutron_rescaled_neon(vreinterpretq_s32_u32(sum), &rescale, i % 2, NEUTRON_RESCALE_ANY);
        }
        const int8x16_t bytes = neutron_stored_neon(y, y + 2, &range);
        if (channels >= 16) {
            vst1q_s8((int8_t *)to, bytes);
        } else {
            neutron_store_eight(to, vgetq_lane_u64(vreinterpretq_u64_s8(bytes), 0), channels);
            if (channels > 8) neutron_store_eight(to + 8, vgetq_lane_u64(vreinterpretq_u64_s8(bytes), 1), channels - 8);
        }
    }
}

#else

#endif

static void store_any_row(const Product *product, const uint8_t *results, uint32_t more, uint8_t *to) {
    const NeutronBatchMatmulJobS8 *p = product->p;
    const size_t part_bytes = (size_t)p->job_rows * (size_t)p->job_channels * NEUTRON_JOB_RESULT_BYTES;
    const int32_t zero_point = p->output_zero_point;
    for (int32_t k = 0; k < product->out->channels; k++, results += NEUTRON_JOB_RESULT_BYTES) {
        uint32_t sum = more;
        for (int32_t part = 0; part < product->parts; part++) {
            uint32_t of_part;
            memcpy(&of_part, results + (size_t)part * part_bytes, sizeof of_part);
            sum += of_part;
        }
        const int32_t rescaled = neutron_requantize((int32_t)sum, p->output_multiplier, p->output_shift);
        const int32_t bounded = neutron_bound(rescaled, INT8_MIN - zero_point, INT8_MAX - zero_point);
        to[(ptrdiff_t)k * product->out->channel_pitch] = (uint8_t)(bounded + zero_point);
    }
}

static void store(const Product *product, int32_t n, int32_t row, int32_t rows) {
    const NeutronBatchMatmulJobS8 *p = product->p;
    const NeutronBases *bases = product->call->bases;
    const uint8_t *results = neutron_job_results(&product->memory, 0);
    for (int32_t r = row; r < row + rows; r++, results += (size_t)p->job_channels * NEUTRON_JOB_RESULT_BYTES) {
        uint32_t more = 0;
        if (p->b_zero_point != 0) {
            const uint8_t *from = neutron_element_address(bases, product->a, n, r, 0, 0);
            const int32_t sum = sum_of(from, product->a->channel_pitch, p->depth) + p->depth * p->flipped;
            more = 0 - (uint32_t)p->b_zero_point * (uint32_t)sum;
        }
        uint8_t *to = neutron_element_address(bases, product->out, n, r, 0, 0);
#if NEUTRON_NEON_VARIANTS
        if (product->out->channel_pitch == 1) {
            store_row(product, results, more, to);
            continue;
        }
#endif
        store_any_row(product, results, more, to);
    }
}

/* ---- run ------------------------------------------------------------------------------------------------------------ */

static NeutronError run(Product *product) {
    const NeutronWindowExtents *w = &product->call->window;
    if (!neutron_jobs_are_there()) return ENEUTRON_NO_JOBS;
    if (w->col0 >= w->col1) return ENONE;
    /* The tables are zeros, in place of biases, and the factors. */
    const NeutronBatchMatmulJobS8 *p = product->p;
    const uint8_t *tables = neutron_base_address(product->call->bases, p->job_base) + p->job_offset;
    NeutronJobOperands of = {.kind = p->job_kind,
                             .biases = product->biases,
                             .zeros = tables,
                             .factors = tables + (size_t)p->job_channels * sizeof(int32_t)};
    for (int32_t n = w->batch0; n < w->batch1; n++) {
        NeutronError error = n == w->batch0 || product->b->batch_pitch != 0 ? prepare_columns(product, n) : ENONE;
        for (int32_t row = w->row0; row < w->row1; row += p->job_rows) {
            const int32_t left = w->row1 - row, rows = left < p->job_rows ? left : p->job_rows;
            of.operand = prepare_rows(product, n, row, rows);
            of.weights = product->weights;
            if (error == ENONE) error = neutron_job_multiply(&product->memory, &of, rows);
            if (error != ENONE) return error;
            store(product, n, row, rows);
        }
    }
    return ENONE;
}

void batch_matmul_job_s8_run(const NeutronKernelCall *call) {
    const NeutronBatchMatmulJobS8 *p = call->params;
    const NeutronJobMemory memory = memory_of(p, neutron_job_header(call, p->memory));
    Product product = {
        .call = call,
        .p = p,
        .a = &call->buffers[p->input_a],
        .b = &call->buffers[p->input_b],
        .out = &call->buffers[p->output],
        .memory = memory,
        .parts = neutron_job_parts(&memory),
        .biases = neutron_job_more(&memory) + weights_bytes(p),
    };
    const NeutronError error = run(&product);
    if (error != ENONE && call->error != NULL) *call->error = error;
}

#else

/* NXP's driver for matrix products is one for Linux. */
bool batch_matmul_job_s8_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    (void)program, (void)params, (void)window;
    return false;
}

void batch_matmul_job_s8_run(const NeutronKernelCall *call) { (void)call; }

#endif
