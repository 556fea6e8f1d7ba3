/* SPDX-License-Identifier: BSD-3-Clause */
/* Tiles of outputs for Helium: in registers are 3 pixels by two output channels, or one pixel by four channels. */
#include "convolution_helium.h"

#if NEUTRON_HELIUM

enum {
    BLOCK_BYTES = NEUTRON_LANES * NEUTRON_LANES,
    PAIR_BYTES = 2 * BLOCK_BYTES,
    THREE = NEUTRON_THREE,
    CHANNELS_OF_A_THREE = NEUTRON_PIXELS_HELIUM / THREE * NEUTRON_LANES /* whose sums there is memory for */
};

static inline int32_t min_of(int32_t a, int32_t b) { return a < b ? a : b; }
static inline int32_t first_of_block(int32_t channel) { return channel & -NEUTRON_LANES; }

/* ---- inputs --------------------------------------------------------------------------------------------------------------- */

static int16x8_t load_block(const uint8_t *from, int32_t pitch, int32_t channels) {
    const mve_pred16_t some = vctp16q((uint32_t)channels);
    if (pitch == 1) return vldrbq_z_s16((const int8_t *)from, some);
    if (pitch == 0) return vdupq_m_n_s16(vdupq_n_s16(0), (int8_t)*from, some);
    int8_t block[NEUTRON_LANES] = {0};
    for (int32_t i = 0; i < NEUTRON_LANES && i < channels; i++) block[i] = (int8_t)from[(ptrdiff_t)i * pitch];
    return vldrbq_s16(block);
}

void neutron_fill_blocks_helium(NeutronPiecesHelium pieces, int32_t block, const uint8_t *from, int32_t channel_pitch,
                                int32_t channels) {
    int8_t *to = (int8_t *)pieces.to + (ptrdiff_t)(block / 2) * pieces.pitch;
    bool second = block % 2 != 0;
    while (channels > 0) {
        if (!second && channel_pitch == 1) {
            for (; channels >= NEUTRON_PIECE; channels -= NEUTRON_PIECE, from += NEUTRON_PIECE, to += pieces.pitch) {
                vstrbq_s8(to, vldrbq_s8((const int8_t *)from));
            }
            if (channels == 0) return;
        }
        if (!second) vstrbq_s8(to, vdupq_n_s8(0));
        vstrbq_s16(to + (second ? NEUTRON_LANES : 0), load_block(from, channel_pitch, channels));
        if (second) to += pieces.pitch;
        second = !second;
        from += NEUTRON_LANES * channel_pitch;
        channels -= NEUTRON_LANES;
    }
}

/* ---- sums of products ----------------------------------------------------------------------------------------------------- */

/* All loops are assembly: gcc 12 makes two loads of one that moves on, and neither compiler keeps all sums in registers that the
 * instruction takes. A load that moves on does so first: places are those of the two blocks before. */

/* The inputs of a tile and the weights of 8 output channels, of which the lanes [lane0, lane1) are asked for. */
typedef struct {
    const int8_t *inputs, *weights;
    const int32_t *bias; /* what the sums begin with */
    int32_t blocks, lane0, lane1;
} Products;

/* The places of a lane's weights in two blocks, one of which begins `apart` bytes after the other. */
static NEUTRON_INLINE uint32x4_t places(const int8_t *weights, uint32_t apart) {
    const uint32_t first = (uint32_t)(uintptr_t)weights - PAIR_BYTES;
    return vsetq_lane_u32(first + apart, vdupq_n_u32(first), 2);
}

/* The places of the last block, where the number of blocks is odd: twice, since the second half of its inputs is 0. */
static NEUTRON_INLINE uint32x4_t last_places(const int8_t *weights, int32_t blocks) {
    return places(weights + (ptrdiff_t)(blocks - 1) * BLOCK_BYTES, 0);
}

