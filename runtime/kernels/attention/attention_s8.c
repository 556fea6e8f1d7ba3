/* SPDX-License-Identifier: BSD-3-Clause */
/* Attention of each row of the queries to all keys: the bytes of LiteRT's BATCH_MATMUL, ADD, SOFTMAX and BATCH_MATMUL one after
 * the other, with only the scores of one row and head in memory. The scratch holds a query, then the scores, which become
 * probabilities in place. */
#include "softmax.h"
#include "sum.h"

/* The number of products of two differences of stored values whose sum fits 32 bits. */
enum { MOST_SUMMED = 1 << 15 };

/* The bound of the left shift of a probability of 16 fractional bits, which keeps the product below 2^25. */
enum { LARGEST_SHIFT = 9 };

enum { ENTRIES = 256 };

typedef struct {
    const NeutronKernelCall *call;
    const NeutronAttentionS8 *p;
    const NeutronBuffer *key, *value, *mask, *out;
    const int8_t *table, *reciprocal;
    const void *exponentials;
    uint8_t *query, *scores; /* of the current row and head */
    int32_t keys;
    NeutronSum sum;
    NeutronResult quotient;
} Attention;

/* ---- check ---------------------------------------------------------------------------------------------------------- */

static bool scale_is_sound(int32_t shift, int32_t zero_point) {
    return neutron_shift_is_sound(shift) && neutron_is_stored(zero_point);
}

static bool sum_is_sound(const NeutronAttentionS8 *p) {
    return neutron_summands_are_sound(p->sum_a_zero_point, p->sum_a_shift, p->sum_b_zero_point, p->sum_b_multiplier,
                                      p->sum_b_shift) &&
           scale_is_sound(p->sum_shift, p->sum_zero_point) && neutron_bounds_are_sound(p->sum_min, p->sum_max);
}

static bool numbers_are_sound(const NeutronAttentionS8 *p) {
    return neutron_is_stored(p->query_zero_point) && neutron_is_stored(p->key_zero_point) &&
           scale_is_sound(p->score_shift, p->score_zero_point) && p->probability_multiplier >= 0 &&
           p->probability_shift >= -31 && p->probability_shift <= LARGEST_SHIFT &&
           neutron_is_stored(p->probability_zero_point) && neutron_is_stored(p->value_zero_point) &&
           scale_is_sound(p->product_shift, p->product_zero_point) && neutron_bounds_are_sound(p->clamp_min, p->clamp_max);
}

static bool quotient_is_sound(const NeutronProgramView *program, const NeutronAttentionS8 *p) {
    return scale_is_sound(p->mean_shift, p->mean_zero_point) && neutron_is_stored(p->quotient_a_zero_point) &&
           neutron_is_stored(p->quotient_b_zero_point) && scale_is_sound(p->quotient_shift, p->quotient_zero_point) &&
           neutron_range_is_sound(program, p->reciprocal_base, p->reciprocal_offset, ENTRIES, 1);
}

/* Keys or values: all rows of the window's batches and heads. */
static bool is_held(const NeutronBuffer *buffer, const NeutronWindowExtents *w, int32_t group, int32_t channel0,
                    int32_t channel1) {
    const int32_t first = w->col0 / group, end = w->col1 > w->col0 ? (w->col1 - 1) / group + 1 : first;
    return w->batch1 <= buffer->batches && buffer->ring == buffer->rows &&
           neutron_buffer_holds(buffer, first, end, channel0, channel1);
}

