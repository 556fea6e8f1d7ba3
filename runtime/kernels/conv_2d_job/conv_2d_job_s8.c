/* SPDX-License-Identifier: BSD-3-Clause */
/* Convolutions and fully connected layers by the matrix products that the driver of NXP's NPU takes as jobs (jobs.h).
 *
 * A job's operand has a row for each output pixel, with the inputs of all its taps, and zeros up to a multiple of 16. The rows are read
 * where they lie, or are put together in the call's memory. A result of a job is an accumulator of 32 bits with its bias: the factor of
 * every channel is 1, so that no rounding occurs on the NPU. The rescaling follows here, as in the other kernels of convolutions. */
#include "conv_2d/neon.h"
#include "jobs.h"

#ifdef __linux__

enum { TABLES = 3 };

static int64_t inputs_of(const NeutronConv2dJobS8 *p) { return (int64_t)p->kernel_h * p->kernel_w * p->group_inputs; }

static NeutronJobMemory memory_of(const NeutronConv2dJobS8 *p, uint8_t *header) {
    return (NeutronJobMemory){.header = header,
                              .rows = p->job_rows,
                              .channels = p->job_channels,
                              .inputs = (int32_t)neutron_job_padded(inputs_of(p)),
                              .most_inputs = p->job_inputs,
                              .copied = p->copied != 0};
}

/* ---- check ---------------------------------------------------------------------------------------------------------- */

/* Rows of the operand follow each other in the input: each has all channels of one pixel. */
static bool rows_join(const NeutronConv2dJobS8 *p, const NeutronBuffer *input, const NeutronWindowExtents *w) {
    return p->kernel_h == 1 && p->kernel_w == 1 && p->stride_h == 1 && p->stride_w == 1 && p->pad_top == 0 &&
           p->pad_left == 0 && p->group_inputs % NEUTRON_JOB_ALIGNED == 0 && p->job_inputs >= p->group_inputs &&
           input->channel_pitch == 1 && input->col_pitch == input->channels && w->col0 == 0 && w->col1 == input->cols &&
           w->row1 <= input->rows && (input->ring == 1 || input->row_pitch == (int64_t)input->cols * input->col_pitch) &&
           input->offset % NEUTRON_JOB_ALIGNED == 0;
}

bool conv_2d_job_s8_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    const NeutronConv2dJobS8 *p = params;
    const void *words = params;
    /* The sizes of weights follow below. */
    if (!neutron_convolution_is_sound(program, words, window, 0)) return false;
    const NeutronBuffer *input = &program->buffers[p->input], *output = &program->buffers[p->output];
    if (p->group_inputs != input->channels || p->group_outputs != output->channels || window->channel0 != 0 ||
        window->channel1 != output->channels || p->constant_channel0 != 0) {
        return false;
    }
    if ((p->flipped != 0 && p->copied == 0) || inputs_of(p) > NEUTRON_JOB_MOST_INPUTS ||
        p->job_inputs < NEUTRON_JOB_ALIGNED || p->job_inputs > NEUTRON_JOB_MOST_INPUTS ||
        p->job_inputs % NEUTRON_JOB_ALIGNED != 0 || p->job_rows < 1 || p->job_rows > NEUTRON_JOB_MOST_ROWS ||
        p->job_channels < output->channels || p->job_channels % NEUTRON_JOB_ALIGNED != 0 || p->job_channels > UINT16_MAX) {
        return false;
    }
    const uint64_t channels = (uint64_t)p->job_channels;
    const NeutronJobMemory memory = memory_of(p, NULL);
    return (p->copied != 0 || rows_join(p, input, window)) &&
           neutron_job_memory_is_sound(program, p->memory, &memory) &&
           neutron_range_is_sound(program, p->weights_base, p->weights_offset, channels * (uint64_t)memory.inputs,
                                  NEUTRON_ALIGNMENT) &&
           neutron_range_is_sound(program, p->job_base, p->job_offset, channels * TABLES * sizeof(int32_t),
                                  NEUTRON_ALIGNMENT);
}

/* ---- the operand ---------------------------------------------------------------------------------------------------- */

/* An output pixel. */
typedef struct {
    int32_t n, row, col;
} Place;

static void advance(Place *place, const NeutronWindowExtents *w) {
    if (++place->col < w->col1) return;
    place->col = w->col0;
    if (++place->row < w->row1) return;
    place->row = w->row0;
    ++place->n;
}

typedef struct {
    const NeutronKernelCall *call;
    const NeutronConv2dJobS8 *p;
    const NeutronBuffer *input, *output;
    NeutronJobMemory memory;
    int32_t parts;
} Layer;