#define MULTIPLY_TWO_BY_THREE \
    "vldrd.u64 %q[first], [%q[at], #128]!\n\t" \
    "vldrb.u8 %q[x], [%[inputs]], #16\n\t" \
    "vldrd.u64 %q[second], [%q[at], #8]\n\t" \
    "vmladava.s8 %[a], %q[first], %q[x]\n\t" \
    "vldrb.u8 %q[y], [%[inputs]], #16\n\t" \
    "vmladava.s8 %[b], %q[second], %q[x]\n\t" \
    "vmladava.s8 %[c], %q[first], %q[y]\n\t" \
    "vldrb.u8 %q[x], [%[inputs]], #16\n\t" \
    "vmladava.s8 %[d], %q[second], %q[y]\n\t" \
    "vmladava.s8 %[e], %q[first], %q[x]\n\t" \
    "vmladava.s8 %[f], %q[second], %q[x]\n\t"

/* Sums [pixel][8 lanes] of products for threes of pixels: two lanes at a time. */
static __attribute__((noinline)) void multiply_pixels(int32_t *sums, const Products *products, int32_t threes) {
    const int32_t lane0 = products->lane0 & -2, blocks = products->blocks;
    const int8_t *const weights = products->weights + lane0 * NEUTRON_LANES;
    const uint32x4_t first_at = places(weights, BLOCK_BYTES), first_last = last_places(weights, blocks);
    const int8_t *inputs = products->inputs;
    for (; threes > 0; threes--, sums += THREE * NEUTRON_LANES, inputs += (blocks + 1) / 2 * THREE * NEUTRON_PIECE) {
        const int32_t *bias = products->bias + lane0;
        int32_t *now = sums + lane0, two_lanes = (products->lane1 - lane0 + 1) / 2;
        int32_t a, b, c, d, e, f;
        const int8_t *next;
        uint32x4_t lane = first_at, last = first_last, at;
        int8x16_t first, second, x, y;
        __asm__ volatile(
            "1:\n\t"
            "ldrd %[a], %[b], [%[bias]], #8\n\t"
            "ldr %[inputs], %[begin]\n\t"
            "mov %[c], %[a]\n\t"
            "mov %[d], %[b]\n\t"
            "mov %[e], %[a]\n\t"
            "mov %[f], %[b]\n\t"
            "vmov %q[at], %q[lane]\n\t"
            "lsr lr, %[blocks], #1\n\t"
            "wls lr, lr, 3f\n"
            "2:\n\t" MULTIPLY_TWO_BY_THREE
            "le lr, 2b\n"
            "3:\n\t"
            "tst %[blocks], #1\n\t"
            "beq 4f\n\t"
            "vmov %q[at], %q[last]\n\t"
            "mov lr, #16\n\t"
            "vadd.i32 %q[last], %q[last], lr\n\t" MULTIPLY_TWO_BY_THREE
            "4:\n\t"
            "mov lr, #16\n\t"
            "vadd.i32 %q[lane], %q[lane], lr\n\t"
            "strd %[a], %[b], [%[now]], #8\n\t"
            "strd %[c], %[d], [%[now], #24]\n\t"
            "strd %[e], %[f], [%[now], #56]\n\t"
            "subs %[lanes], %[lanes], #1\n\t"
            "bne 1b"
            : [a] "=&Te"(a), [b] "=&Te"(b), [c] "=&Te"(c), [d] "=&Te"(d), [e] "=&Te"(e), [f] "=&Te"(f), [inputs] "=&r"(next),
              [bias] "+&r"(bias), [now] "+&r"(now), [lanes] "+&r"(two_lanes), [lane] "+&w"(lane), [last] "+&w"(last), [at] "=&w"(at),
              [first] "=&w"(first), [second] "=&w"(second), [x] "=&w"(x), [y] "=&w"(y)
            : [blocks] "r"(blocks), [begin] "m"(inputs)
            : "lr", "cc", "memory");
    }
}

