/* SPDX-License-Identifier: BSD-3-Clause */
/* Where random tensors lie: what of them is held, and with which pitches. */
#ifndef RANDOM_BUFFERS_H
#define RANDOM_BUFFERS_H

#include "kernel.h"
#include "random_numbers.h"

/* At least [first, end) of an axis is held, often all of `extent`. */
static inline void hold(int32_t *at, int32_t *count, int32_t first, int32_t end, int32_t extent) {
    *at = one_in(2) ? 0 : between(0, first);
    *count = (one_in(2) ? extent : between(end, extent)) - *at;
}

/* Pitches for what the buffer holds, mostly with channels innermost and often without gaps; axes that `may_repeat` have a
 * pitch of 0 now and then. Returns the bytes from the base to its end. */
static inline uint32_t lay_out(NeutronBuffer *b, bool may_repeat) {
    int32_t *const pitches[4] = {&b->channel_pitch, &b->col_pitch, &b->row_pitch, &b->batch_pitch};
    const int32_t extents[4] = {b->channels_held, b->cols_held, b->ring, b->batches};
    int order[4] = {0, 1, 2, 3};
    if (one_in(8)) {
        for (int i = 3; i > 0; i--) {
            const int j = between(0, i), other = order[i];
            order[i] = order[j];
            order[j] = other;
        }
    }
    int32_t pitch = one_in(12) ? 2 : 1;
    const bool gaps = one_in(2);
    int64_t last = b->offset;
    for (int i = 0; i < 4; i++) {
        const int d = order[i];
        const bool repeats = may_repeat && one_in(16);
        *pitches[d] = repeats ? 0 : pitch;
        last += repeats ? 0 : (int64_t)(extents[d] - 1) * pitch;
        pitch = repeats ? pitch : pitch * extents[d] + (gaps ? between(0, 5) : 0);
    }
    return (uint32_t)last + 1;
}

#endif
