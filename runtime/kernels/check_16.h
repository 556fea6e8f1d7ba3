/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of buffers for kernels whose elements have more than one byte. */
#ifndef NEUTRON_CHECK_16_H
#define NEUTRON_CHECK_16_H

#include "elements.h"

/* Returns whether all bytes of the buffer's elements are inside its base. */
bool neutron_elements_are_sound(const NeutronProgramView *program, const NeutronBuffer *buffer, bool writable,
                                uint32_t element_bytes);

/* neutron_window_buffer() for elements of several bytes, all of which are inside the buffer's base. */
const NeutronBuffer *neutron_window_elements(const NeutronProgramView *program, uint32_t index, bool writable,
                                             const NeutronWindowExtents *window, uint32_t element_bytes);

#endif
