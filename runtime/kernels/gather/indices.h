/* SPDX-License-Identifier: BSD-3-Clause */
/* Indices that come with the data: int32 or int64, a channel for each byte. */
#ifndef NEUTRON_INDICES_H
#define NEUTRON_INDICES_H

#include "elements.h"

/* All bytes of the indices that a window names are in the buffer. */
static inline bool neutron_indices_are_sound(const NeutronBuffer *indices, int32_t col0, int32_t col1) {
    return (indices->channels == 4 || indices->channels == 8) &&
           neutron_buffer_holds(indices, col0, col1, 0, indices->channels);
}

/* The place among `count` that index (n, r, c) names, from the end where the index is below 0; -1, and the call's error, where it
 * names none. */
static inline int32_t neutron_index_at(const NeutronKernelCall *call, const NeutronBuffer *indices, int32_t n, int32_t r,
                                       int32_t c, int64_t count) {
    const uint8_t *bytes = neutron_element_address(call->bases, indices, n, r, c, 0);
    uint64_t value = 0;
    for (int32_t i = 0; i < indices->channels; i++) value |= (uint64_t)bytes[(ptrdiff_t)i * indices->channel_pitch] << 8 * i;
    int64_t index = indices->channels == 4 ? (int32_t)(uint32_t)value : (int64_t)value;
    if (index < 0) index += count;
    if (index >= 0 && index < count) return (int32_t)index;
    if (call->error != NULL) *call->error = ENEUTRON_INDEX;
    return -1;
}

#endif