bool attention_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronAttentionS8 *p = params_block;
    const NeutronBuffer *query = neutron_checked_buffer(program, p->query, false);
    const NeutronBuffer *key = neutron_checked_buffer(program, p->key, false);
    const NeutronBuffer *value = neutron_checked_buffer(program, p->value, false);
    const NeutronBuffer *mask = neutron_checked_buffer(program, p->mask, false);
    const NeutronBuffer *scores = neutron_checked_buffer(program, p->scores, true);
    const NeutronBuffer *out = neutron_window_buffer(program, p->output, true, window);
    if (query == NULL || key == NULL || value == NULL || mask == NULL || scores == NULL || out == NULL) return false;
    const int32_t keys = key->rows;
    if (p->depth < 1 || p->depth > MOST_SUMMED || keys > MOST_SUMMED || p->group < 1 || value->rows != keys) return false;
    /* A window of some channels computes all scores too. */
    const int64_t channels = (int64_t)window->channel1 - window->channel0;
    if (p->work * channels < keys * (p->depth + channels)) return false;
    if (window->batch1 > query->batches || window->row1 > query->rows ||
        !neutron_buffer_holds(query, window->col0, window->col1, 0, p->depth) ||
        !is_held(key, window, p->group, 0, p->depth) ||
        !is_held(value, window, p->group, window->channel0, window->channel1)) {
        return false;
    }
    if (scores->channel_pitch != 1 || !neutron_buffer_holds(scores, 0, 1, 0, p->depth + keys)) return false;
    if (p->masked != 0 && (window->batch1 > mask->batches || window->row1 > mask->rows || !sum_is_sound(p) ||
                           !neutron_buffer_holds(mask, window->col0, window->col1, 0, keys))) {
        return false;
    }
    if (p->tabled != 0 && !neutron_range_is_sound(program, p->table_base, p->table_offset, ENTRIES, 1)) return false;
    return numbers_are_sound(p) && (p->divides == 0 || quotient_is_sound(program, p)) &&
           softmax_table_is_sound(program, p->exp_base, p->exp_offset, p->exp_count, p->divides != 0 ? 1 : 4);
}

/* ---- run ------------------------------------------------------------------------------------------------------------ */

NEUTRON_ROWS_OF_NUMBERS(add, NeutronSum, neutron_sum)

/* Copies the query to the scratch, contiguous and mapped by the table. */
static NEUTRON_INLINE void take_query(const Attention *of, const uint8_t *from, int32_t pitch) {
    const NeutronAttentionS8 *p = of->p;
    if (p->tabled == 0) {
        neutron_copy_line(of->query, 1, from, pitch, p->depth);
        return;
    }
    for (int32_t i = 0; i < p->depth; i++) {
        of->query[i] = (uint8_t)of->table[(int8_t)from[(ptrdiff_t)i * pitch] - INT8_MIN];
    }
}

static NEUTRON_INLINE int32_t dot(const uint8_t *a, int32_t a_zero_point, const uint8_t *b, int32_t b_pitch,
                                  int32_t b_zero_point, int32_t count) {
    int32_t sum = 0;
    for (int32_t i = 0; i < count; i++) {
        const int16_t x = (int16_t)((int8_t)a[i] - a_zero_point);
        const int16_t y = (int16_t)((int8_t)b[(ptrdiff_t)i * b_pitch] - b_zero_point);
        sum += x * y;
    }
    return sum;
}

/* Computes scores from `done` on, in blocks of this size. */
static NEUTRON_INLINE int32_t score_blocks(const Attention *of, const uint8_t *keys, int32_t done, const int32_t size) {
    const NeutronAttentionS8 *p = of->p;
    const int32_t pitch = of->key->channel_pitch;
    const int32_t low = INT8_MIN - p->score_zero_point, high = INT8_MAX - p->score_zero_point;
    for (; done <= of->keys - size; done += size) {
        int32_t sums[NEUTRON_BLOCK];
        int8_t block[NEUTRON_BLOCK];
        for (int32_t i = 0; i < size; i++) {
            const uint8_t *key = keys + (ptrdiff_t)(done + i) * of->key->row_pitch;
            sums[i] = pitch == 1 ? dot(of->query, p->query_zero_point, key, 1, p->key_zero_point, p->depth)
                                 : dot(of->query, p->query_zero_point, key, pitch, p->key_zero_point, p->depth);
        }
        for (int32_t i = 0; i < size; i++) {
            const int32_t rescaled = neutron_requantize(sums[i], p->score_multiplier, p->score_shift);
            block[i] = (int8_t)(neutron_bound(rescaled, low, high) + p->score_zero_point);
        }
        memcpy(of->scores + done, block, (size_t)size);
    }
    return done;
}