/* Writes `count` inputs of a row from number `first` on: those at `from`, or `value` where from is NULL. */
static void put(const Layer *layer, int32_t row, int32_t first, const uint8_t *from, int32_t pitch, uint8_t value,
                int32_t count) {
    while (count > 0) {
        const int32_t part = layer->parts == 1 ? 0 : first / layer->p->job_inputs;
        const int32_t inside = first - part * layer->p->job_inputs;
        const int32_t left = neutron_job_inputs(&layer->memory, part) - inside;
        const int32_t now = count < left ? count : left;
        uint8_t *to = neutron_job_row(&layer->memory, part, row) + inside;
        if (from == NULL) {
            memset(to, value, (size_t)now);
        } else if (pitch == 1) {
            memmove(to, from, (size_t)now); /* a program may place its memory over its input */
        } else {
            for (int32_t i = 0; i < now; i++) to[i] = from[(ptrdiff_t)i * pitch];
        }
        if (from != NULL) from += (ptrdiff_t)now * pitch;
        first += now;
        count -= now;
    }
}

/* The inputs of all taps of a pixel as one row of the operand. */
static void put_pixel(const Layer *layer, int32_t row, const Place *place) {
    const NeutronConv2dJobS8 *p = layer->p;
    const NeutronBuffer *input = layer->input;
    const int32_t channels = p->group_inputs, pitch = input->channel_pitch;
    const uint8_t zero = (uint8_t)p->input_zero_point;
    const bool joined = pitch == 1 && p->dilation_w == 1 && input->col_pitch == channels;
    const int32_t col0 = place->col * p->stride_w - p->pad_left;
    int32_t first = 0;
    for (int32_t i = 0; i < p->kernel_h; i++) {
        const int32_t from_row = place->row * p->stride_h - p->pad_top + i * p->dilation_h;
        if (from_row < 0 || from_row >= input->rows) {
            put(layer, row, first, NULL, 1, zero, p->kernel_w * channels);
            first += p->kernel_w * channels;
            continue;
        }
        const uint8_t *line = neutron_row_address(layer->call->bases, input, place->n, from_row);
        for (int32_t j = 0; j < p->kernel_w;) {
            const int32_t col = col0 + j * p->dilation_w;
            const bool inside = col >= 0 && col < input->cols;
            int32_t taps = 1;
            if (joined && inside) {
                const int32_t there = input->cols - col;
                taps = p->kernel_w - j < there ? p->kernel_w - j : there;
            }
            put(layer, row, first, inside ? line + (ptrdiff_t)col * input->col_pitch : NULL, pitch, zero, taps * channels);
            first += taps * channels;
            j += taps;
        }
    }
    put(layer, row, first, NULL, 1, 0, layer->memory.inputs - first);
}

/* Inverts the sign of each input, for releases whose operands are uint8; the biases hold the difference. */
static void flip(const Layer *layer, int32_t rows) {
    for (int32_t part = 0; part < layer->parts; part++) {
        uint8_t *operand = neutron_job_row(&layer->memory, part, 0);
        const size_t size = (size_t)rows * (size_t)neutron_job_inputs(&layer->memory, part);
        for (size_t i = 0; i < size; i++) operand[i] ^= (uint8_t)layer->p->flipped;
    }
}

/* ---- jobs ----------------------------------------------------------------------------------------------------------- */

/* Multiplies `rows` rows of a part of the inputs. */
static NeutronError multiply(const Layer *layer, int32_t part, const uint8_t *operand, int32_t rows) {
    const NeutronConv2dJobS8 *p = layer->p;
    const NeutronBases *bases = layer->call->bases;
    const int32_t inputs = neutron_job_inputs(&layer->memory, part);
    const size_t channels = (size_t)p->job_channels, table = channels * sizeof(int32_t);
    const uint8_t *weights = neutron_base_address(bases, p->weights_base) + p->weights_offset;
    const uint8_t *tables = neutron_base_address(bases, p->job_base) + p->job_offset;
    const uint8_t *results = neutron_job_results(&layer->memory, part);
    /* The tables are the biases, which the first part adds, zeros, and the factors. */
    const void *const addresses[] = {operand, weights + channels * (size_t)(part * p->job_inputs),
                                     tables + (part == 0 ? 0 : table), tables + 2 * table, results};
    uint32_t words[NEUTRON_JOB_WORDS] = {
        [NEUTRON_JOB_KIND] = (uint32_t)p->job_kind,
        [NEUTRON_JOB_ROWS] = (uint32_t)rows,
        [NEUTRON_JOB_INPUTS] = (uint32_t)inputs,
        [NEUTRON_JOB_CHANNELS] = (uint32_t)p->job_channels,
        [NEUTRON_JOB_BYTES_OF_RESULT] = NEUTRON_JOB_RESULT_BYTES,
        [NEUTRON_JOB_BITS] = (uint32_t)p->job_bits,
        [NEUTRON_JOB_GROUP] = (uint32_t)p->job_group,
    };
    for (int word = NEUTRON_JOB_OPERAND; word <= NEUTRON_JOB_RESULTS; word++) {
        const void *address = addresses[word - NEUTRON_JOB_OPERAND];
        if (!neutron_job_set_offset(words, word, address, layer->memory.header)) return ENEUTRON_JOB_MEMORY;
    }
    return neutron_job_run(words, layer->memory.header, operand, rows * inputs, results,
                           rows * p->job_channels * NEUTRON_JOB_RESULT_BYTES);
}

