/* SPDX-License-Identifier: BSD-3-Clause */
/* Convolutions and fully connected layers by the matrix products that the driver of NXP's NPU takes as jobs (jobs.h).
 *
 * A job's operand has a row for each output pixel, with the inputs of all its taps, and zeros up to a multiple of 16. The rows are read
 * where they lie, or are put together in the call's memory. A result of a job is an accumulator of 32 bits with its bias: the factor of
 * every channel is 1, so that no rounding occurs on the NPU. The rescaling follows here, as in the other kernels of convolutions.
 *
 * Weights have 8 bits, or 4 bits that the NPU decodes to 8 by a scale and a bias of each group of inputs. The int4 weights of a part are
 * followed by its decode scales, its decode biases, and the lengths of its blocks.
 *
 * Results of 1 byte are rescaled on the NPU, whose rounding is not published, and only copied here. */
#include "conv_2d/neon.h"
#include "jobs.h"

#ifdef __linux__

enum { TABLES = 3, ONES_BYTES = 16, INT4_BITS = 4, INT4_FORM = 1 << 18 };

static int64_t inputs_of(const NeutronConv2dJobS8 *p) { return (int64_t)p->kernel_h * p->kernel_w * p->group_inputs; }

static bool has_int4(const NeutronConv2dJobS8 *p) { return p->job_bits == INT4_BITS; }

/* The inputs of a job are a multiple of this number, a power of two. */
static int32_t step_of(const NeutronConv2dJobS8 *p) { return has_int4(p) ? p->job_group : NEUTRON_JOB_ALIGNED; }

static bool step_is_sound(const NeutronConv2dJobS8 *p) {
    return !has_int4(p) || p->job_group == 32 || p->job_group == 64 || p->job_group == 128;
}

/* Results of several parts are added, and int4 weights have results of 4 bytes. */
static bool results_are_sound(const NeutronConv2dJobS8 *p) {
    return p->job_result_bytes == NEUTRON_JOB_RESULT_BYTES ||
           (p->job_result_bytes == 1 && !has_int4(p) && p->job_inputs >= inputs_of(p));
}

/* The bytes of the weights of a part. The list of lengths has a word for 16 channels: a block has 16 or more. */
static uint64_t part_bytes(const NeutronConv2dJobS8 *p, uint64_t inputs) {
    const uint64_t channels = (uint64_t)p->job_channels, list = channels / NEUTRON_JOB_ALIGNED * sizeof(int32_t);
    if (!has_int4(p)) return channels * inputs;
    return channels * inputs / 2 + 3 * (channels * inputs / (uint64_t)p->job_group) +
           ((list + NEUTRON_ALIGNMENT - 1) & ~(uint64_t)(NEUTRON_ALIGNMENT - 1));
}

static uint64_t weights_bytes(const NeutronConv2dJobS8 *p, int32_t inputs) {
    const int32_t whole = inputs / p->job_inputs, rest = inputs % p->job_inputs;
    return (uint64_t)whole * part_bytes(p, (uint64_t)p->job_inputs) + (rest != 0 ? part_bytes(p, (uint64_t)rest) : 0);
}

static NeutronJobMemory memory_of(const NeutronConv2dJobS8 *p, uint8_t *header) {
    return (NeutronJobMemory){.header = header,
                              .rows = p->job_rows,
                              .channels = p->job_channels,
                              .inputs = (int32_t)((inputs_of(p) + step_of(p) - 1) & ~(int64_t)(step_of(p) - 1)),
                              .most_inputs = p->job_inputs,
                              .copied = p->copied != 0,
                              .small = p->job_result_bytes == 1};
}

/* ---- check ---------------------------------------------------------------------------------------------------------- */

