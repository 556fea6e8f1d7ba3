/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* posix_memalign */
#include "host_products.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The arithmetic of a job is that of the model of the NPU. */
#define JOB_LINKAGE static
#include "../../device_model/job.c"
#include "../../device_model/product.c"

enum { PAGE = 4096, WORDS = 16 };

/* The memory of a program begins with a page of its own, which has this. */
typedef struct Held {
    struct Held *next;
    Buffer buffer;
} Held;

static Held *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void *neutron_host_products_allocate(size_t size_bytes) {
    void *memory = NULL;
    if (size_bytes > SIZE_MAX - PAGE || posix_memalign(&memory, PAGE, PAGE + size_bytes) != 0) return NULL;
    memset(memory, 0, PAGE + size_bytes);
    uint8_t *start = (uint8_t *)memory + PAGE;
    Held *held = memory;
    held->buffer = (Buffer){start, start, NULL, size_bytes};
    pthread_mutex_lock(&lock);
    held->next = all;
    all = held;
    pthread_mutex_unlock(&lock);
    return start;
}

/* Returns the link to the memory that an address is in; the last link, which is NULL, where it is in none. */
static Held **link_of(const void *address) {
    Held **link = &all;
    while (*link != NULL) {
        const Buffer *buffer = &(*link)->buffer;
        const uintptr_t start = (uintptr_t)buffer->cpu, at = (uintptr_t)address;
        if (at >= start && at - start < buffer->size) break;
        link = &(*link)->next;
    }
    return link;
}

bool neutron_host_products_release(void *memory) {
    pthread_mutex_lock(&lock);
    Held **link = link_of(memory), *held = *link;
    if (held != NULL) *link = held->next;
    pthread_mutex_unlock(&lock);
    free(held);
    return held != NULL;
}

bool neutron_host_products_has(const void *address) {
    pthread_mutex_lock(&lock);
    const bool is_held = *link_of(address) != NULL;
    pthread_mutex_unlock(&lock);
    return is_held;
}

NeutronError neutron_host_product(const void *header) {
    pthread_mutex_lock(&lock);
    const Held *held = *link_of(header);
    const Buffer buffer = held != NULL ? held->buffer : (Buffer){0};
    pthread_mutex_unlock(&lock);
    if (held == NULL) return ENEUTRON_JOB;
    const uint64_t at = (uint64_t)((uintptr_t)header - (uintptr_t)buffer.cpu);
    if (buffer.size - at < WORDS * sizeof(int32_t)) return ENEUTRON_JOB;
    int32_t words[WORDS];
    memcpy(words, header, sizeof words);
    const bool is_int4 = words[12] == 4, is_third = is_int4 ? (words[4] & FORM_FLAG) != 0 : words[0] != 0;
    if (is_int4 && !is_third) return ENEUTRON_JOB;
    const Options options = {.release = is_third ? THIRD : SECOND, .rounding = HALF_UP};
    Job job;
    if (read_job(&buffer, at, &options, &job) != NULL) return ENEUTRON_JOB;
    return compute(&buffer, &job, &options) ? ENONE : ENEUTRON_MEMORY;
}
