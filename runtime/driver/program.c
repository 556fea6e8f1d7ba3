/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of a program, for its validation and its runs: sections of the microcode, its checksum, kernels of operators, and
 * windows of calls. */
#include "driver.h"

const NeutronKernel *neutron_find_variant(uint32_t id, const NeutronBuffer *buffers, const void *params) {
    for (uint32_t i = 0; i < neutron_kernel_count; ++i) {
        const NeutronKernel *kernel = &neutron_kernels[i];
        if (kernel->id == id && (params == NULL || kernel->takes == NULL || kernel->takes(buffers, params))) return kernel;
    }
    return NULL;
}

void neutron_open(const void *microcode, NeutronOpened *opened) {
    const NeutronHeader *header = microcode;
    const uint32_t *words = microcode;
    opened->words = words;
    opened->header = header;
    opened->operators = words + header->operators_offset;
    opened->code = words + header->code_offset;
    opened->view.buffers = (const NeutronBuffer *)(const void *)(words + header->buffers_offset);
    opened->view.buffer_count = header->buffer_count;
    opened->view.bindings = (const NeutronBinding *)(const void *)(words + header->bindings_offset);
    opened->view.input_count = header->input_count;
    opened->view.output_count = header->output_count;
    opened->view.area_sizes[NEUTRON_AREA(NEUTRON_BASE_WEIGHTS)] = header->weights_size;
    opened->view.area_sizes[NEUTRON_AREA(NEUTRON_BASE_SCRATCH)] = header->scratch_size;
    opened->view.area_sizes[NEUTRON_AREA(NEUTRON_BASE_PREFETCH)] = header->prefetch_size;
    opened->view.area_sizes[NEUTRON_AREA(NEUTRON_BASE_STATE)] = header->state_size;
#if NEUTRON_REGIONS > 2
    opened->view.area_sizes[NEUTRON_AREA(NEUTRON_BASE_FAR)] = header->debug_size;
#endif
}

/* One copy of it for eight uses: 64-bit comparisons are long on 32-bit cores. */
__attribute__((noinline)) static int32_t clipped(int64_t value, int32_t extent) {
    if (value < 0) return 0;
    return value > extent ? extent : (int32_t)value;
}

bool neutron_call_window(uint32_t opcode, const void *fields, uint32_t iteration, const NeutronBuffer *output,
                         NeutronWindowExtents *window) {
    window->batch0 = window->row0 = window->col0 = window->channel0 = 0;
    window->batch1 = output->batches;
    window->row1 = output->rows;
    window->col1 = output->cols;
    window->channel1 = output->channels;
    if (opcode == NEUTRON_OP_ROWS || opcode == NEUTRON_OP_WINDOW) {
        const NeutronRows *rows = fields; /* WINDOW starts with the same fields */
        const int64_t moved = (int64_t)rows->step * iteration;
        window->row0 = clipped(rows->row0 + moved, output->rows);
        window->row1 = clipped(rows->row1 + moved, output->rows);
    }
    if (opcode == NEUTRON_OP_WINDOW) {
        const NeutronWindow *all = fields;
        window->batch0 = clipped(all->batch0, output->batches);
        window->batch1 = clipped(all->batch1, output->batches);
        window->col0 = clipped(all->col0, output->cols);
        window->col1 = clipped(all->col1, output->cols);
        window->channel0 = clipped(all->channel0, output->channels);
        window->channel1 = clipped(all->channel1, output->channels);
    }
    return window->batch0 < window->batch1 && window->row0 < window->row1 && window->col0 < window->col1 &&
           window->channel0 < window->channel1;
}

/* Four bits at a time: 64 bytes of table instead of the usual 1024. */
static const uint32_t crc_table[16] = {
    0x00000000u, 0x1DB71064u, 0x3B6E20C8u, 0x26D930ACu, 0x76DC4190u, 0x6B6B51F4u, 0x4DB26158u, 0x5005713Cu,
    0xEDB88320u, 0xF00F9344u, 0xD6D6A3E8u, 0xCB61B38Cu, 0x9B64C2B0u, 0x86D3D2D4u, 0xA00AE278u, 0xBDBDF21Cu,
};

static uint32_t with_byte(uint32_t crc, uint32_t byte) {
    crc ^= byte;
    crc = crc >> 4 ^ crc_table[crc & 0xFu];
    return crc >> 4 ^ crc_table[crc & 0xFu];
}

uint32_t neutron_microcode_crc(const void *microcode, uint32_t size_bytes) {
    const uint8_t *bytes = microcode;
    const uint32_t own = offsetof(NeutronHeader, microcode_crc);
    uint32_t crc = UINT32_MAX;
    for (uint32_t i = 0; i < size_bytes; ++i) crc = with_byte(crc, i - own < 4 ? 0 : bytes[i]);
    return ~crc;
}