/* The same for one pixel: four lanes at a time. */
static void multiply_one(int32_t *sums, const Products *products) {
    const int32_t *bias = products->bias + (products->lane0 & -4);
    const int32_t blocks = products->blocks, lane0 = products->lane0 & -4;
    const int8_t *const first_inputs = products->inputs, *weights = products->weights + lane0 * NEUTRON_LANES;
    for (int32_t *now = sums + lane0, *const end = sums + products->lane1; now < end; now += 4, bias += 4, weights += 4 * NEUTRON_LANES) {
        int32_t a = bias[0], b = bias[1], c = bias[2], d = bias[3], pairs = blocks / 2;
        const int8_t *inputs = first_inputs;
        uint32x4_t at = places(weights, BLOCK_BYTES);
        for (bool odd = blocks % 2 != 0;; odd = false) {
            int8x16_t first, second, x;
            __asm__ volatile(
                "wls lr, %[pairs], 2f\n"
                "1:\n\t"
                "vldrd.u64 %q[first], [%q[at], #128]!\n\t"
                "vldrb.u8 %q[x], [%[inputs]], #16\n\t"
                "vldrd.u64 %q[second], [%q[at], #8]\n\t"
                "vmladava.s8 %[a], %q[first], %q[x]\n\t"
                "vldrd.u64 %q[first], [%q[at], #16]\n\t"
                "vmladava.s8 %[b], %q[second], %q[x]\n\t"
                "vldrd.u64 %q[second], [%q[at], #24]\n\t"
                "vmladava.s8 %[c], %q[first], %q[x]\n\t"
                "vmladava.s8 %[d], %q[second], %q[x]\n\t"
                "le lr, 1b\n"
                "2:"
                : [a] "+Te"(a), [b] "+Te"(b), [c] "+Te"(c), [d] "+Te"(d), [inputs] "+r"(inputs), [at] "+w"(at),
                  [first] "=&w"(first), [second] "=&w"(second), [x] "=&w"(x)
                : [pairs] "r"(pairs)
                : "lr", "memory");
            if (!odd) break;
            at = last_places(weights, blocks);
            pairs = 1;
        }
        now[0] = a, now[1] = b, now[2] = c, now[3] = d;
    }
}

/* ---- tiles ---------------------------------------------------------------------------------------------------------------- */

/* Threes of pixels, or one pixel. */
typedef struct {
    const NeutronLayerHelium *layer;
    const NeutronPixelHelium *pixels;
    int32_t count, threes; /* 0 threes: one pixel */
} Tile;

/* Four scales of neutron_rounded_once(). For those that neutron_dsp_scale_fits(), the result is
 * (high word of (x * multiplier + low) + half) >> -right, as in neutron_dsp_rounded_once(). */
typedef struct {
    int32x4_t multiplier, fraction /* 20 bits behind the point, as a signed number */, right;
    mve_pred16_t fits;
} Once;

static NEUTRON_INLINE void prepare_once(Once *by, const int32_t *multipliers, const int32_t *words) {
    const int32x4_t word = vldrwq_s32(words), shift = vshrq_n_s32(vshlq_n_s32(word, 24), 24), multiplier = vldrwq_s32(multipliers);
    by->fraction = vshlq_n_s32(vshrq_n_s32(word, 8), 12);
    by->fits = vcmpgeq_n_s32(multiplier, 0);
    by->fits = vcmpltq_m_n_s32(multiplier, INT32_MAX, by->fits);
    by->fits = vcmpleq_m_n_s32(shift, -2, by->fits);
    by->fits = vcmpgeq_m_n_s32(shift, -31, by->fits);
    by->multiplier = vsubq_s32(multiplier, vshrq_n_s32(by->fraction, 31));
    by->right = vaddq_n_s32(shift, 1);
}

static NEUTRON_INLINE int32x4_t rescaled_once(int32x4_t x, const Once *by) {
    const int32x4_t low = vmulhq_s32(x, by->fraction), product = vmulq_s32(x, by->multiplier);
    const uint32x4_t sum = vreinterpretq_u32_s32(vaddq_s32(product, low));
    int32x4_t high = vaddq_s32(vmulhq_s32(x, by->multiplier), vshrq_n_s32(low, 31));
    high = vaddq_m_n_s32(high, high, 1, vcmphiq_u32(vreinterpretq_u32_s32(product), sum)); /* the carry */
    return vrshlq_s32(high, by->right);
}

/* neutron_rounded_once() of four lanes for each pixel, in place. */
static __attribute__((noinline)) void rescale_once(int32_t *sums, int32_t pixels, const int32_t *multipliers, const int32_t *words) {
    Once by;
    prepare_once(&by, multipliers, words);
    for (; pixels > 0; pixels--, sums += NEUTRON_LANES) {
        if (by.fits == UINT16_MAX) {
            vstrwq_s32(sums, rescaled_once(vldrwq_s32(sums), &by));
            continue;
        }
        for (int32_t k = 0; k < 4; k++) sums[k] = neutron_rounded_once(sums[k], neutron_sound_multiplier(multipliers[k]), words[k]);
    }
}

