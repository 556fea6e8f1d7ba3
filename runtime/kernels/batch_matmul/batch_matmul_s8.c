/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's reference_ops::BatchMatMul for int8 (reference/batch_matmul.h). */
#include "elements_dsp.h"
#include "matmul.h"

bool batch_matmul_s8_check(const NeutronProgramView *program, const void *params_block,
                           const NeutronWindowExtents *window) {
    const NeutronBatchMatmulS8 *p = params_block;
    const NeutronBuffer *out = neutron_window_buffer(program, p->output, true, window);
    return neutron_matmul_is_sound(program, p->input_a, p->input_b, out, p->depth, window) &&
           neutron_is_stored(p->a_zero_point) && neutron_is_stored(p->b_zero_point) &&
           neutron_shift_is_sound(p->output_shift) && neutron_is_stored(p->output_zero_point);
}

#if NEUTRON_DSP

/* Four columns of b are laid out once for all rows of a: for each four of the depth, and for each column, the pairs of
 * elements 0 and 2 and of 1 and 3, as a word of a widens to pairs. Where the depth is too large for that memory, its parts
 * are laid out again for each row. */
enum { COLUMNS = 4, PANEL_DEPTH = 192 }; /* of the panel; the depth is a multiple of 4 */

/* Four elements of a column, less the zero point. */
typedef union {
    int16_t numbers[4]; /* 0, 2, 1 and 3 */
    uint32_t pairs[2];
} Quad;

typedef struct {
    const NeutronKernelCall *call;
    const NeutronBatchMatmulS8 *p;
    const NeutronBuffer *a, *b, *out;
    uint32_t a_zero_points; /* less two */
    bool scale_fits;        /* else by `p` */
    NeutronDspScale scale;
    int32_t n, channel, columns; /* a batch, the first column and how many of the four there are */
    uint32_t sums[COLUMNS];
    Quad panel[PANEL_DEPTH / 4][COLUMNS];
} Product;

/* Depths [first, first + count) of the columns, less their zero point; 0 after the last depth. */
static void lay_out(Product *product, int32_t first, int32_t count) {
    static const uint8_t places[4] = {0, 2, 1, 3};
    const NeutronBuffer *b = product->b;
    const uint8_t *const plane = neutron_element_address(product->call->bases, b, product->n, 0, 0, product->channel);
    memset(product->panel, 0, (size_t)((count + 3) / 4) * sizeof product->panel[0]);
    for (int32_t k = 0; k < count; k++) {
        const uint8_t *from = plane + (ptrdiff_t)((first + k) % b->ring) * b->row_pitch;
        Quad *to = product->panel[k / 4];
        for (int32_t c = 0; c < product->columns; c++, from += b->channel_pitch, to++) {
            to->numbers[places[k % 4]] = (int16_t)((int8_t)*from - product->p->b_zero_point);
        }
    }
}

/* Adds the products of `count` elements of a row of a with the panel. */
static __attribute__((noinline)) void multiply(Product *product, const uint8_t *row, int32_t count) {
    const int32_t pitch = product->a->channel_pitch;
    const uint32_t zero_points = product->a_zero_points;
    const Quad *quad = product->panel[0];
    uint32_t sums[COLUMNS] = {product->sums[0], product->sums[1], product->sums[2], product->sums[3]};
    for (; count > 0; count -= 4, row += 4 * (ptrdiff_t)pitch) {
        const uint32_t word = pitch == 1 && count >= 4 ? neutron_load_word(row) : neutron_load_some_dsp(row, pitch, count);
        const uint32_t even = neutron_add_even_bytes(zero_points, word), odd = neutron_add_odd_bytes(zero_points, word);
        NEUTRON_UNROLL
        for (int c = 0; c < COLUMNS; c++, quad++) {
            sums[c] = neutron_add_products(sums[c], even, odd, quad->pairs[0], quad->pairs[1]);
        }
    }
    for (int c = 0; c < COLUMNS; c++) product->sums[c] = sums[c];
}

/* A sum whose scale does not fit, with the zero point. */
static __attribute__((noinline)) int32_t rescaled(const NeutronBatchMatmulS8 *p, int32_t sum) {
    return __qadd(neutron_requantize(sum, p->output_multiplier, p->output_shift), p->output_zero_point);
}

