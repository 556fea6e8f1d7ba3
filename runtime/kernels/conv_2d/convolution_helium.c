/* SPDX-License-Identifier: BSD-3-Clause */
/* Tiles of outputs for Helium: in registers are 3 pixels by two output channels, or one pixel by four channels. */
#include "convolution_helium.h"

#if NEUTRON_HELIUM

enum {
    BLOCK_BYTES = NEUTRON_LANES * NEUTRON_LANES,
    PAIR_BYTES = 2 * BLOCK_BYTES,
    THREE = 3, /* pixels in registers */
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
        vstrbq_s16(to + (second ? NEUTRON_LANES : 0), load_block(from, channel_pitch, channels));
        if (second) to += pieces.pitch;
        second = !second;
        from += NEUTRON_LANES * channel_pitch;
        channels -= NEUTRON_LANES;
    }
}

/* ---- sums of products ----------------------------------------------------------------------------------------------------- */

/* Both loops are assembly: gcc 12 makes two loads of one that moves on, and neither compiler keeps all sums in registers that the
 * instruction takes. A load that moves on does so first: places are those of the two blocks before. */

/* The inputs of a tile and the weights of 8 output channels, of which the lanes [lane0, lane1) are asked for. */
typedef struct {
    const int8_t *inputs, *weights;
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

/* Adds products for threes of pixels to the sums, [pixel][8 lanes]: two lanes at a time. */
static void multiply_pixels(int32_t *sums, const Products *products, int32_t threes) {
    /* One block is a last one from the start. */
    const int32_t blocks = products->blocks, lane0 = products->lane0 & -2, whole_pairs = blocks == 1 ? 1 : blocks / 2;
    const int8_t *first_inputs = products->inputs;
    for (; threes > 0; threes--, sums += THREE * NEUTRON_LANES, first_inputs += (blocks + 1) / 2 * THREE * NEUTRON_PIECE) {
        const int8_t *weights = products->weights + lane0 * NEUTRON_LANES;
        int32_t *now = sums + lane0, *const end = sums + products->lane1;
        for (uint32x4_t lane = places(weights, blocks == 1 ? 0 : BLOCK_BYTES); now < end; lane = vaddq_n_u32(lane, 2 * NEUTRON_LANES)) {
            int32_t *const next = now + NEUTRON_LANES, *const last = next + NEUTRON_LANES;
            int32_t a = now[0], b = now[1], c = next[0], d = next[1], e = last[0], f = last[1], pairs = whole_pairs;
            const int8_t *inputs = first_inputs;
            uint32x4_t at = lane;
            for (bool odd = blocks % 2 != 0 && blocks > 1;; odd = false) {
                int8x16_t first, second, x, y;
                __asm__ volatile(
                    "wls lr, %[pairs], 2f\n"
                    "1:\n\t"
                    "vldrd.u64 %q[first], [%q[at], #128]!\n\t"
                    "vldrb.u8 %q[x], [%[inputs]], #16\n\t"
                    "vldrd.u64 %q[second], [%q[at], #8]\n\t"
                    "vmladava.s8 %[a], %q[first], %q[x]\n\t"
                    "vldrb.u8 %q[y], [%[inputs]], #16\n\t"
                    "vmladava.s8 %[b], %q[second], %q[x]\n\t"
                    "vmladava.s8 %[c], %q[first], %q[y]\n\t"
                    "vldrb.u8 %q[x], [%[inputs]], #16\n\t"
                    "vmladava.s8 %[d], %q[second], %q[y]\n\t"
                    "vmladava.s8 %[e], %q[first], %q[x]\n\t"
                    "vmladava.s8 %[f], %q[second], %q[x]\n\t"
                    "le lr, 1b\n"
                    "2:"
                    : [a] "+Te"(a), [b] "+Te"(b), [c] "+Te"(c), [d] "+Te"(d), [e] "+Te"(e), [f] "+Te"(f), [inputs] "+r"(inputs),
                      [at] "+w"(at), [first] "=&w"(first), [second] "=&w"(second), [x] "=&w"(x), [y] "=&w"(y)
                    : [pairs] "r"(pairs)
                    : "lr", "memory");
                if (!odd) break;
                at = last_places(weights, blocks);
                pairs = 1;
            }
            now[0] = a, now[1] = b, next[0] = c, next[1] = d, last[0] = e, last[1] = f;
            now += 2;
            weights += 2 * NEUTRON_LANES;
        }
    }
}

/* The same for one pixel: four lanes at a time. */
static void multiply_one(int32_t *sums, const Products *products) {
    const int32_t blocks = products->blocks, lane0 = products->lane0 & -4;
    const int8_t *const first_inputs = products->inputs, *weights = products->weights + lane0 * NEUTRON_LANES;
    for (int32_t *now = sums + lane0, *const end = sums + products->lane1; now < end; now += 4, weights += 4 * NEUTRON_LANES) {
        int32_t a = now[0], b = now[1], c = now[2], d = now[3], pairs = blocks / 2;
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

/* neutron_rounded_once() of four lanes for each pixel, in place. For scales that neutron_dsp_scale_fits(), the result is
 * (high word of (x * multiplier + low) + half) >> -right, as in neutron_dsp_rounded_once(). */
static __attribute__((noinline)) void rescale_once(int32_t *sums, int32_t pixels, const int32_t *multipliers, const int32_t *words) {
    const int32x4_t word = vldrwq_s32(words), shift = vshrq_n_s32(vshlq_n_s32(word, 24), 24);
    const int32x4_t fraction = vshlq_n_s32(vshrq_n_s32(word, 8), 12); /* 20 bits behind the point, as a signed number */
    int32x4_t multiplier = vldrwq_s32(multipliers);
    mve_pred16_t fits = vcmpgeq_n_s32(multiplier, 0);
    fits = vcmpltq_m_n_s32(multiplier, INT32_MAX, fits);
    fits = vcmpleq_m_n_s32(shift, -2, fits);
    fits = vcmpgeq_m_n_s32(shift, -31, fits);
    multiplier = vsubq_s32(multiplier, vshrq_n_s32(fraction, 31));
    const int32x4_t right = vaddq_n_s32(shift, 1);
    for (; pixels > 0; pixels--, sums += NEUTRON_LANES) {
        const int32x4_t x = vldrwq_s32(sums), low = vmulhq_s32(x, fraction), product = vmulq_s32(x, multiplier);
        const uint32x4_t sum = vreinterpretq_u32_s32(vaddq_s32(product, low));
        int32x4_t high = vaddq_s32(vmulhq_s32(x, multiplier), vshrq_n_s32(low, 31));
        high = vaddq_m_n_s32(high, high, 1, vcmphiq_u32(vreinterpretq_u32_s32(product), sum)); /* the carry */
        if (fits == UINT16_MAX) {
            vstrwq_s32(sums, vrshlq_s32(high, right));
            continue;
        }
        for (int32_t k = 0; k < 4; k++) sums[k] = neutron_rounded_once(sums[k], neutron_sound_multiplier(multipliers[k]), words[k]);
    }
}

static void set_sums(int32_t *sums, const int32_t *bias, int32_t pixels) {
    const int32x4_t low = vldrwq_s32(bias), high = vldrwq_s32(bias + 4);
    for (int32_t i = 0; i < pixels; i++, sums += NEUTRON_LANES) {
        vstrwq_s32(sums, low);
        vstrwq_s32(sums + 4, high);
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

/* Stores lanes of 8 output channels, whose first channel is `channel`. Sums are of all lanes. */
static __attribute__((noinline)) void store_lanes(const Tile *tile, const NeutronRequantBlock *table, mve_pred16_t lanes, int32_t channel,
                                                  int32_t *sums) {
    const NeutronConv2dS8 *p = tile->layer->call->params;
    const int32_t pitch = tile->layer->call->buffers[p->output].channel_pitch, count = tile->count;
    NeutronResults results = neutron_results_helium(p->output_zero_point, p->clamp_min, p->clamp_max, pitch);
    results.lanes = lanes;
    const ptrdiff_t offset = (ptrdiff_t)channel * pitch;
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
    const int32_t together = tile->threes > 0 ? THREE : 1, pitch = together * NEUTRON_PIECE;
    const int32_t pieces = (part->count + 1) / 2;
    for (int32_t i = 0; i < tile->count; i++) {
        uint8_t *const to = inputs + (i / together * pieces * together + i % together) * NEUTRON_PIECE;
        if (part->count % 2 != 0) vstrbq_s8((int8_t *)to + (ptrdiff_t)(pieces - 1) * pitch, vdupq_n_s8(0));
        tile->layer->fill(tile->layer, &tile->pixels[i], part, (NeutronPiecesHelium){to, pitch});
    }
}

/* Adds a part of the inputs to the output channels [channel, end), which are of one group; stores what is then complete. */
static void compute_channels(const Tile *tile, const NeutronPartHelium *part, const int8_t *inputs, int32_t *sums, int32_t channel,
                             int32_t end) {
    const NeutronLayerHelium *layer = tile->layer;
    const NeutronConv2dS8 *p = layer->call->params;
    const ptrdiff_t block_bytes = (ptrdiff_t)layer->blocks * BLOCK_BYTES;
    const int32_t first = first_of_block(channel), block = (first - p->constant_channel0) / NEUTRON_LANES;
    const bool begins = part->first == 0, ends = part->first + part->count == layer->blocks;
    const NeutronRequantBlock *table = neutron_requant_blocks(layer->call, p) + block;
    Products products = {.inputs = inputs, .blocks = part->count, .lane0 = channel - first};
    products.weights = neutron_packed_weights(layer->call, p) + block * block_bytes + (ptrdiff_t)part->first * BLOCK_BYTES;
    for (channel = first; channel < end; channel += NEUTRON_LANES, products.lane0 = 0) {
        products.lane1 = min_of(end - channel, NEUTRON_LANES);
        if (begins) set_sums(sums, table->bias, tile->threes > 0 ? tile->threes * THREE : 1);
        if (tile->threes == 0) {
            multiply_one(sums, &products);
        } else {
            multiply_pixels(sums, &products, tile->threes);
        }
        if (ends) store_lanes(tile, table, neutron_lanes_helium(products.lane0, products.lane1), channel, sums);
        if (!begins || !ends) sums += THREE * NEUTRON_LANES;
        products.weights += block_bytes;
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
    int8_t inputs[NEUTRON_PIECES_HELIUM * NEUTRON_PIECE];
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

void neutron_convolution_helium(NeutronLayerHelium *layer) {
    const NeutronKernelCall *call = layer->call;
    const NeutronConv2dS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *output = &call->buffers[p->output];
    uint8_t *const first = neutron_element_address(call->bases, output, 0, 0, 0, 0);
    layer->input = neutron_element_address(call->bases, &call->buffers[p->input], 0, 0, 0, 0);
    /* As many threes as whole inputs fit into the buffer. */
    const int32_t fit = NEUTRON_PIECES_HELIUM / THREE / ((layer->blocks + 1) / 2), most = THREE * (fit < 1 ? 1 : fit);
    const int32_t size = min_of(most, NEUTRON_PIXELS_HELIUM);
    int32_t n = w->batch0, r = w->row0, c = w->col0;
    do {
        NeutronPixelHelium pixels[NEUTRON_PIXELS_HELIUM];
        Tile tile = {.layer = layer, .pixels = pixels};
        for (; tile.count < size && n < w->batch1; tile.count++) {
            pixels[tile.count] = (NeutronPixelHelium){n, r * p->stride_h - p->pad_top, c * p->stride_w - p->pad_left,
                                                      first + neutron_offset_helium(output, n, r, c)};
            if (++c < w->col1) continue;
            c = w->col0;
            if (++r < w->row1) continue;
            r = w->row0;
            n++;
        }
        tile.threes = tile.count == 1 ? 0 : (tile.count + THREE - 1) / THREE;
        compute_tile(&tile);
    } while (n < w->batch1);
}

#endif
