/* SPDX-License-Identifier: BSD-3-Clause */
/* Tiles of outputs for the DSP extension: 6 pixels by one output channel in registers, or one pixel by four channels. */
#include "convolution_dsp.h"

#if NEUTRON_DSP

enum { BLOCK_BYTES = NEUTRON_LANES * NEUTRON_LANES, LANES_OF_A_PIXEL = 4, SIX_PITCH = 2 * NEUTRON_PIXELS_DSP };

static inline int32_t min_of(int32_t a, int32_t b) { return a < b ? a : b; }
static inline int32_t first_of_block(int32_t channel) { return channel & -NEUTRON_LANES; }

void neutron_widen_dsp(uint32_t *to, size_t pitch, const uint8_t *from, int32_t channel_pitch, int32_t channels,
                       uint32_t words) {
    uint32_t whole = channel_pitch == 1 ? (uint32_t)channels / 4 : 0;
    if (whole > words) whole = words;
    words -= whole;
    channels -= (int32_t)(4 * whole);
#if NEUTRON_FAST_DSP
    if (pitch == SIX_PITCH) {
        for (; whole >= 4; whole -= 4, from += 16, to += 4 * SIX_PITCH) {
            NEUTRON_UNROLL
            for (int i = 0; i < 4; i++) neutron_widen_word_dsp(to + i * SIX_PITCH, neutron_load_word(from + 4 * i));
        }
    }
#endif
    for (; whole > 0; whole--, to += pitch) {
        neutron_widen_word_dsp(to, neutron_load_word(from));
        from = neutron_kept_pointer(from + 4);
    }
    for (; words > 0; words--, channels -= 4, from += 4 * channel_pitch, to += pitch) {
        neutron_widen_word_dsp(to, neutron_gathered_word_dsp(from, channel_pitch, channels));
    }
}

/* ---- sums of products ----------------------------------------------------------------------------------------------- */

/* neutron_lanes_dsp() in assembly, as compilers use more instructions for it in each of their versions.
 *
 * r4 to r9: the sums of 6 pixels. In the loop, r0: inputs, r1: weights, r2 and r3: the weights of a word as two pairs, r10 to r12
 * and lr: the inputs of two pixels. On the stack: `lanes`, `end` and `single_end`.
 *
 * An output is rounded as in neutron_dsp_rounded_twice(). */

#define TWO_PIXELS(first, second)                          \
    "ldmia r0!, {r10, r11, r12, lr}\n\t"                   \
    "smlad " first ", r2, r10, " first "\n\t"              \
    "smlad " first ", r3, r11, " first "\n\t"              \
    "smlad " second ", r2, r12, " second "\n\t"            \
    "smlad " second ", r3, lr, " second "\n\t"

/* `step`: bytes to the next word of weights. */
#define WORD(step)                       \
    "ldr r3, [r1], #" step "\n\t"        \
    "sxtb16 r2, r3\n\t"                  \
    "sxtb16 r3, r3, ror #8\n\t"          \
    TWO_PIXELS("r4", "r5") TWO_PIXELS("r6", "r7") TWO_PIXELS("r8", "r9")

#define STORED(x, at)                              \
    "and r10, " x ", #0x80000000\n\t"              \
    "add r12, r11, " x ", asr #31\n\t"             \
    "add r10, r10, #0x40000000\n\t"               \
    "smlal r10, r12, " x ", r2\n\t"               \
    "asr r12, r12, r3\n\t"                        \
    "add r12, r0\n\t"                             \
    "ssat r12, #8, r12\n\t"                       \
    "strb r12, [r1" at "\n\t"

/* The same where a negative sum gives the lower bound however it is rounded; r0: 2^30. */
#define STORED_POSITIVE(x, at)        \
    "mov r10, r0\n\t"                \
    "mov r12, r11\n\t"               \
    "smlal r10, r12, " x ", r2\n\t"  \
    "asr r12, r12, r3\n\t"           \
    "ssat r12, #8, r12\n\t"          \
    "strb r12, [r1" at "\n\t"

#define SIX(pixel)                                                                          \
    pixel("r4", "]") pixel("r5", ", #8]") pixel("r6", ", #16]") pixel("r7", ", #24]")       \
    pixel("r8", ", #32]") pixel("r9", ", #40]")

