/* SPDX-License-Identifier: BSD-3-Clause */
/* Attention to a cache of int8 keys and values. */
#include "../language.h"
#include "../shared_work.h"

#ifndef __OPTIMIZE_SIZE__
#include "../dsp.h"
#endif

#if NEUTRON_VECTORS && defined(__x86_64__)
#include "../x86.h"
#elif NEUTRON_VECTORS && defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { MOST_SIZE = 512 }; /* sums of so many products of int16 and int8 are below 2^31 */

/* Where the four arrays of the cache are, and its size in bytes. */
typedef struct {
    uint64_t values, key_scales, value_scales, size;
} CachePlaces;

static CachePlaces places_of(const NeutronCachedAttentionF32 *p) {
    const uint64_t lines = (uint64_t)p->groups * (uint64_t)p->positions, bytes = lines * (uint64_t)p->size;
    return (CachePlaces){bytes, 2 * bytes, 2 * bytes + lines * NEUTRON_FLOAT_BYTES, 2 * bytes + 2 * lines * NEUTRON_FLOAT_BYTES};
}

/* A buffer of bytes that follow each other, at least so many. */
static bool bytes_are_there(const NeutronProgramView *program, uint32_t index, uint64_t size) {
    const NeutronBuffer *buffer = neutron_checked_buffer(program, index, true);
    return buffer != NULL && buffer->channel_pitch == 1 && buffer->channel0 == 0 && (uint64_t)buffer->channels_held >= size;
}

bool cached_attention_f32_check(const NeutronProgramView *program, const void *params, const NeutronWindowExtents *window) {
    const NeutronCachedAttentionF32 *p = params;
    const NeutronBuffer *in = neutron_float_rows(program, p->input, false), *out = neutron_float_output(program, p->output, window);
    const NeutronBuffer *source = neutron_float_rows(program, p->source, false);
    if (in == NULL || source == NULL || out == NULL || in->rows < out->rows || p->size < 1 || p->size > MOST_SIZE || p->groups < 1 || p->groups > UINT16_MAX ||
        p->heads < p->groups || p->heads > UINT16_MAX || p->heads % p->groups != 0 || p->positions < 1 || p->window < 0 || p->rotated < 0 ||
        p->rotated > p->size || p->rotated % 2 != 0) {
        return false;
    }
    const bool cross = p->cross != 0;
    if (cross ? p->window != 0 || p->rotated != 0 : p->source != p->input || p->source_span != p->span) return false;
    const int64_t heads = p->heads, groups = p->groups, appended = 2 * groups * p->size;
    const uint64_t size = (uint64_t)p->size, positions = (uint64_t)p->positions;
    return out->channels == heads * p->size && in->channels == out->channels + (cross ? 0 : appended) &&
           source->channels == appended + (cross ? 0 : out->channels) && neutron_integers_are_sound(program, p->span, 2) &&
           neutron_integers_are_sound(program, p->source_span, 2) && bytes_are_there(program, p->cache, places_of(p).size) &&
           bytes_are_there(program, p->scores, positions * NEUTRON_FLOAT_BYTES + size * sizeof(int16_t)) &&
           neutron_floats_are_sound(program, p->rotary_base, p->rotary_offset, positions * (uint64_t)p->rotated) &&
           (p->normed == 0 || (neutron_floats_are_sound(program, p->query_scale_base, p->query_scale_offset, size) &&
                               neutron_floats_are_sound(program, p->key_scale_base, p->key_scale_offset, size)));
}

/* ---- run ------------------------------------------------------------------------------------------------------------ */

/* The scores of a thread are in memory of its own, of which the buffer has as many as fit, each at a line of the CPU's cache. */
enum { LINE_BYTES = 64 };

static uint64_t scores_pitch(const NeutronCachedAttentionF32 *p) {
    const uint64_t size = (uint64_t)p->positions * NEUTRON_FLOAT_BYTES + (uint64_t)p->size * sizeof(int16_t);
    return (size + LINE_BYTES - 1) & ~(uint64_t)(LINE_BYTES - 1);
}

typedef struct {
    const NeutronKernelCall *call;
    const NeutronCachedAttentionF32 *p;
    const NeutronBuffer *in, *out;
    int32_t position, source_position; /* of the run's first token, and of the source's */
    const NeutronFloat *query_scale, *key_scale, *rotary;
    int8_t *keys, *values;
    NeutronFloat *key_scales, *value_scales;
    NeutronFloat *scores;
    uint8_t *query; /* its integers */
    float factor, cap, epsilon;
} Attention;

