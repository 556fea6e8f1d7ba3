/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "host_threads.h"

#ifdef NEUTRON_THREADS

#include <stdatomic.h>

#include "posix_threads.h"

/* How often a thread looks for work, or for the end of the parts, before it sleeps. Waking a thread takes longer than most calls. */
#ifndef NEUTRON_SPINS
#define NEUTRON_SPINS 2000
#endif

/* A thread with work. `taken` of `count` parts have begun, and `open` have not ended. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t work, done;
    pthread_t threads[NEUTRON_MAX_THREADS - 1];
    uint32_t thread_count;
    bool is_stopping;
    uint32_t count, taken;
    void (*part)(void *context, uint32_t number);
    void *context;
    atomic_uint waiting, open; /* parts that have not begun, and that have not ended */
    atomic_flag is_used; /* by a caller of neutron_host_threads_parallel */
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, .done = PTHREAD_COND_INITIALIZER, .is_used = ATOMIC_FLAG_INIT};

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Computes parts until all have begun. With the mutex held, before and after. */
static void compute_parts(void) {
    while (pool.taken < pool.count) {
        const uint32_t number = pool.taken++;
        void (*const part)(void *context, uint32_t number) = pool.part;
        void *const context = pool.context;
        atomic_fetch_sub_explicit(&pool.waiting, 1, memory_order_relaxed);
        pthread_mutex_unlock(&pool.mutex);
        part(context, number);
        pthread_mutex_lock(&pool.mutex);
        if (atomic_fetch_sub_explicit(&pool.open, 1, memory_order_release) == 1) pthread_cond_signal(&pool.done);
    }
}

static void *serve(void *unused) {
    (void)unused;
    pthread_mutex_lock(&pool.mutex);
    while (!pool.is_stopping) {
        compute_parts();
        pthread_mutex_unlock(&pool.mutex);
        for (int i = 0; i < NEUTRON_SPINS && atomic_load_explicit(&pool.waiting, memory_order_relaxed) == 0; ++i) pause_briefly();
        pthread_mutex_lock(&pool.mutex);
        if (pool.taken == pool.count && !pool.is_stopping) pthread_cond_wait(&pool.work, &pool.mutex);
    }
    pthread_mutex_unlock(&pool.mutex);
    return NULL;
}

void neutron_host_threads_parallel(uint32_t count, void (*part)(void *context, uint32_t number), void *context) {
    if (atomic_flag_test_and_set_explicit(&pool.is_used, memory_order_acquire)) {
        for (uint32_t number = 0; number < count; ++number) part(context, number);
        return;
    }
    pthread_mutex_lock(&pool.mutex);
    pool.part = part;
    pool.context = context;
    pool.count = count;
    pool.taken = 0;
    atomic_store_explicit(&pool.open, count, memory_order_relaxed);
    atomic_store_explicit(&pool.waiting, count, memory_order_relaxed);
    pthread_cond_broadcast(&pool.work);
    compute_parts();
    pthread_mutex_unlock(&pool.mutex);
    for (int i = 0; i < NEUTRON_SPINS && atomic_load_explicit(&pool.open, memory_order_relaxed) != 0; ++i) pause_briefly();
    pthread_mutex_lock(&pool.mutex);
    while (atomic_load_explicit(&pool.open, memory_order_relaxed) != 0) pthread_cond_wait(&pool.done, &pool.mutex);
    pthread_mutex_unlock(&pool.mutex);
    atomic_flag_clear_explicit(&pool.is_used, memory_order_release);
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
    pthread_mutex_lock(&pool.mutex);
    pool.is_stopping = true;
    const uint32_t count = pool.thread_count;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.mutex);
    for (uint32_t i = 0; i < count; ++i) pthread_join(pool.threads[i], NULL);
    pool.thread_count = 0;
    pool.is_stopping = false;
}

#endif