#if !NEUTRON_FAST_DSP
#define SINGLE_TAPS
#define POSITIVE
#define STORED_SIX             \
    "ldr lr, [r0, #12]\n\t"   \
    "asr r0, r11, #1\n\t"     \
    "mov r11, #1\n\t"         \
    "lsl r11, r11, r12\n\t"   \
    "stm lr, {r4-r9}\n\t"     \
    "mov r5, #6\n"            \
    "12:\n\t"                 \
    "ldr r4, [lr], #4\n\t"    \
    STORED("r4", "], #8")      \
    "subs r5, #1\n\t"         \
    "bne 12b\n\t"
#define AFTER_POSITIVE
#else
/* Taps of one input channel, of which four are in a word of inputs; the weights of each are in a block of their own. */
#define SINGLE_TAPS                                                     \
    "lsls r10, r3, #27\n\t"                                             \
    "bpl 5f\n"                                                          \
    "13:\n\t"                                                           \
    "ldrsb r2, [r1]\n\t"                                                \
    "ldrsb r3, [r1, #64]\n\t"                                           \
    "ldrsb r10, [r1, #128]\n\t"                                         \
    "ldrsb r11, [r1, #192]\n\t"                                         \
    "add r1, r1, #256\n\t"                                              \
    "pkhbt r2, r2, r10, lsl #16\n\t"                                    \
    "pkhbt r3, r3, r11, lsl #16\n\t"                                    \
    TWO_PIXELS("r4", "r5") TWO_PIXELS("r6", "r7") TWO_PIXELS("r8", "r9") \
    "ldr r10, [sp, #8]\n\t"                                             \
    "cmp r0, r10\n\t"                                                   \
    "bne 13b\n\t"                                                       \
    "ldr r10, [sp, #4]\n\t"                                             \
    "cmp r0, r10\n\t"                                                   \
    "beq 6f\n"
#define POSITIVE                                                               \
    "cmp r10, #9\n\t" /* a shift below -22 has no space for the zero point */ \
    "blo 10f\n\t"                                                             \
    "ldr r10, [r0, #36]\n\t"                                                  \
    "lsls r10, r10, #28\n\t"                                                  \
    "bmi 11f\n"                                                               \
    "10:\n\t"
#define STORED_SIX              \
    "asr r0, r11, #1\n\t"      \
    "mov r11, #1\n\t"          \
    "lsl r11, r11, r12\n\t"    \
    SIX(STORED)
#define AFTER_POSITIVE          \
    "11:\n\t"                  \
    "lsl r11, r11, r12\n\t"    \
    "mov r0, #0x40000000\n\t"  \
    SIX(STORED_POSITIVE)        \
    "ldr r0, [sp]\n\t"         \
    "b 9f\n"
#endif

__asm__(".section .text.neutron_lanes_dsp, \"ax\", %progbits\n\t"
        ".syntax unified\n\t"
        ".thumb\n\t"
        ".thumb_func\n\t"
        ".global neutron_lanes_dsp\n\t"
        ".type neutron_lanes_dsp, %function\n"
        "neutron_lanes_dsp:\n\t"
        "push {r4-r11, lr}\n\t"
        "ldrd r1, r2, [r0, #24]\n\t"
        "push {r0, r1, r2}\n"
        "1:\n\t" /* a channel */
        "ldm r0, {r1, r2, r11, r12}\n\t"
        "ldr r3, [r0, #36]\n\t"
        "ldr r0, [r0, #20]\n\t"
        "ldr r4, [r2]\n\t"
        "mov r5, r4\n\t"
        "mov r6, r4\n\t"
        "mov r7, r4\n\t"
        "mov r8, r4\n\t"
        "mov r9, r4\n\t"
        "lsls r10, r3, #31\n\t"
        "bpl 3f\n\t"
        "ldm r12, {r4-r9}\n"
        "3:\n\t"
        "lsls r10, r3, #30\n\t"
        "bmi 14f\n"
        "4:\n\t" /* 8 inputs */
        WORD("4") WORD("60")
        "ldr r10, [sp, #4]\n\t"
        "cmp r0, r10\n\t"
        "bne 4b\n\t"
        "b 6f\n"
        "14:\n\t"
        SINGLE_TAPS
        "5:\n\t" /* 4 inputs */
        WORD("64")
        "ldr r10, [sp, #4]\n\t"
        "cmp r0, r10\n\t"
        "bne 5b\n"
        "6:\n\t"
        "ldr r0, [sp]\n\t"
        "ldr r1, [r0, #4]\n\t" /* table */
        "ldr r3, [r0, #36]\n\t"
        "lsls r3, r3, #29\n\t"
        "bmi 8f\n\t"
        "ldr r2, [r1, #32]\n\t"
        "ldr r3, [r1, #64]\n\t"
        "ldr r11, [r0, #32]\n\t"
        "ldr r1, [r0, #8]\n\t" /* stored */
        "cmp r2, #0\n\t"
        "blt 7f\n\t"
        "add r10, r3, #31\n\t"
        "cmp r10, #29\n\t"
        "bhi 7f\n\t"
        "mvn r3, r3\n\t"
        "sub r12, r3, #1\n\t"
        POSITIVE
        STORED_SIX
        "ldr r0, [sp]\n\t"
        "b 9f\n"
        AFTER_POSITIVE
        "7:\n\t"
        "str r0, [r0, #40]\n"
        "8:\n\t"
        "ldr r12, [r0, #12]\n\t"
        "stm r12, {r4-r9}\n"
        "9:\n\t"
        "ldm r0, {r1-r5}\n\t"
        "adds r1, #8\n\t"
        "adds r2, #4\n\t"
        "adds r3, #1\n\t"
        "adds r4, #24\n\t"
        "subs r5, #1\n\t"
        "stm r0, {r1-r5}\n\t"
        "bne 1b\n\t"
        "add sp, #12\n\t"
        "pop {r4-r11, pc}\n\t"
        ".size neutron_lanes_dsp, . - neutron_lanes_dsp\n\t"
        ".text\n");