static NEUTRON_INLINE void store_pixels(const Tile *tile, const NeutronScales *scales, const NeutronResults *results, ptrdiff_t offset,
                                        const int32_t *sums, const bool once) {
    const NeutronPixelHelium *pixel = tile->pixels, *const end = pixel + tile->count;
    for (; pixel != end; pixel++, sums += NEUTRON_LANES) {
        NeutronEight x = neutron_load_eight_words(sums);
        if (!once && scales->shifts_left) neutron_shift_left_eight(&x, scales);
        if (!once) neutron_requantize_eight(&x, scales);
        neutron_store_eight_helium(pixel->out + offset, results, x);
    }
}

#if NEUTRON_FAST_DSP
static NEUTRON_INLINE void store_four(int8_t *to, int32x4_t x, int32_t zero_point, int32x4_t low, int32x4_t high) {
    vstrbq_s32(to, vminq_s32(vmaxq_s32(vqaddq_n_s32(x, zero_point), low), high));
}

static NEUTRON_INLINE int32x4_t rescaled_twice(const int32_t *sums, int32x4_t multiplier, int32x4_t right) {
    return neutron_shift_right_helium(vqrdmulhq_s32(vldrwq_s32(sums), multiplier), right);
}

/* Stores all of 8 channels that are next to each other; false where a scale shifts to the left. */
static __attribute__((noinline)) bool store_right(const Tile *tile, const NeutronRequantBlock *table, int32_t channel, const int32_t *sums) {
    const NeutronConv2dS8 *p = tile->layer->call->params;
    const int32x4_t shift0 = vldrwq_s32(table->shift), shift1 = vldrwq_s32(table->shift + 4);
    if (vmaxvq_s32(vmaxvq_s32(0, shift0), shift1) > 0) return false;
    const int32x4_t right0 = vmaxq_s32(shift0, vdupq_n_s32(-31)), right1 = vmaxq_s32(shift1, vdupq_n_s32(-31));
    const int32x4_t sound = vdupq_n_s32(-INT32_MAX);
    const int32x4_t by0 = vmaxq_s32(vldrwq_s32(table->multiplier), sound), by1 = vmaxq_s32(vldrwq_s32(table->multiplier + 4), sound);
    const int32x4_t low = vdupq_n_s32(p->clamp_min), high = vdupq_n_s32(p->clamp_max);
    const int32_t zero_point = p->output_zero_point;
    const NeutronPixelHelium *pixel = tile->pixels;
    for (int32_t count = tile->count; count > 0; count--, pixel++, sums += NEUTRON_LANES) {
        int8_t *const to = (int8_t *)pixel->out + channel;
        store_four(to, rescaled_twice(sums, by0, right0), zero_point, low, high);
        store_four(to + 4, rescaled_twice(sums + 4, by1, right1), zero_point, low, high);
    }
    return true;
}

/* The same for scales of neutron_rounded_once(); false where one of them does not fit. The sums stay. */
static __attribute__((noinline)) bool store_once(const Tile *tile, const NeutronRequantBlock *table, int32_t channel, const int32_t *sums) {
    const NeutronConv2dS8 *p = tile->layer->call->params;
    const int32x4_t low = vdupq_n_s32(p->clamp_min), high = vdupq_n_s32(p->clamp_max);
    for (int32_t first = 0; first < NEUTRON_LANES; first += 4) {
        Once by;
        prepare_once(&by, table->multiplier + first, table->shift + first);
        if (by.fits != UINT16_MAX) return false;
        for (int32_t i = 0; i < tile->count; i++) {
            const int32x4_t x = rescaled_once(vldrwq_s32(sums + i * NEUTRON_LANES + first), &by);
            store_four((int8_t *)tile->pixels[i].out + channel + first, x, p->output_zero_point, low, high);
        }
    }
    return true;
}
#endif

