/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of a program, for its validation and its runs: sections of the microcode, and the kernels of operators. */
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
    opened->view.weights_size = header->weights_size;
    opened->view.scratch_size = header->scratch_size;
    opened->view.prefetch_size = header->prefetch_size;
}
