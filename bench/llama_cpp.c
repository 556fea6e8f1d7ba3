/* SPDX-License-Identifier: BSD-3-Clause */
/* A product of llama.cpp's CPU kernels: BITS weights [outputs, inputs] in groups of 32, and rows of float32.
 *
 * The program makes the calls that ggml-cpu/repack.cpp makes for a matrix on a core with the dot product extension: rows are quantized four
 * together, or one by one where fewer are left, and multiplied by weights whose rows are interleaved by four. Calls of getppid mark the
 * quantization and the product (count_instructions.c). Some results are compared with a plain computation. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GROUP = 32, ROWS = 4, HALF_BYTES = 2, HALF_OF_1 = 0x3C00 };

void ggml_quantize_mat_q8_0_4x4(const float *x, void *to, int64_t k);
void quantize_row_q8_0(const float *x, void *to, int64_t k);

typedef void Multiply(int n, float *results, size_t pitch, const void *weights, const void *rows, int row_count, int columns);
Multiply ggml_gemv_q4_0_4x4_q8_0, ggml_gemm_q4_0_4x4_q8_0, ggml_gemv_q8_0_4x4_q8_0, ggml_gemm_q8_0_4x4_q8_0;

static int bits, inputs, outputs, tokens;
static size_t block_bytes; /* of a group of four rows of weights: their scales, then 4 columns of each row, the next 4 of each row, ... */

/* Weight (row, column); half of a group's columns are in the low nibbles, half in the high ones. */
static int weight(const uint8_t *weights, int row, int column) {
    const size_t block = (size_t)(row / ROWS) * (size_t)(inputs / GROUP) + (size_t)(column / GROUP);
    const uint8_t *values = weights + block * block_bytes + ROWS * HALF_BYTES;
    const int in_group = column % GROUP, half = in_group % (GROUP / 2), at = bits == 8 ? in_group : half;
    const uint8_t byte = values[at / 4 * 16 + row % ROWS * 4 + at % 4];
    if (bits == 8) return (int8_t)byte;
    return (((in_group < GROUP / 2 ? byte & 15 : byte >> 4) ^ 8) - 8);
}

static uint8_t *random_weights(void) {
    const size_t blocks = (size_t)(outputs / ROWS) * (size_t)(inputs / GROUP);
    uint8_t *weights = malloc(blocks * block_bytes);
    uint32_t random = 1;
    for (size_t block = 0; block < blocks; block++) {
        uint8_t *at = weights + block * block_bytes;
        for (size_t i = 0; i < block_bytes; i++) at[i] = (uint8_t)((random = random * 1664525u + 1013904223u) >> 24);
        for (int row = 0; row < ROWS; row++) memcpy(at + row * HALF_BYTES, &(uint16_t){HALF_OF_1}, HALF_BYTES);
    }
    return weights;
}

static int are_right(const float *results, const float *x, const uint8_t *weights) {
    for (int token = 0; token < tokens; token += 3) {
        for (int row = 0; row < outputs; row += 5) {
            double wanted = 0, magnitude = 0;
            for (int k = 0; k < inputs; k++) {
                const double product = weight(weights, row, k) * (double)x[(size_t)token * (size_t)inputs + (size_t)k];
                wanted += product;
                magnitude += fabs(product);
            }
            if (!(fabs(results[(size_t)token * (size_t)outputs + (size_t)row] - wanted) <= magnitude / 127)) return 0;
        }
    }
    return 1;
}

int main(int count, char **words) {
    if (count != 5) return 2;
    bits = atoi(words[1]), inputs = atoi(words[2]), outputs = atoi(words[3]), tokens = atoi(words[4]);
    block_bytes = ROWS * (HALF_BYTES + (size_t)(GROUP * bits / 8));
    const size_t row_bytes = (size_t)(inputs / GROUP) * (HALF_BYTES + GROUP), row_values = (size_t)inputs;
    const uint8_t *weights = random_weights();
    uint8_t *rows = malloc(row_bytes * (size_t)tokens);
    float *x = malloc(sizeof *x * row_values * (size_t)tokens), *results = malloc(sizeof *results * (size_t)outputs * (size_t)tokens);
    for (size_t i = 0; i < row_values * (size_t)tokens; i++) x[i] = (float)(i * 2654435761u % 1000) / 500.0f - 1.0f;
    const int together = tokens > 3 ? tokens - tokens % ROWS : 0;
    getppid();
    for (int i = 0; i < together; i += ROWS) ggml_quantize_mat_q8_0_4x4(x + (size_t)i * row_values, rows + (size_t)i * row_bytes, inputs);
    for (int i = together; i < tokens; i++) quantize_row_q8_0(x + (size_t)i * row_values, rows + (size_t)i * row_bytes, inputs);
    getppid();
    Multiply *const gemm = bits == 4 ? ggml_gemm_q4_0_4x4_q8_0 : ggml_gemm_q8_0_4x4_q8_0;
    Multiply *const gemv = bits == 4 ? ggml_gemv_q4_0_4x4_q8_0 : ggml_gemv_q8_0_4x4_q8_0;
    if (together > 0) gemm(inputs, results, (size_t)outputs, weights, rows, together, outputs);
    for (int i = together; i < tokens; i++) {
        gemv(inputs, results + (size_t)i * (size_t)outputs, (size_t)outputs, weights, rows + (size_t)i * row_bytes, 1, outputs);
    }
    getppid();
    if (are_right(results, x, weights)) return 0;
    fputs("the results are wrong\n", stderr);
    return 1;
}
