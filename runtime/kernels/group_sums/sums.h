/* SPDX-License-Identifier: BSD-3-Clause */
/* Sums of groups of channels in memory: group_sums_s8 writes them, group_norm_by_sums_s8 adds and reads them. */
#ifndef NEUTRON_GROUP_SUMS_H
#define NEUTRON_GROUP_SUMS_H

#include "normalization.h"

/* The sums of a group, and the most blocks of rows whose sums are added up. Both sums of MOST_NORMALIZED elements fit 32 bits. */
typedef struct {
    int32_t sum, squares;
} NeutronGroupSums;

enum { MOST_BLOCKS = 64 };

/* The first column of the buffer has the sums of each of these groups side by side, for each block of rows. */
static inline bool neutron_holds_sums(const NeutronBuffer *sums, int32_t groups) {
    return sums->channel_pitch == 1 && sums->rows <= MOST_BLOCKS &&
           sums->channels >= (int64_t)groups * (int32_t)sizeof(NeutronGroupSums);
}

#endif