/* Turns the scores into probabilities. */
static NEUTRON_INLINE void softmax(const Attention *of, int32_t largest) {
    const NeutronAttentionS8 *p = of->p;
    const int32_t *table = of->exponentials;
    const uint32_t count = (uint32_t)p->exp_count;
    const bool own_scale = p->probability_multiplier != 0;
    uint8_t results[ENTRIES];
    int64_t sum = 0;
    for (int32_t k = 0; k < of->keys; k++) {
        const uint32_t difference = (uint32_t)(largest - (int8_t)of->scores[k]);
        if (difference < count) sum += neutron_rounding_shift_right(table[difference], SUM_INTEGER_BITS);
    }
    const SoftmaxDivision by = softmax_division_by(sum, own_scale ? 16 : 8);
    memset(results, own_scale ? p->probability_zero_point & 0xFF : 0x80, sizeof results);
    for (uint32_t i = 0; i < count && own_scale; i++) {
        results[i] = softmax_rescaled(table[i], by, (const SoftmaxScale *)&p->probability_multiplier);
    }
    for (uint32_t i = 0; i < count && !own_scale; i++) results[i] = softmax_divided(table[i], by);
    for (int32_t k = 0; k < of->keys; k++) of->scores[k] = results[(uint8_t)(largest - (int8_t)of->scores[k])];
}

/* Turns the scores into exponentials, and returns the divisor of the products. */
static NEUTRON_INLINE int32_t exponentials(const Attention *of, int32_t largest) {
    const NeutronAttentionS8 *p = of->p;
    const int8_t *table = of->exponentials;
    const int32_t last = p->exp_count - 1;
    int32_t sum = 0;
    for (int32_t k = 0; k < of->keys; k++) {
        const int32_t difference = (uint8_t)(largest - (int8_t)of->scores[k]);
        const int8_t value = table[difference < last ? difference : last];
        of->scores[k] = (uint8_t)value;
        sum += value - p->probability_zero_point;
    }
    const int32_t low = INT8_MIN - p->mean_zero_point, high = INT8_MAX - p->mean_zero_point;
    const int32_t mean = neutron_bound(neutron_requantize(sum, p->mean_multiplier, p->mean_shift), low, high);
    return of->reciprocal[mean + p->mean_zero_point - INT8_MIN] - p->quotient_b_zero_point;
}

/* Computes channels [done, channels) of one row, in blocks of this size; `to` points to channel 0. */
static NEUTRON_INLINE int32_t product_blocks(const Attention *of, const uint8_t *values, uint8_t *to, int32_t channels,
                                             int32_t divisor, int32_t done, const int32_t size) {
    const NeutronAttentionS8 *p = of->p;
    const int32_t pitch = of->value->channel_pitch;
    const int32_t low = INT8_MIN - p->product_zero_point, high = INT8_MAX - p->product_zero_point;
    for (; done <= channels - size; done += size) {
        const uint8_t *column = values + (ptrdiff_t)done * pitch;
        int32_t sums[NEUTRON_BLOCK] = {0};
        int8_t block[NEUTRON_BLOCK];
        for (int32_t k = 0; k < of->keys; k++, column += of->value->row_pitch) {
            const int32_t factor = (int8_t)of->scores[k] - p->probability_zero_point;
            if (factor == 0) continue;
            neutron_load_block(block, column, pitch, size);
            for (int32_t i = 0; i < size; i++) sums[i] += factor * (block[i] - p->value_zero_point);
        }
        for (int32_t i = 0; i < size; i++) {
            const int32_t rescaled = neutron_requantize(sums[i], p->product_multiplier, p->product_shift);
            block[i] = (int8_t)(neutron_bound(rescaled, low, high) + p->product_zero_point);
        }
        for (int32_t i = 0; i < size && p->divides != 0; i++) {
            block[i] = neutron_result_of((block[i] - p->quotient_a_zero_point) * divisor, &of->quotient);
        }
        if (p->divides == 0) {
            for (int32_t i = 0; i < size; i++) block[i] = (int8_t)neutron_bound(block[i], p->clamp_min, p->clamp_max);
        }
        neutron_store_block(to + (ptrdiff_t)done * of->out->channel_pitch, of->out->channel_pitch, block, size);
    }
    return done;
}