/* ---- results -------------------------------------------------------------------------------------------------------- */

/* The accumulators of 8 channels of a row. */
static void add_parts(const Layer *layer, int32_t row, int32_t channel, uint32_t *accumulators) {
    const size_t at = ((size_t)row * (size_t)layer->p->job_channels + (size_t)channel) * NEUTRON_JOB_RESULT_BYTES;
    memcpy(accumulators, neutron_job_results(&layer->memory, 0) + at, NEUTRON_LANES * sizeof *accumulators);
    for (int32_t part = 1; part < layer->parts; part++) {
        uint32_t more[NEUTRON_LANES];
        memcpy(more, neutron_job_results(&layer->memory, part) + at, sizeof more);
        for (int32_t k = 0; k < NEUTRON_LANES; k++) accumulators[k] += more[k];
    }
}

#if NEUTRON_NEON_VARIANTS

/* The rescaled accumulators of 8 channels of two rows, as bytes. */
static NEUTRON_INLINE int8x16_t stored(const Layer *layer, const NeutronRequantBlock *table, const NeutronRescaleNeon *rescale,
                                       const NeutronRangeNeon *range, int32_t a, int32_t b, int32_t channel,
                                       const NeutronRescaleKind kind) {
    const int32_t rows[2] = {a, b};
    int32x4_t y[2][2];
    NEUTRON_UNROLL
    for (int i = 0; i < 2; i++) {
        const size_t pixel = (size_t)rows[i] * (size_t)layer->p->job_channels;
        const size_t at = (pixel + (size_t)channel) * NEUTRON_JOB_RESULT_BYTES;
        NEUTRON_UNROLL
        for (int half = 0; half < 2; half++) {
            int32x4_t sum = vreinterpretq_s32_u8(vld1q_u8(neutron_job_results(&layer->memory, 0) + at + 16 * half));
            for (int32_t part = 1; part < layer->parts; part++) {
                const uint8_t *more = neutron_job_results(&layer->memory, part) + at + 16 * half;
                sum = vaddq_s32(sum, vreinterpretq_s32_u8(vld1q_u8(more)));
            }
            y[i][half] = kind == NEUTRON_RESCALE_ONCE ? neutron_rounded_once_neon(sum, table, half)
                                                      : neutron_rescaled_neon(sum, rescale, half, kind);
        }
    }
    return neutron_stored_neon(y[0], y[1], range);
}

static NEUTRON_INLINE void store_block(const Layer *layer, const NeutronRequantBlock *table, Place place, int32_t rows,
                                       int32_t channel, const NeutronRescaleKind kind) {
    const void *words = layer->p;
    const NeutronRangeNeon range = neutron_range_neon(words);
    const NeutronRescaleNeon rescale = neutron_rescale_neon(table);
    const NeutronBases *bases = layer->call->bases;
    const int32_t count = layer->output->channels - channel;
    for (int32_t row = 0; row < rows; row += 2) {
        const bool two = row + 1 < rows;
        const uint64x2_t bytes = vreinterpretq_u64_s8(
            stored(layer, table, &rescale, &range, row, two ? row + 1 : row, channel, kind));
        uint8_t *to = neutron_element_address(bases, layer->output, place.n, place.row, place.col, channel);
        neutron_store_eight(to, vgetq_lane_u64(bytes, 0), count);
        advance(&place, &layer->call->window);
        if (!two) return;
        to = neutron_element_address(bases, layer->output, place.n, place.row, place.col, channel);
        neutron_store_eight(to, vgetq_lane_u64(bytes, 1), count);
        advance(&place, &layer->call->window);
    }
}