/* Stores lanes of 8 output channels, whose first channel is `channel`. Sums are of all lanes. */
static __attribute__((noinline)) void store_lanes(const Tile *tile, const NeutronRequantBlock *table, mve_pred16_t lanes, int32_t channel,
                                                  int32_t *sums) {
    const NeutronConv2dS8 *p = tile->layer->call->params;
    const int32_t pitch = tile->layer->call->buffers[p->output].channel_pitch, count = tile->count;
#if NEUTRON_FAST_DSP
    if (pitch == 1 && lanes == UINT16_MAX) {
        const bool stored = p->single_rounding != 0 ? store_once(tile, table, channel, sums) : store_right(tile, table, channel, sums);
        if (stored) return;
    }
#endif
    const ptrdiff_t offset = (ptrdiff_t)channel * pitch;
    NeutronResults results = neutron_results_helium(p->output_zero_point, p->clamp_min, p->clamp_max, pitch);
    results.lanes = lanes;
    if (p->single_rounding != 0) {
        rescale_once(sums, count, table->multiplier, table->shift);
        rescale_once(sums + 4, count, table->multiplier + 4, table->shift + 4);
        store_pixels(tile, NULL, &results, offset, sums, true);
        return;
    }
    NeutronScales scales;
    neutron_prepare_scales(&scales, table->multiplier, table->shift);
    store_pixels(tile, &scales, &results, offset, sums, false);
}

/* Inputs are laid out [three][piece][pixel][16]. Pixels past the last are not laid out, and their sums are not stored. */
static void fill_tile(const Tile *tile, const NeutronPartHelium *part, uint8_t *inputs) {
    const int32_t together = tile->threes > 0 ? THREE : 1, pitch = together * NEUTRON_PIECE, pieces = (part->count + 1) / 2;
    const NeutronPiecesHelium first = {inputs, pitch, 0, together, (ptrdiff_t)(pieces - 1) * pitch};
    tile->layer->fill(tile->layer, tile->pixels, tile->count, part, first);
}

/* Adds the products of a further part of the inputs to sums. */
static void add_sums(int32_t *sums, const int32_t *added, int32_t pixels) {
    for (int32_t i = pixels * NEUTRON_LANES; i > 0; i -= 4, sums += 4, added += 4) {
        vstrwq_s32(sums, vaddq_s32(vldrwq_s32(sums), vldrwq_s32(added)));
    }
}

static const int32_t NO_BIAS[NEUTRON_LANES];

/* Adds a part of the inputs to the output channels [channel, end), which are of one group; stores what is then complete. `inputs` are
 * followed by memory for packed weights. */
static void compute_channels(const Tile *tile, const NeutronPartHelium *part, int8_t *inputs, int32_t *sums, int32_t channel,
                             int32_t end) {
    const NeutronLayerHelium *layer = tile->layer;
    const NeutronConv2dS8 *p = layer->call->params;
    const ptrdiff_t block_bytes = (ptrdiff_t)p->kernel_h * p->kernel_w * (ptrdiff_t)neutron_blocks_of(p->group_inputs) * BLOCK_BYTES;
    const int32_t first = first_of_block(channel), block = (first - p->constant_channel0) / NEUTRON_LANES;
    const int32_t pixels = tile->threes > 0 ? tile->threes * THREE : 1;
    const bool begins = part->first == 0, ends = part->first + part->count == layer->blocks;
    const NeutronRequantBlock *table = neutron_requant_blocks(layer->call, p) + block;
    const int8_t *weights = neutron_packed_weights(layer->call, p) + block * block_bytes + (ptrdiff_t)part->first * BLOCK_BYTES;
    int8_t *const packed = inputs + (NEUTRON_PIECES_HELIUM * NEUTRON_PIECE - part->count * BLOCK_BYTES);
    Products products = {.inputs = inputs, .weights = weights, .bias = NO_BIAS, .blocks = part->count, .lane0 = channel - first};
    int32_t added[THREE * NEUTRON_LANES];
    for (channel = first; channel < end; channel += NEUTRON_LANES, products.lane0 = 0) {
        products.lane1 = min_of(end - channel, NEUTRON_LANES);
        products.weights = weights;
        if (layer->pack != NULL) {
            layer->pack(layer, weights, packed);
            products.weights = packed;
        }
        if (begins) products.bias = table->bias;
        int32_t *const to = begins ? sums : added;
        if (tile->threes == 0) {
            multiply_one(to, &products);
        } else {
            multiply_pixels(to, &products, tile->threes);
        }
        if (!begins) add_sums(sums, added, pixels);
        if (ends) store_lanes(tile, table, neutron_lanes_helium(products.lane0, products.lane1), channel, sums);
        if (!begins || !ends) sums += THREE * NEUTRON_LANES;
        weights += block_bytes;
        table++;
    }
}