/* neutron_multiply_one_dsp() in assembly. r4 to r7: the sums of four lanes. r1: inputs, r2: their end, r3: weights, r8 to r11: 8 inputs,
 * r0, r12 and lr: weights. On the stack: `sums`. */

#define LANE(sum, at)                         \
    "ldrd r12, lr, [r3" at "\n\t"             \
    "sxtb16 r0, r12\n\t"                     \
    "sxtb16 r12, r12, ror #8\n\t"            \
    "smlad " sum ", r0, r8, " sum "\n\t"     \
    "sxtb16 r0, lr\n\t"                      \
    "smlad " sum ", r12, r9, " sum "\n\t"    \
    "sxtb16 lr, lr, ror #8\n\t"              \
    "smlad " sum ", r0, r10, " sum "\n\t"    \
    "smlad " sum ", lr, r11, " sum "\n\t"

__asm__(".section .text.neutron_multiply_one_dsp, \"ax\", %progbits\n\t"
        ".syntax unified\n\t"
        ".thumb\n\t"
        ".thumb_func\n\t"
        ".global neutron_multiply_one_dsp\n\t"
        ".type neutron_multiply_one_dsp, %function\n"
        "neutron_multiply_one_dsp:\n\t"
        "push {r0, r4-r11, lr}\n\t"
        "ldm r0, {r4-r7}\n"
        "1:\n\t"
        "ldm r1!, {r8-r11}\n\t"
        LANE("r5", ", #8]") LANE("r6", ", #16]") LANE("r7", ", #24]") LANE("r4", "], #64")
        "cmp r1, r2\n\t"
        "bne 1b\n\t"
        "pop {r0}\n\t"
        "stm r0, {r4-r7}\n\t"
        "pop {r4-r11, pc}\n\t"
        ".size neutron_multiply_one_dsp, . - neutron_multiply_one_dsp\n\t"
        ".text\n");

/* ---- requantization ------------------------------------------------------------------------------------------------- */

NEUTRON_SMALL_RUN int32_t neutron_rescaled_dsp(const NeutronConv2dS8 *p, int32_t x, int32_t multiplier, int32_t shift) {
    const int32_t sound = neutron_sound_multiplier(multiplier);
    return p->single_rounding != 0 ? neutron_rounded_once(x, sound, shift) : neutron_rounded_twice(x, sound, shift);
}

static inline const NeutronLayerDsp *layer_of(const NeutronTileDsp *tile) { return tile->layer; }

/* Output channels [lane0, lane1) of the 8 from `channel` on. */
typedef struct {
    int32_t channel, lane0, lane1;
    const NeutronRequantBlock *table;
} Lanes;

/* neutron_lanes_dsp() has stored the values of a channel with this scale. */
static inline bool lane_is_stored(int32_t multiplier, int32_t shift) {
    return multiplier >= 0 && shift >= -31 && shift <= -2;
}