static void store(const Product *product, uint8_t *to) {
    const int32_t pitch = product->out->channel_pitch;
    int32_t x[COLUMNS];
    NEUTRON_UNROLL
    for (int c = 0; c < COLUMNS; c++) {
        const int32_t sum = (int32_t)product->sums[c];
        x[c] = product->scale_fits ? neutron_dsp_rounded_twice(sum, product->scale) : rescaled(product->p, sum);
    }
    const uint32_t word = neutron_stored_word(x[0], x[1], x[2], x[3]);
    neutron_store_four_dsp(to, pitch, word, product->columns);
}

static void compute_columns(Product *product) {
    const NeutronBatchMatmulS8 *p = product->p;
    const NeutronBases *bases = product->call->bases;
    const NeutronWindowExtents *w = &product->call->window;
    const bool whole = p->depth <= PANEL_DEPTH;
    const NeutronBuffer *a = product->a, *out = product->out;
    const uint8_t *const rows = neutron_element_address(bases, a, product->n, 0, 0, 0);
    uint8_t *const results = neutron_element_address(bases, out, product->n, 0, 0, product->channel);
    if (whole) lay_out(product, 0, p->depth);
    for (int32_t r = w->row0; r < w->row1; r++) {
        const uint8_t *row = rows + (ptrdiff_t)(r % a->ring) * a->row_pitch;
        product->sums[0] = product->sums[1] = product->sums[2] = product->sums[3] = 0;
        for (int32_t done = 0; done < p->depth; done += PANEL_DEPTH) {
            const int32_t count = p->depth - done < PANEL_DEPTH ? p->depth - done : PANEL_DEPTH;
            if (!whole) lay_out(product, done, count);
            multiply(product, row + (ptrdiff_t)done * a->channel_pitch, count);
        }
        store(product, results + (ptrdiff_t)(r % out->ring) * out->row_pitch);
    }
}

void batch_matmul_s8_run(const NeutronKernelCall *call) {
    const NeutronBatchMatmulS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    Product product;
    if (w->col0 >= w->col1) return;
    product.call = call;
    product.p = p;
    product.a = &call->buffers[p->input_a];
    product.b = &call->buffers[p->input_b];
    product.out = &call->buffers[p->output];
    product.a_zero_points = neutron_twice(-p->a_zero_point);
    product.scale_fits = neutron_dsp_scale_fits(p->output_multiplier, p->output_shift);
    if (product.scale_fits) {
        product.scale = neutron_dsp_scale(p->output_multiplier, p->output_shift, p->output_zero_point);
    }
    for (product.n = w->batch0; product.n < w->batch1; product.n++) {
        for (product.channel = w->channel0; product.channel < w->channel1; product.channel += COLUMNS) {
            product.columns = w->channel1 - product.channel < COLUMNS ? w->channel1 - product.channel : COLUMNS;
            compute_columns(&product);
        }
    }
}

#else

static NEUTRON_INLINE void multiply(const NeutronKernelCall *call, int32_t n, int32_t r, int32_t channel,
                                    const int32_t size) {
    const NeutronBatchMatmulS8 *p = call->params;
    const NeutronBuffer *a = &call->buffers[p->input_a], *b = &call->buffers[p->input_b];
    const NeutronBuffer *out = &call->buffers[p->output];
    const int32_t low = INT8_MIN - p->output_zero_point, high = INT8_MAX - p->output_zero_point;
    const uint8_t *left = neutron_element_address(call->bases, a, n, r, 0, 0);
    int32_t sums[NEUTRON_BLOCK] = {0};
    int8_t block[NEUTRON_BLOCK];
    for (int32_t k = 0; k < p->depth; k++) {
        const int32_t factor = (int8_t)left[(ptrdiff_t)k * a->channel_pitch] - p->a_zero_point;
        neutron_load_block(block, neutron_element_address(call->bases, b, n, k, 0, channel), b->channel_pitch, size);
        for (int32_t i = 0; i < size; i++) sums[i] += factor * (block[i] - p->b_zero_point);
    }
    for (int32_t i = 0; i < size; i++) {
        const int32_t rescaled = neutron_requantize(sums[i], p->output_multiplier, p->output_shift);
        block[i] = (int8_t)(neutron_bound(rescaled, low, high) + p->output_zero_point);
    }
    neutron_store_block(neutron_element_address(call->bases, out, n, r, 0, channel), out->channel_pitch, block, size);
}

NEUTRON_DEFINE_MATMUL(multiply)

void batch_matmul_s8_run(const NeutronKernelCall *call) { NEUTRON_FASTEST(matmul)(call); }

#endif
