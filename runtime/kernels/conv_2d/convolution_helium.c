/* SPDX-License-Identifier: BSD-3-Clause */
/* Tiles of outputs for Helium: 3 pixels by two output channels in registers, or one pixel by four channels. */
#include "convolution_helium.h"

#if NEUTRON_HELIUM

enum { BLOCK_BYTES = NEUTRON_LANES * NEUTRON_LANES, PAIR_BYTES = 2 * BLOCK_BYTES };

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

/* Adds products for 3 pixels to the sums, [pixel][8 lanes]: two lanes at a time. */
static void multiply_pixels(int32_t *sums, const Products *products) {
    const int32_t blocks = products->blocks, lane0 = products->lane0 & -2;
    const int8_t *const first_inputs = products->inputs, *weights = products->weights + lane0 * NEUTRON_LANES;
    int32_t *now = sums + lane0, *const end = sums + products->lane1;
    for (uint32x4_t lane = places(weights, BLOCK_BYTES); now < end; lane = vaddq_n_u32(lane, 2 * NEUTRON_LANES)) {
        int32_t *const next = now + NEUTRON_LANES, *const last = next + NEUTRON_LANES;
        int32_t a = now[0], b = now[1], c = next[0], d = next[1], e = last[0], f = last[1], pairs = blocks / 2;
        const int8_t *inputs = first_inputs;
        uint32x4_t at = lane;
        for (bool odd = blocks % 2 != 0;; odd = false) {
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

/* Up to 3 pixels, or one pixel. */
typedef struct {
    const NeutronLayerHelium *layer;
    const NeutronPixelHelium *pixels;
    int32_t count, size; /* pixels to store, and pixels in the sums */
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

/* Bounds four lanes of a pixel and stores those of the predicate. */
typedef struct {
    int32x4_t low, high;
    int32_t zero_point, pitch;
    uint32_t lanes;
} Results;

static NEUTRON_INLINE void store_four(const Results *results, uint8_t *to, int32x4_t x) {
    x = vaddq_n_s32(vminq_s32(vmaxq_s32(x, results->low), results->high), results->zero_point);
    neutron_store_lanes_helium(to, results->pitch, x, results->lanes);
}

/* Stores lanes of 8 output channels, whose first channel is `offset` bytes behind the pixels' first ones. Sums are of all lanes. */
static __attribute__((noinline)) void store_lanes(const Tile *tile, const NeutronRequantBlock *table, uint32_t lanes,
                                                  ptrdiff_t offset, int32_t *sums) {
    const NeutronConv2dS8 *p = tile->layer->call->params;
    const int32_t zero_point = p->output_zero_point, count = tile->count;
    const bool once = p->single_rounding != 0;
    const Results results = {.low = vdupq_n_s32(p->clamp_min - zero_point),
                             .high = vdupq_n_s32(p->clamp_max - zero_point),
                             .zero_point = zero_point,
                             .pitch = tile->layer->call->buffers[p->output].channel_pitch};
    for (int32_t half = 0; half < NEUTRON_LANES; half += 4, lanes >>= 16, offset += 4 * results.pitch) {
        const NeutronPixelHelium *pixel = tile->pixels;
        const Results some = {results.low, results.high, zero_point, results.pitch, lanes};
        const int32_t *from = sums + half, *const end = from + count * NEUTRON_LANES;
        if (once) {
            rescale_once(sums + half, count, table->multiplier + half, table->shift + half);
            for (; from < end; from += NEUTRON_LANES, pixel++) store_four(&some, pixel->out + offset, vldrwq_s32(from));
            continue;
        }
        const NeutronScales scales = neutron_scales(table->multiplier + half, table->shift + half);
        for (; from < end; from += NEUTRON_LANES, pixel++) {
            store_four(&some, pixel->out + offset, neutron_requantize_helium(vldrwq_s32(from), &scales));
        }
    }
}

static void fill_tile(const Tile *tile, const NeutronPartHelium *part, int8_t *inputs) {
    const int32_t pitch = tile->size * NEUTRON_PIECE;
    for (int32_t i = 0; i < tile->size; i++) {
        /* Pixels past the last repeat it, and are not stored. */
        uint8_t *const to = (uint8_t *)inputs + i * NEUTRON_PIECE;
        if (part->count % 2 != 0) vstrbq_s8((int8_t *)to + (ptrdiff_t)(part->count / 2) * pitch, vdupq_n_s8(0));
        const NeutronPixelHelium *pixel = &tile->pixels[min_of(i, tile->count - 1)];
        tile->layer->fill(tile->layer, pixel, part, (NeutronPiecesHelium){to, pitch});
    }
}

/* Adds a part of the inputs to the output channels [channel, end), which are at most 32 and of one group; stores what is then complete. */
static void compute_channels(const Tile *tile, const NeutronPartHelium *part, const int8_t *inputs, int32_t *sums, int32_t channel,
                             int32_t end) {
    const NeutronLayerHelium *layer = tile->layer;
    const NeutronConv2dS8 *p = layer->call->params;
    const ptrdiff_t block_bytes = (ptrdiff_t)layer->blocks * BLOCK_BYTES;
    const int32_t pitch = layer->call->buffers[p->output].channel_pitch;
    const int32_t first = first_of_block(channel), block = (first - p->constant_channel0) / NEUTRON_LANES;
    const NeutronRequantBlock *table = neutron_requant_blocks(layer->call, p) + block;
    Products products = {.inputs = inputs, .blocks = part->count, .lane0 = channel - first};
    products.weights = neutron_packed_weights(layer->call, p) + block * block_bytes + (ptrdiff_t)part->first * BLOCK_BYTES;
    for (channel = first; channel < end; channel += NEUTRON_LANES, products.lane0 = 0) {
        products.lane1 = min_of(end - channel, NEUTRON_LANES);
        if (part->first == 0) set_sums(sums, table->bias, tile->size);
        (tile->size == 1 ? multiply_one : multiply_pixels)(sums, &products);
        if (part->first + part->count == layer->blocks) {
            store_lanes(tile, table, neutron_lanes_helium(products.lane0, products.lane1), (ptrdiff_t)channel * pitch, sums);
        }
        products.weights += block_bytes;
        sums += NEUTRON_LANES * tile->size;
        table++;
    }
}

/* All output channels. Inputs that fit into the buffer whole are laid out once for a group. */
static void compute_tile(const Tile *tile) {
    const NeutronLayerHelium *layer = tile->layer;
    const NeutronConv2dS8 *p = layer->call->params;
    const NeutronWindowExtents *w = &layer->call->window;
    const int32_t most = 2 * NEUTRON_PIECES_HELIUM / tile->size;
    int8_t inputs[NEUTRON_PIECES_HELIUM * NEUTRON_PIECE];
    int32_t sums[NEUTRON_CHANNELS_HELIUM * NEUTRON_PIXELS_HELIUM];
    NeutronPartHelium part = {.channel0 = -1};
    for (int32_t channel = w->channel0, end; channel < w->channel1; channel = end) {
        const int32_t group = channel / p->group_outputs, channel0 = group * p->group_inputs;
        end = min_of(first_of_block(channel) + NEUTRON_CHANNELS_HELIUM, w->channel1);
        end = min_of(end, (group + 1) * p->group_outputs);
        for (part.first = 0; part.first < layer->blocks; part.first += part.count) {
            if (layer->blocks > most || part.channel0 != channel0) {
                part.channel0 = channel0;
                part.count = min_of(layer->blocks - part.first, most);
                fill_tile(tile, &part, inputs);
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
    int32_t n = w->batch0, r = w->row0, c = w->col0;
    do {
        NeutronPixelHelium pixels[NEUTRON_PIXELS_HELIUM];
        Tile tile = {.layer = layer, .pixels = pixels};
        for (; tile.count < NEUTRON_PIXELS_HELIUM && n < w->batch1; tile.count++) {
            pixels[tile.count] = (NeutronPixelHelium){n, r * p->stride_h - p->pad_top, c * p->stride_w - p->pad_left,
                                                      first + neutron_offset_helium(output, n, r, c)};
            if (++c < w->col1) continue;
            c = w->col0;
            if (++r < w->row1) continue;
            r = w->row0;
            n++;
        }
        tile.size = tile.count == 1 ? 1 : NEUTRON_PIXELS_HELIUM;
        compute_tile(&tile);
    } while (n < w->batch1);
}

#endif
