/* SPDX-License-Identifier: BSD-3-Clause */
/* Work of a kernel that divides a call itself: a list of items, each of which a thread takes as soon as it has ended the one before.
 *
 * Nothing about a result may depend on which thread computes an item, or on the order of items. A single thread computes them in turn, from
 * the first to the last; item 0 always begins first. Kernels without items in the microcode's sense are divided by driver/parts.c. */
#ifndef NEUTRON_SHARED_WORK_H
#define NEUTRON_SHARED_WORK_H

#include "kernel.h"

#ifdef NEUTRON_THREADS
#include <stdatomic.h>
#endif

/* Computes an item. No two calls at a time have the same `thread`, which is from 0 to the number of threads - 1. */
typedef void (*NeutronItem)(void *context, int32_t item, int32_t thread);

#ifdef NEUTRON_THREADS

typedef struct {
    NeutronItem compute;
    void *context;
    int32_t count;
    atomic_int next;
} NeutronItems;

static inline void neutron_compute_items(void *context, uint32_t thread) {
    NeutronItems *items = context;
    for (;;) {
        const int32_t item = atomic_fetch_add(&items->next, 1);
        if (item >= items->count) return;
        items->compute(items->context, item, (int32_t)thread);
    }
}

/* The threads for work of so many input elements, counted as for neutronSetThreads. */
static inline int32_t neutron_threads_for(const NeutronKernelCall *call, uint64_t work) {
    const NeutronThreads *threads = call->threads;
    return threads == NULL || threads->count < 2 || work < threads->leastWork ? 1 : (int32_t)threads->count;
}

/* Computes items 0 to count - 1 in up to so many threads, a number that neutron_threads_for has returned, or a smaller one. */
static inline void neutron_share(const NeutronKernelCall *call, int32_t threads, int32_t count, NeutronItem compute, void *context) {
    if (threads > count) threads = count;
    if (threads < 2) {
        for (int32_t item = 0; item < count; item++) compute(context, item, 0);
        return;
    }
    NeutronItems items = {.compute = compute, .context = context, .count = count};
    atomic_init(&items.next, 0);
    call->threads->parallel((uint32_t)threads, neutron_compute_items, &items);
}

#else

static inline int32_t neutron_threads_for(const NeutronKernelCall *call, uint64_t work) {
    (void)call, (void)work;
    return 1;
}

static inline void neutron_share(const NeutronKernelCall *call, int32_t threads, int32_t count, NeutronItem compute, void *context) {
    (void)call, (void)threads;
    for (int32_t item = 0; item < count; item++) compute(context, item, 0);
}

#endif

#endif