static NEUTRON_INLINE void rotate(const Attention *a, NeutronFloat *x, int32_t position) {
    const int32_t rotated = a->p->rotated, half = rotated / 2, pitch = a->p->interleaved != 0 ? 2 : 1;
    const int32_t apart = a->p->interleaved != 0 ? 1 : half;
    const NeutronFloat *cosines = a->rotary + (size_t)position * (size_t)rotated, *sines = cosines + half;
    for (int32_t i = 0; i < half; i++) {
        NeutronFloat *pair = x + i * pitch;
        const float first = pair[0], second = pair[apart];
        pair[0] = first * cosines[i] - second * sines[i];
        pair[apart] = second * cosines[i] + first * sines[i];
    }
}

/* A head of queries or keys, normalized and rotated. */
static NEUTRON_INLINE void prepare(const Attention *a, NeutronFloat *to, const NeutronFloat *from, const NeutronFloat *scale,
                                   int32_t position) {
    const int32_t size = a->p->size;
    if (a->p->normed != 0) {
        const float inverse = neutron_inverse_rms(from, size, a->epsilon);
        for (int32_t i = 0; i < size; i++) to[i] = (from[i] * inverse) * scale[i];
    } else {
        memcpy(to, from, (size_t)size * NEUTRON_FLOAT_BYTES);
    }
    if (a->p->rotated > 0) rotate(a, to, position);
}

/* Appends keys, which values follow, to the cache. `head` has room for the values of a head. */
static NEUTRON_INLINE void append(const Attention *a, const NeutronFloat *keys, NeutronFloat *head, int32_t position) {
    const NeutronCachedAttentionF32 *p = a->p;
    const NeutronFloat *values = keys + (size_t)p->groups * (size_t)p->size;
    for (int32_t g = 0; g < p->groups; g++) {
        const size_t line = (size_t)g * (size_t)p->positions + (size_t)position, size = (size_t)p->size;
        prepare(a, head, keys + (size_t)g * size, a->key_scale, position);
        const NeutronRowScale key = neutron_row_scale(head, p->size, 127.0f);
        neutron_quantize_8(a->keys + line * size, head, p->size, key);
        a->key_scales[line] = key.scale;
        const NeutronFloat *from = values + (size_t)g * size;
        const NeutronRowScale value = neutron_row_scale(from, p->size, 127.0f);
        neutron_quantize_8(a->values + line * size, from, p->size, value);
        a->value_scales[line] = value.scale;
    }
}

/* Lines of the cache, from the first position on that a query sees. */
typedef struct {
    const int8_t *bytes;
    const NeutronFloat *scales;
    int32_t size, count;
} Lines;

#if NEUTRON_DSP && NEUTRON_FAST_DSP && !NEUTRON_VECTORS

enum { TOGETHER = 8 }; /* values whose sums stay in registers */

/* Puts the integers of a query into the order 0 2 1 3 of each 4, the order of bytes that are widened. */
static void reorder_query(uint8_t *query, int32_t size) {
    for (int32_t i = 0; i + 4 <= size; i += 4, query += 8) {
        const uint32_t low = neutron_load_word(query), high = neutron_load_word(query + 4);
        const uint32_t even = (low & 0xFFFFu) | high << 16, odd = (high & 0xFFFF0000u) | low >> 16;
        memcpy(query, &even, sizeof even);
        memcpy(query + 4, &odd, sizeof odd);
    }
}