/* Computes one row of one head. */
static NEUTRON_INLINE void attend(const Attention *of, int32_t n, int32_t r, int32_t head) {
    const NeutronAttentionS8 *p = of->p;
    const NeutronKernelCall *call = of->call;
    const NeutronBuffer *query = &call->buffers[p->query];
    const NeutronWindowExtents *w = &call->window;
    const int32_t group = head / p->group;
    take_query(of, neutron_element_address(call->bases, query, n, r, head, 0), query->channel_pitch);
    const uint8_t *keys = neutron_element_address(call->bases, of->key, n, 0, group, 0);
    int32_t done = NEUTRON_BLOCK > 1 ? score_blocks(of, keys, 0, NEUTRON_BLOCK) : 0;
    score_blocks(of, keys, done, 1);
    if (p->masked != 0) {
        const NeutronTwoOperandRow row = {
            .a = of->scores,
            .b = neutron_element_address(call->bases, of->mask, n, r, head, 0),
            .out = of->scores,
            .a_pitch = 1,
            .b_pitch = of->mask->channel_pitch,
            .out_pitch = 1,
            .cols = 1,
            .length = of->keys,
        };
        NEUTRON_FASTEST(add_row)(&of->sum, &row);
    }
    const int32_t largest = softmax_largest(of->scores, 1, of->keys);
    int32_t divisor = 0;
    if (p->divides != 0) {
        divisor = exponentials(of, largest);
    } else {
        softmax(of, largest);
    }
    const uint8_t *values = neutron_element_address(call->bases, of->value, n, 0, group, w->channel0);
    uint8_t *to = neutron_element_address(call->bases, of->out, n, r, head, w->channel0);
    const int32_t channels = w->channel1 - w->channel0;
    done = NEUTRON_BLOCK > 1 ? product_blocks(of, values, to, channels, divisor, 0, NEUTRON_BLOCK) : 0;
    product_blocks(of, values, to, channels, divisor, done, 1);
}

NEUTRON_FOR_VECTORS(attend, (const Attention *of, int32_t n, int32_t r, int32_t head), (of, n, r, head))

/* Entries by a stored value; NULL where the call has no table, whose words are then not checked. */
static const int8_t *entries(const NeutronKernelCall *call, int32_t any, uint32_t base, uint32_t offset) {
    return any != 0 ? (const int8_t *)(neutron_base_address(call->bases, base) + offset) : NULL;
}

static Attention attention_of(const NeutronKernelCall *call) {
    const NeutronAttentionS8 *p = call->params;
    const NeutronBuffer *scratch = &call->buffers[p->scores];
    uint8_t *memory = neutron_element_address(call->bases, scratch, 0, 0, 0, 0);
    return (Attention){
        .call = call,
        .p = p,
        .key = &call->buffers[p->key],
        .value = &call->buffers[p->value],
        .mask = &call->buffers[p->mask],
        .out = &call->buffers[p->output],
        .table = entries(call, p->tabled, p->table_base, p->table_offset),
        .reciprocal = entries(call, p->divides, p->reciprocal_base, p->reciprocal_offset),
        .exponentials = neutron_base_address(call->bases, p->exp_base) + p->exp_offset,
        .query = memory,
        .scores = memory + p->depth,
        .keys = call->buffers[p->key].rows,
    };
}

static NeutronSum sum_of(const NeutronAttentionS8 *p) {
    const int32_t magnitude = p->sum_b_multiplier < 0 ? -p->sum_b_multiplier : p->sum_b_multiplier;
    return (NeutronSum){
        .a = neutron_summand(p->sum_a_zero_point, p->sum_a_multiplier, p->sum_a_shift),
        .b = neutron_summand(p->sum_b_zero_point, magnitude, p->sum_b_shift),
        .b_sign = p->sum_b_multiplier < 0 ? -1 : 0,
        .result = neutron_result(p->sum_multiplier, p->sum_shift, p->sum_zero_point, p->sum_min, p->sum_max),
    };
}

void attention_s8_run(const NeutronKernelCall *call) {
    void (*const run)(const Attention *of, int32_t n, int32_t r, int32_t head) = NEUTRON_FASTEST(attend);
    const NeutronAttentionS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    Attention of = attention_of(call);
    if (p->masked != 0) of.sum = sum_of(p);
    if (p->divides != 0) {
        of.quotient = neutron_result(p->quotient_multiplier, p->quotient_shift, p->quotient_zero_point, p->clamp_min,
                                     p->clamp_max);
    }
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        for (int32_t head = w->col0; head < w->col1; head++) run(&of, n, r, head);
    }
}