/* Sums to stored values before they are bounded, [pixel][lane], of the lanes whose values are not stored. */
NEUTRON_SMALL_RUN static __attribute__((noinline)) void rescale_lanes(const NeutronConv2dS8 *p, const NeutronTileDsp *tile, const Lanes *lanes,
                                                    const uint32_t *sums, uint8_t *stored) {
    const int32_t zero_point = p->output_zero_point;
    const bool once = p->single_rounding != 0;
    for (int32_t lane = lanes->lane0; lane < lanes->lane1; lane++) {
        const uint32_t *from = sums + lane * tile->size, *const end = from + tile->count;
        uint8_t *to = stored + lane;
        const int32_t multiplier = lanes->table->multiplier[lane];
        const int32_t word = lanes->table->shift[lane], shift = once ? (int8_t)word : word;
        if (!once && tile->size != 1 && lane_is_stored(multiplier, shift)) continue;
#if NEUTRON_FAST_DSP
        if (once && neutron_dsp_scale_fits(multiplier, shift)) {
            const int32_t fraction = (int32_t)((uint32_t)word >> 8 << 12); /* 20 bits behind the point, as a signed number */
            const NeutronDspScale scale = neutron_dsp_scale(multiplier + (fraction < 0), shift, zero_point);
            for (; from != end; to += NEUTRON_LANES) *to = neutron_dsp_byte(neutron_dsp_rounded_once((int32_t)*from++, scale, fraction));
        }
#endif
        for (; from != end; to += NEUTRON_LANES) {
            *to = neutron_dsp_byte(__qadd(neutron_rescaled_dsp(p, (int32_t)*from++, multiplier, word), zero_point));
        }
    }
}

/* Bounds and stores the values of a tile, [pixel][lane]. */
static void store_lanes(const NeutronTileDsp *tile, const Lanes *lanes,
                                                  uint32_t (*stored)[2]) {
    const NeutronConv2dS8 *p = layer_of(tile)->call->params;
    const int32_t channel_pitch = layer_of(tile)->call->buffers[p->output].channel_pitch;
    const bool whole = channel_pitch == 1 && lanes->lane1 - lanes->lane0 == NEUTRON_LANES;
    const bool bounded = p->clamp_min > INT8_MIN || p->clamp_max < INT8_MAX;
    const uint32_t low = neutron_four_bytes(p->clamp_min), high = neutron_four_bytes(p->clamp_max);
    const NeutronPixelDsp *pixel = tile->pixels, *const end = pixel + tile->count;
    for (; pixel != end; pixel++, stored++) {
        uint8_t *out = pixel->out + (ptrdiff_t)lanes->channel * channel_pitch;
        uint32_t words[2] = {stored[0][0], stored[0][1]};
        if (bounded) {
            words[0] = neutron_min_bytes(neutron_max_bytes(words[0], low), high);
            words[1] = neutron_min_bytes(neutron_max_bytes(words[1], low), high);
        }
        if (whole) {
            memcpy(out, words, NEUTRON_LANES);
        } else {
            const uint8_t *from = (const uint8_t *)words;
            for (int32_t k = lanes->lane0; k < lanes->lane1; k++) out[(ptrdiff_t)k * channel_pitch] = from[k];
        }
    }
}

/* ---- tiles ---------------------------------------------------------------------------------------------------------- */

static void fill_tile(const NeutronTileDsp *tile, const NeutronPartDsp *part, uint32_t *inputs) {
    const NeutronLayerDsp *layer = tile->layer;
    for (int32_t i = 0; i < tile->size; i++) {
        /* Pixels past the last repeat it, and are not stored. */
        const NeutronPixelDsp *pixel = &tile->pixels[min_of(i, tile->count - 1)];
        layer->fill(layer, pixel, part, inputs + 2 * i, 2 * (size_t)tile->size);
    }
}

/* Adds a part of the inputs to the output channels [channel, end), which are at most 32 and of one group; stores what is
 * then complete. Sums of other channels of their blocks are of no use. */