/* Writes the products of a query's integers and of each line, by the line's scale and a factor. */
static void score(const Attention *a, const Lines *keys, float factor) {
    const int32_t size = keys->size, fours = size & ~3, eights = size & ~7;
    const uint8_t *key = (const uint8_t *)keys->bytes;
    reorder_query(a->query, size);
    for (int32_t j = 0; j < keys->count; j++) {
        const uint8_t *query = a->query, *const next = key + size;
        uint32_t sum = 0;
        for (const uint8_t *const end = key + eights; key != end; key += 8, query += 16) {
            const uint32_t first = neutron_load_word(key), second = neutron_load_word(key + 4);
            sum = neutron_add_products(sum, neutron_even_bytes(first), neutron_odd_bytes(first), neutron_load_word(query), neutron_load_word(query + 4));
            sum = neutron_add_products(sum, neutron_even_bytes(second), neutron_odd_bytes(second), neutron_load_word(query + 8),
                                       neutron_load_word(query + 12));
        }
        if (fours != eights) {
            const uint32_t word = neutron_load_word(key);
            sum = neutron_add_products(sum, neutron_even_bytes(word), neutron_odd_bytes(word), neutron_load_word(query), neutron_load_word(query + 4));
            key += 4;
            query += 8;
        }
        for (; key != next; key++, query += 2) sum += (uint32_t)(neutron_load_16(query) * (int8_t)*key);
        a->scores[j] = ((float)(int32_t)sum * keys->scales[j]) * factor;
    }
}

/* Adds the values of all lines, each by its weight. */
static void add_values(const Attention *a, NeutronFloat *to, const Lines *values) {
    const int32_t size = values->size;
    int32_t i = 0;
    for (; i + TOGETHER <= size; i += TOGETHER) {
        float sums[TOGETHER] = {0};
        const uint8_t *value = (const uint8_t *)values->bytes + i;
        const NeutronFloat *weight = a->scores;
        for (const NeutronFloat *const end = weight + values->count; weight != end; weight++, value += size) {
            const float by = *weight;
            const uint32_t words[2] = {neutron_load_word(value), neutron_load_word(value + 4)};
            NEUTRON_UNROLL
            for (int n = 0; n < TOGETHER; n++) sums[n] = sums[n] + by * (float)(int8_t)(words[n / 4] >> n % 4 * 8);
        }
        for (int n = 0; n < TOGETHER; n++) to[i + n] = sums[n];
    }
    for (; i < size; i++) {
        float sum = 0.0f;
        for (int32_t j = 0; j < values->count; j++) sum = sum + a->scores[j] * (float)values->bytes[(size_t)j * (size_t)size + (size_t)i];
        to[i] = sum;
    }
}

#else

/* Writes the products of a query's integers and of each line, by the line's scale and a factor. */
static void score(const Attention *a, const Lines *keys, float factor) {
    const int8_t *key = keys->bytes;
    for (int32_t j = 0; j < keys->count; j++, key += keys->size) {
        int32_t sum = 0;
        for (int32_t i = 0; i < keys->size; i++) sum += neutron_load_16(a->query + 2 * i) * key[i];
        a->scores[j] = ((float)sum * keys->scales[j]) * factor;
    }
}

/* Adds the values of all lines, each by its weight. */
static void add_values(const Attention *a, NeutronFloat *to, const Lines *values) {
    for (int32_t i = 0; i < values->size; i++) to[i] = 0.0f;
    const int8_t *value = values->bytes;
    for (int32_t j = 0; j < values->count; j++, value += values->size) {
        const float weight = a->scores[j];
        for (int32_t i = 0; i < values->size; i++) to[i] = to[i] + weight * (float)value[i];
    }
}

#endif

#if NEUTRON_VECTORS && defined(__x86_64__)

NEUTRON_VECTOR static void score_vector(const Attention *a, const Lines *keys, float factor) {
    const int8_t *key = keys->bytes;
    for (int32_t j = 0; j < keys->count; j++, key += keys->size) {
        __m256i sums = _mm256_setzero_si256();
        int32_t i = 0;
        for (; i + 16 <= keys->size; i += 16) {
            const __m256i query = _mm256_loadu_si256((const void *)(a->query + 2 * i));
            const __m256i bytes = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(key + i)));
            sums = _mm256_add_epi32(sums, _mm256_madd_epi16(query, bytes));
        }
        __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
        four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
        int32_t sum = _mm_cvtsi128_si32(four) + _mm_extract_epi32(four, 1);
        for (; i < keys->size; i++) sum += neutron_load_16(a->query + 2 * i) * key[i];
        a->scores[j] = ((float)sum * keys->scales[j]) * factor;
    }
}