/* Rows of the operand follow each other in the input: each has all channels of one pixel. */
static bool rows_join(const NeutronConv2dJobS8 *p, const NeutronBuffer *input, const NeutronWindowExtents *w) {
    return p->kernel_h == 1 && p->kernel_w == 1 && p->stride_h == 1 && p->stride_w == 1 && p->pad_top == 0 &&
           p->pad_left == 0 && p->group_inputs % step_of(p) == 0 && p->job_inputs >= p->group_inputs &&
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
    if (!step_is_sound(p) || !results_are_sound(p) || (p->flipped != 0 && p->copied == 0) || inputs_of(p) > NEUTRON_JOB_MOST_INPUTS ||
        p->job_inputs < step_of(p) || p->job_inputs > NEUTRON_JOB_MOST_INPUTS || p->job_inputs % step_of(p) != 0 ||
        p->job_rows < 1 || p->job_rows > NEUTRON_JOB_MOST_ROWS ||
        p->job_channels < output->channels || p->job_channels % NEUTRON_JOB_ALIGNED != 0 || p->job_channels > UINT16_MAX) {
        return false;
    }
    const uint64_t tables = (uint64_t)p->job_channels * TABLES * sizeof(int32_t) + (has_int4(p) ? ONES_BYTES : 0);
    const NeutronJobMemory memory = memory_of(p, NULL);
    return (p->copied != 0 || rows_join(p, input, window)) &&
           neutron_job_memory_is_sound(program, p->memory, &memory) &&
           neutron_range_is_sound(program, p->weights_base, p->weights_offset, weights_bytes(p, memory.inputs),
                                  NEUTRON_ALIGNMENT) &&
           neutron_range_is_sound(program, p->job_base, p->job_offset, tables, NEUTRON_ALIGNMENT);
}

/* ---- the operand ---------------------------------------------------------------------------------------------------- */

/* An output pixel. */
typedef struct {
    int32_t n, row, col;
} Place;

/* Goes on by so many pixels, which don't lead past the last one of the batch. */
static NEUTRON_INLINE void advance(Place *place, const NeutronWindowExtents *w, int32_t pixels) {
    place->col += pixels;
    if (place->col < w->col1) return;
    const int32_t cols = w->col1 - w->col0, done = place->col - w->col0;
    place->col = w->col0 + done % cols;
    place->row += done / cols;
    if (place->row < w->row1) return;
    place->row = w->row0;
    ++place->n;
}

/* The pixels of a window from a place on that follow each other in a buffer. */
static int32_t pixels_there(const NeutronBuffer *buffer, const NeutronWindowExtents *w, const Place *place) {
    const int32_t left = w->col1 - place->col;
    const bool joined = w->col0 == 0 && w->col1 == buffer->cols && buffer->row_pitch == (int64_t)buffer->cols * buffer->col_pitch;
    if (!joined) return left;
    const int32_t to_wrap = buffer->ring - place->row % buffer->ring, to_end = w->row1 - place->row;
    const int64_t there = (int64_t)((to_wrap < to_end ? to_wrap : to_end) - 1) * buffer->cols + left;
    return there < NEUTRON_JOB_MOST_ROWS ? (int32_t)there : NEUTRON_JOB_MOST_ROWS;
}

typedef struct {
    const NeutronKernelCall *call;
    const NeutronConv2dJobS8 *p;
    const NeutronBuffer *input, *output;
    NeutronJobMemory memory;
    int32_t parts;
} Layer;

/* Where input number `first` of a row goes. */
typedef struct {
    uint8_t *to;
    int32_t left; /* inputs of the part from there on */
    int32_t pitch; /* to the next row */
} Spot;

static NEUTRON_INLINE Spot spot_of(const Layer *layer, int32_t row, int32_t first) {
    const int32_t part = layer->parts == 1 ? 0 : first / layer->p->job_inputs, inside = first - part * layer->p->job_inputs;
    const int32_t inputs = neutron_job_inputs(&layer->memory, part);
    return (Spot){neutron_job_row(&layer->memory, part, row) + inside, inputs - inside, inputs};
}

/* A program may place its memory over its input. So each word is read before it is written. */
static NEUTRON_INLINE void copy_bytes(uint8_t *to, const uint8_t *from, int32_t count) {
    uint64_t words[2];
    for (; count >= 16; count -= 16, from += 16, to += 16) {
        memcpy(words, from, 16);
        memcpy(to, words, 16);
    }
    if (count >= 8) {
        memcpy(words, from, 8);
        memcpy(to, words, 8);
        from += 8;
        to += 8;
        count -= 8;
    }
    for (; count > 0; count--) *to++ = *from++;
}

/* Writes `count` inputs of a row from number `first` on: those at `from`, or `value` where from is NULL. */
static void put(const Layer *layer, int32_t row, int32_t first, const uint8_t *from, int32_t pitch, uint8_t value,
                int32_t count) {
    while (count > 0) {
        const Spot spot = spot_of(layer, row, first);
        const int32_t now = count < spot.left ? count : spot.left;
        if (from == NULL) {
            memset(spot.to, value, (size_t)now);
        } else if (pitch == 1) {
            copy_bytes(spot.to, from, now);
        } else {
            for (int32_t i = 0; i < now; i++) spot.to[i] = from[(ptrdiff_t)i * pitch];
        }
        if (from != NULL) from += (ptrdiff_t)now * pitch;
        first += now;
        count -= now;
    }
}

