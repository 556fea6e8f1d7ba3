/* SPDX-License-Identifier: BSD-3-Clause */
/* A file apart from check.c, so that an application of int8 kernels does not link these checks. */
#include "elements_16.h"

bool neutron_elements_are_sound(const NeutronProgramView *program, const NeutronBuffer *buffer, bool writable,
                                uint32_t element_bytes) {
    /* The driver has accepted the first byte of every element; a kernel's own sums stay inside an int32_t. */
    const uint64_t end = neutron_last_offset(buffer) + element_bytes;
    return end <= neutron_base_size(program, buffer->base, writable) && end <= INT32_MAX;
}

const NeutronBuffer *neutron_window_elements(const NeutronProgramView *program, uint32_t index, bool writable,
                                             const NeutronWindowExtents *window, uint32_t element_bytes) {
    const NeutronBuffer *buffer = neutron_window_buffer(program, index, writable, window);
    return buffer != NULL && neutron_elements_are_sound(program, buffer, writable, element_bytes) ? buffer : NULL;
}