/* 8 * N values, whose sums stay in registers. */
#define NEUTRON_ADD_BLOCK(N)                                                                                          \
    {                                                                                                                 \
        __m256 sums[N];                                                                                               \
        NEUTRON_UNROLL                                                                                                \
        for (int n = 0; n < N; n++) sums[n] = _mm256_setzero_ps();                                                    \
        const int8_t *value = values->bytes + i;                                                                      \
        for (int32_t j = 0; j < values->count; j++, value += values->size) {                                          \
            const __m256 weight = _mm256_set1_ps(a->scores[j]);                                                       \
            NEUTRON_UNROLL                                                                                            \
            for (int n = 0; n < N; n++) {                                                                             \
                const __m256i words = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(value + 8 * n)));           \
                sums[n] = _mm256_add_ps(sums[n], _mm256_mul_ps(weight, _mm256_cvtepi32_ps(words)));                   \
            }                                                                                                         \
        }                                                                                                             \
        NEUTRON_UNROLL                                                                                                \
        for (int n = 0; n < N; n++) _mm256_storeu_ps((void *)(to + i + 8 * n), sums[n]);                              \
        i += 8 * N;                                                                                                   \
    }

NEUTRON_VECTOR static void add_values_vector(const Attention *a, NeutronFloat *to, const Lines *values) {
    int32_t i = 0;
    while (i + 64 <= values->size) NEUTRON_ADD_BLOCK(8)
    while (i + 8 <= values->size) NEUTRON_ADD_BLOCK(1)
    for (; i < values->size; i++) {
        float sum = 0.0f;
        for (int32_t j = 0; j < values->count; j++) {
            sum = sum + a->scores[j] * (float)values->bytes[(size_t)j * (size_t)values->size + (size_t)i];
        }
        to[i] = sum;
    }
}

#elif NEUTRON_VECTORS && defined(__aarch64__)