static void compute_channels(const NeutronTileDsp *tile, const NeutronPartDsp *part, const uint32_t *inputs, uint32_t *sums,
                             int32_t channel, int32_t end) {
    const NeutronLayerDsp *layer = tile->layer;
    const NeutronConv2dS8 *p = layer->call->params;
    const bool single = neutron_is_single_dsp(layer);
    const uint32_t words = single ? part->count / 4 + part->count % 4 : part->count * layer->words;
    const size_t block_bytes = (size_t)layer->blocks * BLOCK_BYTES;
    const bool first = part->first == 0, last = part->first + part->count == layer->blocks, one = tile->size == 1;
    const bool rescaled = last && !one && p->single_rounding == 0;
    uint32_t stored[NEUTRON_PIXELS_DSP][2];
    Lanes lanes = {.channel = first_of_block(channel)};
    const size_t block = (size_t)(lanes.channel - p->constant_channel0) / NEUTRON_LANES;
    NeutronLanesDsp work = {
        .weights = neutron_packed_weights(layer->call, p) + block * block_bytes + part->first * BLOCK_BYTES,
        .sums = sums,
        .inputs = inputs,
        .end = inputs + 2 * words * (uint32_t)tile->size,
        .single_end = single ? inputs + SIX_PITCH * (part->count / 4) : inputs,
        .twice_zero_point = 2 * p->output_zero_point + 1,
        .kind = (first ? 0u : NEUTRON_CONTINUED_DSP) | (layer->words == 1 ? NEUTRON_THIN_DSP : 0u) |
                (single ? NEUTRON_SINGLE_DSP : 0u) | (rescaled ? 0u : NEUTRON_PARTIAL_DSP) |
                (NEUTRON_FAST_DSP && p->clamp_min >= p->output_zero_point ? NEUTRON_POSITIVE_DSP : 0u),
    };
    lanes.table = neutron_requant_blocks(layer->call, p) + block;
    lanes.lane0 = channel - lanes.channel;
    for (; lanes.channel < end; lanes.channel += NEUTRON_LANES, lanes.table++, lanes.lane0 = 0) {
        lanes.lane1 = min_of(end - lanes.channel, NEUTRON_LANES);
        sums = work.sums;
        if (one) {
            if (first) memcpy(sums, lanes.table->bias, sizeof lanes.table->bias);
            for (int32_t lane = 0; lane < NEUTRON_LANES; lane += LANES_OF_A_PIXEL) {
                neutron_multiply_one_dsp(sums + lane, inputs, work.end, work.weights + lane * NEUTRON_LANES);
            }
            work.weights += block_bytes;
            work.sums += NEUTRON_LANES;
        } else {
            work.table = lanes.table->bias;
            work.stored = (uint8_t *)stored;
            work.count = NEUTRON_LANES;
            work.unfit = 0;
            neutron_lanes_dsp(&work);
            work.weights += block_bytes - BLOCK_BYTES;
        }
        if (last) {
            if (!rescaled || work.unfit > 0) rescale_lanes(p, tile, &lanes, sums, (uint8_t *)stored);
            store_lanes(tile, &lanes, stored);
        }
    }
}

/* All output channels. Inputs that fit into the buffer whole are widened once for a group. */
static void compute_tile(const NeutronTileDsp *tile) {
    const NeutronLayerDsp *layer = tile->layer;
    const NeutronConv2dS8 *p = layer->call->params;
    const NeutronWindowExtents *w = &layer->call->window;
    const uint32_t most = NEUTRON_WORDS_DSP / ((uint32_t)tile->size * layer->words);
    uint32_t inputs[2 * NEUTRON_WORDS_DSP], sums[NEUTRON_CHANNELS_DSP * NEUTRON_PIXELS_DSP];
    NeutronPartDsp part = {.channel0 = -1};
    for (int32_t channel = w->channel0, end; channel < w->channel1; channel = end) {
        const int32_t group = channel / p->group_outputs, channel0 = group * p->group_inputs;
        end = min_of(first_of_block(channel) + NEUTRON_CHANNELS_DSP, w->channel1);
        end = min_of(end, (group + 1) * p->group_outputs);
        for (part.first = 0; part.first < layer->blocks; part.first += part.count) {
            if (layer->blocks > most || part.channel0 != channel0) {
                part.channel0 = channel0;
                part.count = layer->blocks - part.first < most ? layer->blocks - part.first : most;
                fill_tile(tile, &part, inputs);
            }
            compute_channels(tile, &part, inputs, sums, channel, end);
        }
    }
}

NEUTRON_SMALL_RUN void neutron_convolution_dsp(NeutronLayerDsp *layer) {
    const NeutronConv2dS8 *p = layer->call->params;
    layer->input = neutron_element_address(layer->call->bases, &layer->call->buffers[p->input], 0, 0, 0, 0);
    neutron_compute_tiles_dsp(layer->call, layer, layer->words == 1 ? 0 : 2, compute_tile);
}

#endif