/* The inputs of `taps` taps from (i, j) on of the pixels of an output row. Their columns follow each other. */
static void put_taps(const Layer *layer, int32_t row, const Place *place, int32_t pixels, int32_t i, int32_t j, int32_t taps) {
    const NeutronConv2dJobS8 *p = layer->p;
    const NeutronBuffer *input = layer->input;
    const int32_t channels = p->group_inputs, first = (i * p->kernel_w + j) * channels, size = taps * channels;
    const int32_t from_row = place->row * p->stride_h - p->pad_top + i * p->dilation_h;
    const uint8_t zero = (uint8_t)p->input_zero_point;
    if (from_row < 0 || from_row >= input->rows) {
        for (int32_t k = 0; k < pixels; k++) put(layer, row + k, first, NULL, 1, zero, size);
        return;
    }
    const uint8_t *line = neutron_row_address(layer->call->bases, input, place->n, from_row);
    Spot spot = spot_of(layer, row, first);
    const bool whole = input->channel_pitch == 1 && size <= spot.left;
    int32_t col = place->col * p->stride_w - p->pad_left + j * p->dilation_w;
    for (int32_t k = 0; k < pixels; k++, col += p->stride_w, spot.to += spot.pitch) {
        if (whole && col >= 0 && col <= input->cols - taps) {
            copy_bytes(spot.to, line + (ptrdiff_t)col * input->col_pitch, size);
            continue;
        }
        const int32_t before = neutron_bound(-col, 0, taps), end = neutron_bound(input->cols - col, before, taps);
        put(layer, row + k, first, NULL, 1, zero, before * channels);
        const uint8_t *from = end > before ? line + (ptrdiff_t)(col + before) * input->col_pitch : NULL;
        put(layer, row + k, first + before * channels, from, input->channel_pitch, zero, (end - before) * channels);
        put(layer, row + k, first + end * channels, NULL, 1, zero, (taps - end) * channels);
    }
}