static void score_vector(const Attention *a, const Lines *keys, float factor) {
    const int8_t *key = keys->bytes;
    for (int32_t j = 0; j < keys->count; j++, key += keys->size) {
        int32x4_t sums[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
        int32_t i = 0;
        for (; i + 8 <= keys->size; i += 8) {
            const int16x8_t query = vreinterpretq_s16_u8(vld1q_u8(a->query + 2 * i)), words = vmovl_s8(vld1_s8(key + i));
            sums[0] = vmlal_s16(sums[0], vget_low_s16(query), vget_low_s16(words));
            sums[1] = vmlal_s16(sums[1], vget_high_s16(query), vget_high_s16(words));
        }
        int32_t sum = vaddvq_s32(vaddq_s32(sums[0], sums[1]));
        for (; i < keys->size; i++) sum += neutron_load_16(a->query + 2 * i) * key[i];
        a->scores[j] = ((float)sum * keys->scales[j]) * factor;
    }
}

/* 8 * N values, whose sums stay in registers. */
#define NEUTRON_ADD_BLOCK(N)                                                                                          \
    {                                                                                                                 \
        float32x4_t sums[2 * N];                                                                                      \
        NEUTRON_UNROLL                                                                                                \
        for (int n = 0; n < 2 * N; n++) sums[n] = vdupq_n_f32(0.0f);                                                  \
        const int8_t *value = values->bytes + i;                                                                      \
        for (int32_t j = 0; j < values->count; j++, value += values->size) {                                          \
            const float32x4_t weight = vdupq_n_f32(a->scores[j]);                                                     \
            NEUTRON_UNROLL                                                                                            \
            for (int n = 0; n < N; n++) {                                                                             \
                const int16x8_t words = vmovl_s8(vld1_s8(value + 8 * n));                                             \
                const float32x4_t low = vcvtq_f32_s32(vmovl_s16(vget_low_s16(words)));                                \
                const float32x4_t high = vcvtq_f32_s32(vmovl_s16(vget_high_s16(words)));                              \
                sums[2 * n] = vaddq_f32(sums[2 * n], vmulq_f32(weight, low));                                         \
                sums[2 * n + 1] = vaddq_f32(sums[2 * n + 1], vmulq_f32(weight, high));                                \
            }                                                                                                         \
        }                                                                                                             \
        NEUTRON_UNROLL                                                                                                \
        for (int n = 0; n < 2 * N; n++) vst1q_u8((void *)(to + i + 4 * n), vreinterpretq_u8_f32(sums[n]));            \
        i += 8 * N;                                                                                                   \
    }

static void add_values_vector(const Attention *a, NeutronFloat *to, const Lines *values) {
    int32_t i = 0;
    while (i + 32 <= values->size) NEUTRON_ADD_BLOCK(4)
    while (i + 8 <= values->size) NEUTRON_ADD_BLOCK(1)
    for (; i < values->size; i++) {
        float sum = 0.0f;
        for (int32_t j = 0; j < values->count; j++) {
            sum = sum + a->scores[j] * (float)values->bytes[(size_t)j * (size_t)values->size + (size_t)i];
        }
        to[i] = sum;
    }
}

#else

NEUTRON_FOR_VECTORS(score, (const Attention *a, const Lines *keys, float factor), (a, keys, factor))
NEUTRON_FOR_VECTORS(add_values, (const Attention *a, NeutronFloat *to, const Lines *values), (a, to, values))

#endif

/* Turns scores into the weights of values, and returns the sum of the exponentials. */
static NEUTRON_INLINE float weigh(const Attention *a, const NeutronFloat *scales, int32_t count) {
    if (a->cap != 0.0f) {
        for (int32_t j = 0; j < count; j++) a->scores[j] = neutron_capped(a->scores[j], a->cap);
    }
    float most = -neutron_float_of(0x7F800000u);
    for (int32_t j = 0; j < count; j++) most = a->scores[j] > most ? a->scores[j] : most;
    for (int32_t j = 0; j < count; j++) a->scores[j] = neutron_exp(a->scores[j] - most);
    const float total = neutron_sum_values(a->scores, count, 0.0f);
    for (int32_t j = 0; j < count; j++) a->scores[j] = a->scores[j] * scales[j];
    return total;
}

/* A head of queries of a token at a position: its integers, and the factor of their scores. */
static NEUTRON_INLINE float quantize_query(const Attention *a, NeutronFloat *to, const NeutronFloat *from, int32_t position) {
    const int32_t size = a->p->size;
    prepare(a, to, from, a->query_scale, position);
    const NeutronRowScale scale = neutron_row_scale(to, size, 32767.0f);
    const bool is_zero = scale.scale == 0.0f && scale.factor == 0.0f;
    for (int32_t i = 0; i < size; i++) {
        neutron_store_16(a->query + 2 * i, (int16_t)(is_zero ? 0 : neutron_stored(to[i] * scale.factor, 32767.0f)));
    }
    return scale.scale * a->factor;
}

NEUTRON_FOR_VECTORS(append, (const Attention *a, const NeutronFloat *keys, NeutronFloat *head, int32_t position), (a, keys, head, position))
#if NEUTRON_VECTORS
NEUTRON_VECTOR static float weigh_vector(const Attention *a, const NeutronFloat *scales, int32_t count) { return weigh(a, scales, count); }
NEUTRON_VECTOR static float quantize_query_vector(const Attention *a, NeutronFloat *to, const NeutronFloat *from, int32_t position) {
    return quantize_query(a, to, from, position);
}
#endif

/* The result of a head of queries of a token at a position. */
static void attend_head(const Attention *a, NeutronFloat *to, const NeutronFloat *from, int32_t group, int32_t position) {
    const NeutronCachedAttentionF32 *p = a->p;
    const float factor = NEUTRON_FASTEST(quantize_query)(a, to, from, position);
    const int32_t first = p->window > 0 && position >= p->window ? position - p->window + 1 : 0, count = position - first + 1;
    const size_t line = (size_t)group * (size_t)p->positions + (size_t)first, size = (size_t)p->size;
    const Lines keys = {a->keys + line * size, a->key_scales + line, p->size, count};
    const Lines values = {a->values + line * size, a->value_scales + line, p->size, count};
    NEUTRON_FASTEST(score)(a, &keys, factor);
    const float total = NEUTRON_FASTEST(weigh)(a, values.scales, count);
    NEUTRON_FASTEST(add_values)(a, to, &values);
    for (int32_t i = 0; i < p->size; i++) to[i] = to[i] / total;
}

/* Item `item` is a row of the source. Each thread has a row of the output as room for a head, before the results are there. */
static void append_row(void *context, int32_t item, int32_t thread) {
    const Attention *a = context;
    const NeutronCachedAttentionF32 *p = a->p;
    const NeutronBases *bases = a->call->bases;
    const size_t queries = p->cross != 0 ? 0 : (size_t)p->heads * (size_t)p->size;
    const NeutronFloat *keys = neutron_float_row(bases, &a->call->buffers[p->source], item) + queries;
    NEUTRON_FASTEST(append)(a, keys, neutron_float_row(bases, a->out, thread), a->source_position + item);
}

/* Item `item` is a head of queries of a token; the heads of a token follow each other. */
static void compute_head(void *context, int32_t item, int32_t thread) {
    Attention a = *(const Attention *)context;
    const NeutronCachedAttentionF32 *p = a.p;
    const NeutronBases *bases = a.call->bases;
    const int32_t row = item / p->heads, head = item % p->heads, group = (int32_t)((int64_t)head * p->groups / p->heads);
    const int32_t position = p->cross != 0 ? p->positions - 1 : a.position + row;
    const size_t first = (size_t)head * (size_t)p->size;
    uint8_t *scores = neutron_row_address(bases, &a.call->buffers[p->scores], 0, 0) + (size_t)thread * (size_t)scores_pitch(p);
    a.scores = (void *)scores;
    a.query = scores + (size_t)p->positions * NEUTRON_FLOAT_BYTES;
    attend_head(&a, neutron_float_row(bases, a.out, row) + first, neutron_float_row(bases, a.in, row) + first, group, position);
}

static int32_t least(int32_t one, int32_t other) { return one < other ? one : other; }

/* The position of the first of `count` tokens, so that all are inside the cache. */
static int32_t first_position(const NeutronKernelCall *call, uint32_t span, int32_t positions, int32_t count) {
    const int64_t given = neutron_integer_at(call, span, 0), last = positions - count;
    return (int32_t)(given < 0 ? 0 : given > last ? last : given);
}

/* Appends the keys and values of the run's own tokens, or of the source's, in up to so many threads. */
static void append_all(Attention *a, int32_t threads) {
    const NeutronCachedAttentionF32 *p = a->p;
    const NeutronBuffer *source = &a->call->buffers[p->source];
    const int32_t most = least(p->cross != 0 ? source->rows : least(source->rows, a->out->rows), p->positions);
    const int32_t count = neutron_token_count(a->call, p->source_span, most);
    const int32_t wanted = neutron_threads_for(a->call, (uint64_t)count * (uint64_t)source->channels);
    a->source_position = first_position(a->call, p->source_span, p->positions, count);
    neutron_share(a->call, least(wanted, threads), count, append_row, a);
}

void cached_attention_f32_run(const NeutronKernelCall *call) {
    const NeutronCachedAttentionF32 *p = call->params;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const NeutronBases *bases = call->bases;
    uint8_t *cache = neutron_row_address(bases, &call->buffers[p->cache], 0, 0);
    const CachePlaces places = places_of(p);
    Attention attention = {
        .call = call,
        .p = p,
        .in = in,
        .out = out,
        .query_scale = p->normed == 0 ? NULL : neutron_float_constant(bases, p->query_scale_base, p->query_scale_offset),
        .key_scale = p->normed == 0 ? NULL : neutron_float_constant(bases, p->key_scale_base, p->key_scale_offset),
        .rotary = p->rotated == 0 ? NULL : neutron_float_constant(bases, p->rotary_base, p->rotary_offset),
        .keys = (int8_t *)cache,
        .values = (int8_t *)cache + places.values,
        .key_scales = (void *)(cache + places.key_scales),
        .value_scales = (void *)(cache + places.value_scales),
        .factor = neutron_float_of(p->scale_bits),
        .cap = neutron_float_of(p->cap_bits),
        .epsilon = neutron_float_of(p->epsilon_bits),
    };
    const bool cross = p->cross != 0;
    const int32_t count = neutron_token_count(call, p->span, cross ? out->rows : least(out->rows, p->positions));
    attention.position = first_position(call, p->span, p->positions, cross ? 0 : count);
    /* Tokens read their own positions of the cache and those in front of them: all can be appended first. */
    append_all(&attention, count);
    const uint64_t seen = cross ? (uint64_t)p->positions : (uint64_t)attention.position + (uint64_t)count;
    const uint64_t rooms = (uint64_t)call->buffers[p->scores].channels_held / scores_pitch(p);
    int32_t threads = neutron_threads_for(call, (uint64_t)count * seen * (uint64_t)out->channels);
    if ((uint64_t)threads > rooms) threads = (int32_t)rooms; /* one thread where there is no whole line behind the memory */
    neutron_share(call, threads, count * p->heads, compute_head, &attention);
}