static bool store_neon(const Layer *layer, Place place, int32_t rows) {
    if (layer->output->channel_pitch != 1) return false;
    const void *words = layer->p;
    const NeutronRequantBlock *table = neutron_requant_blocks(layer->call, words);
    for (int32_t channel = 0; channel < layer->output->channels; channel += NEUTRON_LANES, table++) {
        if (layer->p->single_rounding != 0) {
            store_block(layer, table, place, rows, channel, NEUTRON_RESCALE_ONCE);
        } else {
            store_block(layer, table, place, rows, channel, NEUTRON_RESCALE_ANY);
        }
    }
    return true;
}

#endif

/* Rescales the results of `rows` rows, and stores them from a pixel on. */
static void store(const Layer *layer, Place place, int32_t rows) {
#if NEUTRON_NEON_VARIANTS
    if (store_neon(layer, place, rows)) return;
#endif
    const void *words = layer->p;
    const NeutronBuffer *output = layer->output;
    for (int32_t row = 0; row < rows; row++) {
        const NeutronRequantBlock *table = neutron_requant_blocks(layer->call, words);
        uint8_t *to = neutron_element_address(layer->call->bases, output, place.n, place.row, place.col, 0);
        for (int32_t channel = 0; channel < output->channels; channel += NEUTRON_LANES) {
            const int32_t left = output->channels - channel;
            uint32_t accumulators[NEUTRON_LANES];
            add_parts(layer, row, channel, accumulators);
            neutron_store_accumulators(words, table++, accumulators, to, output->channel_pitch,
                                       left < NEUTRON_LANES ? left : NEUTRON_LANES);
            to += (ptrdiff_t)NEUTRON_LANES * output->channel_pitch;
        }
        advance(&place, &layer->call->window);
    }
}

/* ---- run ------------------------------------------------------------------------------------------------------------ */

/* The rows from a pixel on that follow each other in the input, at most `most`. */
static int32_t rows_there(const Layer *layer, const Place *place, int32_t most) {
    const NeutronBuffer *input = layer->input;
    const NeutronWindowExtents *w = &layer->call->window;
    const int32_t to_wrap = input->ring - place->row % input->ring, to_end = w->row1 - place->row;
    const int64_t there = (int64_t)(to_wrap < to_end ? to_wrap : to_end) * input->cols - place->col;
    return there < most ? (int32_t)there : most;
}

static NeutronError run(const Layer *layer) {
    const NeutronWindowExtents *w = &layer->call->window;
    if (!neutron_jobs_are_there()) return ENEUTRON_NO_JOBS;
    Place place = {w->batch0, w->row0, w->col0};
    const int64_t rows_of_batch = (int64_t)(w->row1 - w->row0) * (w->col1 - w->col0);
    int64_t left = rows_of_batch * (w->batch1 - w->batch0);
    while (left > 0) {
        const Place first = place;
        int32_t rows = left < layer->p->job_rows ? (int32_t)left : layer->p->job_rows;
        const uint8_t *operand = NULL;
        if (layer->p->copied != 0) {
            for (int32_t row = 0; row < rows; row++) {
                put_pixel(layer, row, &place);
                advance(&place, w);
            }
            if (layer->p->flipped != 0) flip(layer, rows);
        } else {
            rows = rows_there(layer, &place, rows);
            operand = neutron_element_address(layer->call->bases, layer->input, place.n, place.row, place.col, 0);
            for (int32_t row = 0; row < rows; row++) advance(&place, w);
        }
        for (int32_t part = 0; part < layer->parts; part++) {
            const uint8_t *from = operand != NULL ? operand : neutron_job_row(&layer->memory, part, 0);
            const NeutronError error = multiply(layer, part, from, rows);
            if (error != ENONE) return error;
        }
        store(layer, first, rows);
        left -= rows;
    }
    return ENONE;
}

void conv_2d_job_s8_run(const NeutronKernelCall *call) {
    const NeutronConv2dJobS8 *p = call->params;
    const NeutronJobMemory memory = memory_of(p, neutron_job_header(call, p->memory));
    const Layer layer = {
        .call = call,
        .p = p,
        .input = &call->buffers[p->input],
        .output = &call->buffers[p->output],
        .memory = memory,
        .parts = neutron_job_parts(&memory),
    };
    const NeutronError error = run(&layer);
    if (error != ENONE && call->error != NULL) *call->error = error;
}

#else

/* NXP's driver for matrix products is one for Linux. */
bool conv_2d_job_s8_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    (void)program, (void)params, (void)window;
    return false;
}

void conv_2d_job_s8_run(const NeutronKernelCall *call) { (void)call; }

#endif