/* Writes the rows of the operand of some pixels of an output row, from row `row` on. */
static void put_pixels(const Layer *layer, int32_t row, const Place *place, int32_t pixels) {
    const NeutronConv2dJobS8 *p = layer->p;
    const bool joined = p->dilation_w == 1 && layer->input->channel_pitch == 1 && layer->input->col_pitch == p->group_inputs;
    const int32_t taps = joined ? p->kernel_w : 1;
    for (int32_t i = 0; i < p->kernel_h; i++) {
        for (int32_t j = 0; j < p->kernel_w; j += taps) put_taps(layer, row, place, pixels, i, j, taps);
    }
    /* A part has a multiple of 16 inputs, so the zeros up to such a number are in one. */
    const int32_t inputs = (int32_t)inputs_of(p), zeros = layer->memory.inputs - inputs;
    if (zeros == 0) return;
    Spot spot = spot_of(layer, row, inputs);
    for (int32_t k = 0; k < pixels; k++, spot.to += spot.pitch) memset(spot.to, 0, (size_t)zeros);
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

/* Sets the words of int4 weights that int8 weights do not have. Returns false where a word can't hold its offset. */
static bool set_int4(const Layer *layer, const uint8_t *weights, int32_t inputs, const uint8_t *ones, uint32_t *words) {
    const NeutronConv2dJobS8 *p = layer->p;
    const uint8_t *header = layer->memory.header;
    const size_t values = (size_t)p->job_channels * (size_t)inputs, groups = values / (size_t)p->job_group;
    const uint8_t *scales = weights + values / 2, *biases = scales + 2 * groups;
    words[NEUTRON_JOB_KIND] = 0;
    if (p->job_kind != 0) {
        /* The release that has kinds has lengths of blocks too. */
        if (!neutron_job_set_offset(words, NEUTRON_JOB_LENGTHS, biases + groups, header)) return false;
        words[NEUTRON_JOB_CHANNELS] |= INT4_FORM;
        words[NEUTRON_JOB_INT4_KIND] = (uint32_t)p->job_kind;
    }
    return neutron_job_set_offset(words, NEUTRON_JOB_DECODE_BIASES, biases, header) &&
           neutron_job_set_offset(words, NEUTRON_JOB_DECODE_SCALES, scales, header) &&
           neutron_job_set_offset(words, NEUTRON_JOB_ONES, ones, header);
}

/* Multiplies `rows` rows of a part of the inputs. */
static NeutronError multiply(const Layer *layer, int32_t part, const uint8_t *operand, int32_t rows) {
    const NeutronConv2dJobS8 *p = layer->p;
    const NeutronBases *bases = layer->call->bases;
    const int32_t inputs = neutron_job_inputs(&layer->memory, part);
    const size_t channels = (size_t)p->job_channels, table = channels * sizeof(int32_t);
    const uint8_t *weights = neutron_base_address(bases, p->weights_base) + p->weights_offset +
                             (size_t)part * (size_t)part_bytes(p, (uint64_t)p->job_inputs);
    const uint8_t *tables = neutron_base_address(bases, p->job_base) + p->job_offset;
    const uint8_t *results = neutron_job_results(&layer->memory, part);
    /* The tables are the biases, which the first part adds, zeros, and the factors. */
    const void *const addresses[] = {operand, weights, tables + (part == 0 ? 0 : table), tables + 2 * table, results};
    uint32_t words[NEUTRON_JOB_WORDS] = {
        [NEUTRON_JOB_KIND] = (uint32_t)p->job_kind,
        [NEUTRON_JOB_ROWS] = (uint32_t)rows,
        [NEUTRON_JOB_INPUTS] = (uint32_t)inputs,
        [NEUTRON_JOB_CHANNELS] = (uint32_t)p->job_channels,
        [NEUTRON_JOB_BYTES_OF_RESULT] = (uint32_t)p->job_result_bytes,
        [NEUTRON_JOB_BITS] = (uint32_t)p->job_bits,
        [NEUTRON_JOB_GROUP] = (uint32_t)p->job_group,
    };
    for (int word = NEUTRON_JOB_OPERAND; word <= NEUTRON_JOB_RESULTS; word++) {
        const void *address = addresses[word - NEUTRON_JOB_OPERAND];
        if (!neutron_job_set_offset(words, word, address, layer->memory.header)) return ENEUTRON_JOB_MEMORY;
    }
    if (has_int4(p) && !set_int4(layer, weights, inputs, tables + TABLES * table, words)) return ENEUTRON_JOB_MEMORY;
    return neutron_job_run(words, layer->memory.header, operand, rows * inputs, results,
                           rows * p->job_channels * p->job_result_bytes);
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

/* Pixels that follow each other in the results and in the output, few enough that the first cache keeps their results. */
typedef struct {
    const uint8_t *results; /* of the first pixel in the first part */
    size_t pixel_bytes, part_bytes; /* from the results of a pixel, or of a part, to the next */
    int32_t parts;
    uint8_t *out;
    ptrdiff_t out_pitch;
    int32_t pixels;
} Tile;

enum { TILE_PIXELS = 16 };

/* 4 accumulators. */
static NEUTRON_INLINE int32x4_t accumulators_of(const uint8_t *from, const Tile *tile, const bool whole) {
    int32x4_t sum = vreinterpretq_s32_u8(vld1q_u8(from));
    for (int32_t part = 1; !whole && part < tile->parts; part++) {
        from += tile->part_bytes;
        sum = vaddq_s32(sum, vreinterpretq_s32_u8(vld1q_u8(from)));
    }
    return sum;
}

/* 8 channels of all pixels, of which `count` are stored. whole: there is one part. */
static NEUTRON_INLINE void store_block(const Tile *tile, int32_t channel, const NeutronRequantBlock *table,
                                       const NeutronRescaleNeon *rescale, const NeutronRangeNeon *range, int32_t count,
                                       const NeutronRescaleKind kind, const bool whole) {
    const uint8_t *from = tile->results + (size_t)channel * NEUTRON_JOB_RESULT_BYTES;
    uint8_t *to = tile->out + channel;
    for (int32_t left = tile->pixels; left > 0; left -= 2) {
        const uint8_t *const pixels[2] = {from, left > 1 ? from + tile->pixel_bytes : from};
        int32x4_t y[2][2];
        NEUTRON_UNROLL
        for (int i = 0; i < 2; i++) {
            NEUTRON_UNROLL
            for (int half = 0; half < 2; half++) {
                const int32x4_t x = accumulators_of(pixels[i] + 16 * half, tile, whole);
                y[i][half] = kind == NEUTRON_RESCALE_ONCE ? neutron_rounded_once_neon(x, table, half)
                                                          : neutron_rescaled_neon(x, rescale, half, kind);
            }
        }
        const uint64x2_t bytes = vreinterpretq_u64_s8(neutron_stored_neon(y[0], y[1], range));
        neutron_store_eight(to, vgetq_lane_u64(bytes, 0), count);
        if (left > 1) neutron_store_eight(to + tile->out_pitch, vgetq_lane_u64(bytes, 1), count);
        from += 2 * tile->pixel_bytes;
        to += 2 * tile->out_pitch;
    }
}

static NEUTRON_INLINE void store_tile(const Layer *layer, const Tile *tile, const bool whole) {
    const void *words = layer->p;
    const NeutronRangeNeon range = neutron_range_neon(words);
    const NeutronRequantBlock *table = neutron_requant_blocks(layer->call, words);
    for (int32_t channel = 0; channel < layer->output->channels; channel += NEUTRON_LANES, table++) {
        const NeutronRescaleNeon rescale = neutron_rescale_neon(table);
        const int32_t left = layer->output->channels - channel;
        if (layer->p->single_rounding != 0) {
            store_block(tile, channel, table, &rescale, &range, left, NEUTRON_RESCALE_ONCE, whole);
        } else if (left < NEUTRON_LANES) {
            store_block(tile, channel, table, &rescale, &range, left, NEUTRON_RESCALE_ANY, whole);
        } else if (neutron_rescale_kind(words, &rescale) == NEUTRON_RESCALE_FROM_ZERO) {
            store_block(tile, channel, table, &rescale, &range, NEUTRON_LANES, NEUTRON_RESCALE_FROM_ZERO, whole);
        } else {
            store_block(tile, channel, table, &rescale, &range, NEUTRON_LANES, NEUTRON_RESCALE_ANY, whole);
        }
    }
}

static bool store_neon(const Layer *layer, Place place, int32_t rows) {
    const NeutronBuffer *output = layer->output;
    const NeutronWindowExtents *w = &layer->call->window;
    if (output->channel_pitch != 1) return false;
    Tile tile = {.results = neutron_job_results(&layer->memory, 0),
                 .pixel_bytes = (size_t)layer->p->job_channels * NEUTRON_JOB_RESULT_BYTES,
                 .parts = layer->parts,
                 .out_pitch = output->col_pitch};
    tile.part_bytes = (size_t)layer->p->job_rows * tile.pixel_bytes;
    while (rows > 0) {
        const int32_t there = pixels_there(output, w, &place);
        const int32_t here = there < rows ? there : rows;
        tile.pixels = here < TILE_PIXELS ? here : TILE_PIXELS;
        tile.out = neutron_element_address(layer->call->bases, output, place.n, place.row, place.col, 0);
        if (tile.parts == 1) {
            store_tile(layer, &tile, true);
        } else {
            store_tile(layer, &tile, false);
        }
        tile.results += (size_t)tile.pixels * tile.pixel_bytes;
        rows -= tile.pixels;
        advance(&place, w, tile.pixels);
    }
    return true;
}

#endif

/* Stores results of 1 byte. */
static void copy(const Layer *layer, Place place, int32_t rows) {
    const NeutronBuffer *output = layer->output;
    const uint8_t *from = neutron_job_results(&layer->memory, 0);
    for (int32_t row = 0; row < rows; row++) {
        uint8_t *to = neutron_element_address(layer->call->bases, output, place.n, place.row, place.col, 0);
        if (output->channel_pitch == 1) {
            memcpy(to, from, (size_t)output->channels);
        } else {
            for (int32_t i = 0; i < output->channels; i++) to[(ptrdiff_t)i * output->channel_pitch] = from[i];
        }
        from += layer->p->job_channels;
        advance(&place, &layer->call->window, 1);
    }
}

/* Rescales the results of `rows` rows, and stores them from a pixel on. */
static void store(const Layer *layer, Place place, int32_t rows) {
    if (layer->memory.small) {
        copy(layer, place, rows);
        return;
    }
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
        advance(&place, &layer->call->window, 1);
    }
}

/* ---- run ------------------------------------------------------------------------------------------------------------ */

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
            for (int32_t row = 0; row < rows;) {
                const int32_t there = w->col1 - place.col, pixels = there < rows - row ? there : rows - row;
                put_pixels(layer, row, &place, pixels);
                row += pixels;
                advance(&place, w, pixels);
            }
            if (layer->p->flipped != 0) flip(layer, rows);
        } else {
            const int32_t there = pixels_there(layer->input, w, &place);
            if (there < rows) rows = there;
            operand = neutron_element_address(layer->call->bases, layer->input, place.n, place.row, place.col, 0);
            advance(&place, w, rows);
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
