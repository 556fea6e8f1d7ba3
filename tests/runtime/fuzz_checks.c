/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz_checks KERNEL_ID SEED COUNT CHANNELS_WORD: random buffer tables, parameter blocks and windows through a kernel's check, and what
 * it accepts through its run (half of them with the output's channels in one word, which some kernels ask for), with every base in memory of exactly its size. Built with the address and
 * undefined-behaviour sanitizers, which end the program where something is wrong. Prints how many were accepted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random_numbers.h"
#include "selection.h"

/* SELECTION: a file with the lines of kernels.def that are under test. */
#define NEUTRON_KERNEL NEUTRON_KERNEL_DECLARATION
#include SELECTION
#undef NEUTRON_KERNEL

#define NEUTRON_KERNEL NEUTRON_KERNEL_ENTRY
const NeutronKernel neutron_kernels[] = {
#include SELECTION
};
#undef NEUTRON_KERNEL

const uint32_t neutron_kernel_count = sizeof(neutron_kernels) / sizeof(neutron_kernels[0]);

enum { BUFFERS = 4, MOST_WORDS = 64 };

static int32_t below(int32_t end) { return (int32_t)(random_word() % (uint32_t)end); }

/* Mostly small, sometimes at the edges of something, seldom anything at all. */
static uint32_t word(void) {
    static const uint32_t edges[] = {0,      127,        128,        255,        256,        1u << 15,
                                     1u << 16, 1u << 20,   1u << 23,   1u << 30,   0x7FFFFFFFu, 0x80000000u,
                                     ~0u,    (uint32_t)-128, (uint32_t)-129, (uint32_t)-31, (uint32_t)-32, 31, 30};
    const uint32_t kind = random_word() % 64;
    if (kind == 0) return random_word();
    if (kind < 3) return edges[random_word() % (sizeof(edges) / sizeof(edges[0]))];
    if (kind < 10) return (uint32_t)-below(4);
    if (kind < 14) return random_word() % 64 * 4;
    return (uint32_t)below(4);
}

/* A buffer that a compiler might make, spoilt in one word of eight tables. */
static NeutronBuffer random_buffer(bool output) {
    NeutronBuffer b;
    static const uint32_t inputs[] = {0, 1 << 8, 2, 3, 4};
    b.base = output ? (below(4) ? NEUTRON_BASE_OUTPUT : NEUTRON_BASE_SCRATCH) : inputs[below(5)];
    b.offset = (uint32_t)below(8);
    b.batches = 1 + below(2);
    b.rows = 1 + below(6);
    b.cols = 1 + below(6);
    b.channels = 1 + below(below(4) ? 8 : 80);
    b.ring = below(3) ? b.rows : 1 + below(b.rows);
    b.cols_held = below(3) ? b.cols : 1 + below(b.cols);
    b.col0 = below(b.cols - b.cols_held + 1);
    b.channels_held = below(3) ? b.channels : 1 + below(b.channels);
    b.channel0 = below(b.channels - b.channels_held + 1);
    const bool crossed = below(4) == 0;
    b.channel_pitch = crossed ? b.cols_held : 1;
    b.col_pitch = crossed ? 1 : b.channels_held;
    b.row_pitch = b.cols_held * b.channels_held;
    b.batch_pitch = b.row_pitch * b.ring;
    if (below(4) == 0) b.row_pitch = 0;
    if (below(4) == 0) b.col_pitch = 0;
    if (below(8) == 0) b.channel_pitch = 0;
    if (below(8) == 0) {
        uint32_t words[sizeof(b) / 4];
        memcpy(words, &b, sizeof(b));
        words[random_word() % (sizeof(b) / 4)] = word();
        memcpy(&b, words, sizeof(b));
    }
    return b;
}

static bool random_window(const NeutronBuffer *output, NeutronWindowExtents *w) {
    int32_t *const first[] = {&w->batch0, &w->row0, &w->col0, &w->channel0};
    int32_t *const end[] = {&w->batch1, &w->row1, &w->col1, &w->channel1};
    const int32_t extents[] = {output->batches, output->rows, output->cols, output->channels};
    for (int i = 0; i < 4; i++) {
        *first[i] = below(2) ? 0 : below(extents[i]);
        *end[i] = below(2) ? extents[i] : *first[i] + 1 + below(extents[i] - *first[i]);
    }
    /* The driver bounds the length of a run; here a window is simply not tried where it would take long. */
    double size = 1;
    for (int i = 0; i < 4; i++) size *= *end[i] - *first[i];
    return size < 1e5;
}

static uint8_t *filled(uint32_t size) {
    uint8_t *memory = malloc(size);
    for (uint32_t i = 0; i < size; i++) memory[i] = (uint8_t)random_word();
    return memory;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    const NeutronKernel *kernel = NULL;
    for (uint32_t i = 0; i < neutron_kernel_count; i++) {
        if (neutron_kernels[i].id == strtoul(argv[1], NULL, 10)) kernel = &neutron_kernels[i];
    }
    if (kernel == NULL || kernel->params_words > MOST_WORDS) return 2;
    const unsigned long channels_word = strtoul(argv[4], NULL, 10);
    if (channels_word >= (unsigned long)kernel->params_words) return 2;
    seed_numbers(strtoull(argv[2], NULL, 10));
    long accepted = 0;
    for (long round = strtol(argv[3], NULL, 10); round > 0; round--) {
        NeutronBuffer buffers[BUFFERS];
        const NeutronBinding bindings[] = {{0, 0, 700}, {1 << 8, 0, 1500}, {1, 0, 1200}};
        const NeutronProgramView program = {buffers, BUFFERS, bindings, 2, 1, {1040, 1600, 1040, 0}};
        bool sound = true;
        for (int i = 0; i < BUFFERS; i++) {
            buffers[i] = random_buffer(i == BUFFERS - 1);
            sound = sound && neutron_buffer_is_sound(&program, &buffers[i]);
        }
        uint32_t params[MOST_WORDS];
        for (int i = 0; i < kernel->params_words; i++) params[i] = word();
        if (below(2)) params[channels_word] = (uint32_t)buffers[BUFFERS - 1].channels;
        params[kernel->output_word] = BUFFERS - 1;
        if (below(2)) {
            /* Two buffers of one shape are what most kernels ask for. */
            const uint32_t base = buffers[1].base, offset = buffers[1].offset;
            buffers[1] = buffers[0] = buffers[2];
            buffers[1].base = base;
            buffers[1].offset = offset;
            params[0] = (uint32_t)below(2);
            sound = sound && neutron_buffer_is_sound(&program, &buffers[1]);
        }
        NeutronWindowExtents window;
        if (!sound || !random_window(&buffers[params[kernel->output_word]], &window)) continue;
        if (!kernel->check(&program, params, &window)) continue;
        /* One element that averages a whole plane, or sums very many channels, would take long too. */
        const NeutronBuffer *input = &buffers[params[0]];
        if ((double)input->rows * input->cols * input->channels > 1e5) continue;
        accepted++;
        uint8_t *memory[6];
        const uint32_t sizes[6] = {bindings[0].size, bindings[1].size, bindings[2].size, 1040, 1600, 1040};
        for (int i = 0; i < 6; i++) memory[i] = filled(sizes[i]);
        const void *const inputs[] = {memory[0], memory[1]};
        void *const outputs[] = {memory[2]};
        NeutronBases bases = {inputs, outputs, {memory[3], memory[4], memory[5], NULL}};
        const NeutronKernelCall call = {params, buffers, &bases, window, NULL};
        kernel->run(&call);
        for (int i = 0; i < 6; i++) free(memory[i]);
    }
    printf("%ld\n", accepted);
    return 0;
}
