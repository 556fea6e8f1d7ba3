/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "host_threads.h"

#ifdef NEUTRON_THREADS

#include <stdatomic.h>

#include "posix_threads.h"

/* How often a thread looks for parts, or for the end of the last one, before it sleeps: some microseconds. To wake it takes longer than many
 * calls. */
#ifndef NEUTRON_SPINS
#define NEUTRON_SPINS 2000
#endif

typedef void (*Part)(void *context, uint32_t number);

/* A ticket: the parts that have begun in bits 0 to 15, their number in bits 16 to 31, and the call in bits 32 to 63. It changes as a whole,
 * so that a thread that takes a part of a call has read the function and the context of the same call: both stay until all parts have
 * ended. */
static struct {
    _Atomic(uint64_t) ticket;
    _Atomic(Part) part;
    _Atomic(void *) context;
    atomic_uint open; /* parts that have not ended */
    atomic_flag is_used; /* by a caller of neutron_host_threads_parallel */
    atomic_uint sleepers; /* threads that wait for `work` */
    atomic_bool caller_sleeps; /* until `done` */
    atomic_bool is_stopping;
    pthread_mutex_t mutex;
    pthread_cond_t work, done;
    pthread_t threads[NEUTRON_MAX_THREADS - 1];
    uint32_t thread_count;
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER,
          .work = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER,
          .is_used = ATOMIC_FLAG_INIT};

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool has_parts(void) {
    const uint64_t ticket = atomic_load(&pool.ticket);
    return (ticket & 0xFFFF) < (ticket >> 16 & 0xFFFF);
}

/* Computes parts until all have begun. */
static void compute_parts(void) {
    uint64_t ticket = atomic_load(&pool.ticket);
    while ((ticket & 0xFFFF) < (ticket >> 16 & 0xFFFF)) {
        const Part part = atomic_load(&pool.part);
        void *const context = atomic_load(&pool.context);
        if (!atomic_compare_exchange_strong(&pool.ticket, &ticket, ticket + 1)) continue;
        part(context, (uint32_t)(ticket & 0xFFFF));
        if (atomic_fetch_sub(&pool.open, 1) == 1 && atomic_load(&pool.caller_sleeps)) {
            pthread_mutex_lock(&pool.mutex);
            pthread_cond_signal(&pool.done);
            pthread_mutex_unlock(&pool.mutex);
        }
        ticket = atomic_load(&pool.ticket);
    }
}

static void *serve(void *unused) {
    (void)unused;
    while (!atomic_load(&pool.is_stopping)) {
        compute_parts();
        for (int i = 0; i < NEUTRON_SPINS && !has_parts(); ++i) pause_briefly();
        if (has_parts()) continue;
        pthread_mutex_lock(&pool.mutex);
        atomic_fetch_add(&pool.sleepers, 1); /* before the look at the ticket, which a caller changes before its look at this */
        while (!has_parts() && !atomic_load(&pool.is_stopping)) pthread_cond_wait(&pool.work, &pool.mutex);
        atomic_fetch_sub(&pool.sleepers, 1);
        pthread_mutex_unlock(&pool.mutex);
    }
    return NULL;
}

static void wait_for_the_others(void) {
    for (int i = 0; i < NEUTRON_SPINS && atomic_load(&pool.open) != 0; ++i) pause_briefly();
    if (atomic_load(&pool.open) == 0) return;
    pthread_mutex_lock(&pool.mutex);
    atomic_store(&pool.caller_sleeps, true);
    while (atomic_load(&pool.open) != 0) pthread_cond_wait(&pool.done, &pool.mutex);
    atomic_store(&pool.caller_sleeps, false);
    pthread_mutex_unlock(&pool.mutex);
}

void neutron_host_threads_parallel(uint32_t count, Part part, void *context) {
    if (atomic_flag_test_and_set(&pool.is_used)) {
        for (uint32_t number = 0; number < count; ++number) part(context, number);
        return;
    }
    atomic_store(&pool.part, part);
    atomic_store(&pool.context, context);
    atomic_store(&pool.open, count);
    atomic_store(&pool.ticket, ((atomic_load(&pool.ticket) >> 32) + 1) << 32 | (uint64_t)count << 16);
    if (atomic_load(&pool.sleepers) > 0) {
        pthread_mutex_lock(&pool.mutex);
        pthread_cond_broadcast(&pool.work);
        pthread_mutex_unlock(&pool.mutex);
    }
    compute_parts();
    wait_for_the_others();
    atomic_flag_clear(&pool.is_used);
}

/* Starts the threads that the pool lacks; false where one cannot be started. */
static bool start(uint32_t count) {
    bool is_started = true;
    pthread_mutex_lock(&pool.mutex);
    while (is_started && pool.thread_count < count) {
        is_started = pthread_create(&pool.threads[pool.thread_count], NULL, serve, NULL) == 0;
        if (is_started) ++pool.thread_count;
    }
    pthread_mutex_unlock(&pool.mutex);
    return is_started;
}

NeutronError neutron_host_threads_set(NeutronModelHandle handle, uint32_t count, void *scratch, size_t scratch_size) {
    if (count > NEUTRON_MAX_THREADS) count = NEUTRON_MAX_THREADS;
    const NeutronThreads threads = {count, 0, neutron_host_threads_parallel, scratch, scratch_size};
    const NeutronError error = neutronSetThreads(handle, &threads);
    if (error != ENONE) return error;
    return count < 2 || start(count - 1) ? ENONE : ENEUTRON_MEMORY;
}

void neutron_host_threads_stop(void) {
    atomic_store(&pool.is_stopping, true);
    pthread_mutex_lock(&pool.mutex);
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.mutex);
    for (uint32_t i = 0; i < pool.thread_count; ++i) pthread_join(pool.threads[i], NULL);
    pool.thread_count = 0;
    atomic_store(&pool.is_stopping, false);
}

#endif