/* All output channels. Inputs that fit into the buffer whole are laid out once for a group; else the sums of some channels of 3 pixels, or of
 * one, wait for the next part. */
static void compute_tile(const Tile *tile) {
    const NeutronLayerHelium *layer = tile->layer;
    const NeutronConv2dS8 *p = layer->call->params;
    const NeutronWindowExtents *w = &layer->call->window;
    const int32_t most = tile->threes > 0 ? 2 * NEUTRON_PIECES_HELIUM / (tile->threes * THREE) & -2 : 2 * NEUTRON_PIECES_HELIUM;
    const bool whole = layer->blocks <= most;
    uint64_t memory[NEUTRON_PIECES_HELIUM * NEUTRON_PIECE / 8]; /* packed weights are loaded by 8 bytes */
    int8_t *const inputs = (int8_t *)memory;
    int32_t sums[NEUTRON_PIXELS_HELIUM * NEUTRON_LANES];
    NeutronPartHelium part = {.channel0 = -1};
    for (int32_t channel = w->channel0, end; channel < w->channel1; channel = end) {
        const int32_t group = channel / p->group_outputs, channel0 = group * p->group_inputs;
        end = min_of(w->channel1, (group + 1) * p->group_outputs);
        if (!whole) end = min_of(end, first_of_block(channel) + CHANNELS_OF_A_THREE);
        for (part.first = 0; part.first < layer->blocks; part.first += part.count) {
            if (!whole || part.channel0 != channel0) {
                part.channel0 = channel0;
                part.count = min_of(layer->blocks - part.first, most);
                fill_tile(tile, &part, (uint8_t *)inputs);
            }
            compute_channels(tile, &part, inputs, sums, channel, end);
        }
    }
}

/* The outputs that inputs, and packed weights beside them, fit into the buffer for: whole threes, one of which is in parts if need be. */
static int32_t tile_pixels(const NeutronLayerHelium *layer) {
    const int32_t weights = layer->pack != NULL ? layer->blocks * BLOCK_BYTES / NEUTRON_PIECE : 0;
    const int32_t fit = (NEUTRON_PIECES_HELIUM - weights) / THREE / ((layer->blocks + 1) / 2);
    return min_of(THREE * (fit < 1 ? 1 : fit), NEUTRON_PIXELS_HELIUM);
}

void neutron_convolution_helium(NeutronLayerHelium *layer) {
    const NeutronKernelCall *call = layer->call;
    const NeutronConv2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *output = &call->buffers[p->output];
    uint8_t *const first = neutron_element_address(call->bases, output, 0, 0, 0, 0);
    layer->input = neutron_element_address(call->bases, &call->buffers[p->input], 0, 0, 0, 0);
    const int32_t size = tile_pixels(layer);
    int32_t n = w->batch0, r = w->row0, c = w->col0;
    uint8_t *out = first + neutron_offset_helium(output, n, r, c);
    do {
        NeutronPixelHelium pixels[NEUTRON_PIXELS_HELIUM];
        Tile tile = {.layer = layer, .pixels = pixels};
        for (; tile.count < size && n < w->batch1; tile.count++) {
            pixels[tile.count] = (NeutronPixelHelium){n, r * p->stride_h - p->pad_top, c * p->stride_w - p->pad_left, out};
            out += output->col_pitch;
            if (++c < w->col1) continue;
            c = w->col0;
            if (++r == w->row1) {
                r = w->row0;
                n++;
            }
            if (n < w->batch1) out = first + neutron_offset_helium(output, n, r, c);
        }
        tile.threes = tile.count == 1 ? 0 : (tile.count + THREE - 1) / THREE;
        compute_tile(&tile);
    } while (n < w->batch1);
}

#endif
