/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of NeutronMatmul.h, and the model's options and counts. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "device_model.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "model.h"

#define HEADER_BYTES 64
#define SLOT_BYTES (UINT64_C(512) << 20)
#define BUFFER_LIMIT (UINT64_C(7) << 29) /* 3.5 GiB */
#define MOST_BUFFERS 64
#define ALIGNMENT 16

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Options options = {.release = THIRD, .memory_bytes = UINT64_C(1) << 30};
static Buffer buffers[MOST_BUFFERS];
static NeutronDeviceCounts counted;
static char reason[160];
static char violation[160];
static bool configured;

static bool is(const char *a, const char *b) { return strcmp(a, b) == 0; }

/* The place of a value among names that end with NULL, or -1. */
static int place(const char *value, const char *const *names) {
    for (int i = 0; names[i] != NULL; ++i)
        if (is(value, names[i]))
            return i;
    return -1;
}

static bool set_locked(const char *name, const char *value) {
    static const char *const releases[] = {"first", "second", "third", NULL};
    static const char *const roundings[] = {"half_up", "half_even", "half_away", "truncate", "toward_zero", NULL};
    static const char *const zero_points[] = {"ignored", "added", NULL};
    static const char *const saturations[] = {"saturate", "wrap", NULL};
    static const char *const firmwares[] = {"none", "3.1.1", NULL};
    static const char *const inputs[] = {"required", "by_call", NULL};
    int i = -1;
    if (is(name, "release") && (i = place(value, releases)) >= 0)
        options.release = (enum release)i;
    else if (is(name, "rounding") && (i = place(value, roundings)) >= 0)
        options.rounding = (enum rounding)i;
    else if (is(name, "zero_point") && (i = place(value, zero_points)) >= 0)
        options.adds_zero_point = i == 1;
    else if (is(name, "saturation") && (i = place(value, saturations)) >= 0)
        options.wraps = i == 1;
    else if (is(name, "firmware") && (i = place(value, firmwares)) >= 0)
        options.has_faults = i == 1;
    else if (is(name, "clean_input") && (i = place(value, inputs)) >= 0)
        options.cleans_input = i == 1;
    if (is(name, "memory_mib")) {
        char *end;
        const unsigned long mib = strtoul(value, &end, 10);
        if (*value < '0' || *value > '9' || *end != '\0' || mib > 1 << 20)
            return false;
        options.memory_bytes = (uint64_t)mib << 20;
        i = 0;
    }
    return i >= 0;
}

/* Reads the environment variable, once. A part that is no option is reported on stderr: a test would not see it else. */
static void configure(void) {
    const char *text = configured ? NULL : getenv("NEUTRON_DEVICE_MODEL");
    configured = true;
    while (text != NULL && *text != '\0') {
        char part[64];
        const size_t length = strcspn(text, ",");
        snprintf(part, sizeof part, "%.*s", (int)(length < sizeof part ? length : sizeof part - 1), text);
        char *equals = strchr(part, '=');
        if (equals != NULL)
            *equals = '\0';
        if (equals == NULL || !set_locked(part, equals + 1))
            fprintf(stderr, "NEUTRON_DEVICE_MODEL: '%.*s' is no option of the device model\n", (int)length, text);
        text += length + (text[length] == ',');
    }
}

bool neutron_device_model_set(const char *name, const char *value) {
    pthread_mutex_lock(&lock);
    configure();
    const bool done = set_locked(name, value);
    pthread_mutex_unlock(&lock);
    return done;
}

void neutron_device_model_counts(NeutronDeviceCounts *counts) {
    pthread_mutex_lock(&lock);
    *counts = counted;
    pthread_mutex_unlock(&lock);
}

void neutron_device_model_reset(void) {
    pthread_mutex_lock(&lock);
    counted = (NeutronDeviceCounts){0};
    reason[0] = violation[0] = '\0';
    pthread_mutex_unlock(&lock);
}

const char *neutron_device_model_reason(void) { return reason; }

const char *neutron_device_model_violation(void) { return violation; }

static NeutronError refuse(const char *text, NeutronError error) {
    counted.refused += 1;
    snprintf(reason, sizeof reason, "%s", text);
    return error;
}

static void violate(uint64_t *count, const char *text) {
    *count += 1;
    snprintf(violation, sizeof violation, "job %llu: %s", (unsigned long long)counted.jobs, text);
}

static void *pages(uint64_t size) {
    void *start = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return start == MAP_FAILED ? NULL : start;
}

static uint64_t map_bytes(uint64_t size) { return (size / (NEUTRON_DEVICE_LINE_BYTES * 64) + 1) * 8; }

static void unmap(Buffer *buffer) {
    if (buffer->cpu != NULL)
        munmap(buffer->cpu, (size_t)buffer->size);
    if (buffer->npu != NULL)
        munmap(buffer->npu, (size_t)buffer->size);
    if (buffer->stale != NULL)
        munmap(buffer->stale, (size_t)map_bytes(buffer->size));
    *buffer = (Buffer){0};
}

/* The buffer that a range of the CPU's addresses lies in, and where; NULL: in none. */
static Buffer *find(const void *address, int64_t size, Range *range) {
    const uintptr_t start = (uintptr_t)address;
    for (int i = 0; i < MOST_BUFFERS; ++i) {
        const uintptr_t base = (uintptr_t)buffers[i].cpu;
        if (buffers[i].cpu != NULL && size >= 0 && start >= base && start - base <= buffers[i].size &&
            (uint64_t)size <= buffers[i].size - (start - base)) {
            *range = (Range){start - base, (uint64_t)size};
            return &buffers[i];
        }
    }
    return NULL;
}

NeutronError neutronInit(void) { return ENONE; }

NeutronError neutronDeinit(void) { return ENONE; }

static NeutronError allocate_locked(uint64_t size, void **pointer, bool userspace) {
    configure();
    uint64_t used = 0;
    Buffer *buffer = NULL;
    for (int i = 0; i < MOST_BUFFERS; ++i) {
        used += buffers[i].size;
        if (buffers[i].cpu == NULL)
            buffer = &buffers[i];
    }
    if (pointer == NULL || !userspace)
        return refuse("the pointer is null, or the buffer is not for user space", ENEUTRON_NULL);
    if (buffer == NULL)
        return refuse("the model has 64 buffers already", ENEUTRON_MEMORY);
    if (size == 0 || size > BUFFER_LIMIT || used + size > options.memory_bytes)
        return refuse("so much contiguous memory is not to be had", ENEUTRON_MEMORY);
    *buffer = (Buffer){pages(size), pages(size), pages(map_bytes(size)), size};
    if (buffer->cpu == NULL || buffer->npu == NULL || buffer->stale == NULL) {
        unmap(buffer);
        return refuse("the host has no memory for the model", ENEUTRON_MEMORY);
    }
    *pointer = buffer->cpu;
    return ENONE;
}

NeutronError allocateBuffer(uint64_t size, void **buffer, bool userspace) {
    pthread_mutex_lock(&lock);
    const NeutronError error = allocate_locked(size, buffer, userspace);
    pthread_mutex_unlock(&lock);
    return error;
}

NeutronError releaseBuffer(void *address) {
    Range range;
    pthread_mutex_lock(&lock);
    Buffer *buffer = find(address, 0, &range);
    NeutronError error = ENONE;
    if (buffer == NULL || range.start != 0)
        error = refuse("no buffer begins there", ENEUTRON_HANDLE);
    else
        unmap(buffer);
    pthread_mutex_unlock(&lock);
    return error;
}

NeutronError clean_cache(const void *address, int size) {
    Range range;
    pthread_mutex_lock(&lock);
    Buffer *buffer = find(address, size, &range);
    NeutronError error = ENONE;
    if (buffer == NULL) {
        error = refuse("the range is in no buffer", ENEUTRON_HANDLE);
    } else {
        counted.cleaned_bytes += range.size;
        clean(buffer, range);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static void check_reads(const Buffer *buffer, const Job *job) {
    const struct {
        const char *text;
        Range range;
    } reads[] = {{"A was written and not cleaned", job->a},
                 {"weights were written and not cleaned", job->weights},
                 {"the bias was written and not cleaned", job->bias},
                 {"factors were written and not cleaned", job->factors},
                 {"lengths of blocks were written and not cleaned", job->lengths},
                 {"decode biases were written and not cleaned", job->decode_biases},
                 {"decode scales were written and not cleaned", job->decode_scales},
                 {"the 16 bytes of 1 were written and not cleaned", job->ones}};
    for (size_t i = 0; i < sizeof reads / sizeof *reads; ++i)
        if (!is_clean(buffer, reads[i].range))
            violate(&counted.not_cleaned, reads[i].text);
}

/* The bytes that share a cache line with the ends of the result. */
static void check_ends(const Buffer *buffer, Range result) {
    const uint64_t line = NEUTRON_DEVICE_LINE_BYTES, end = result.start + result.size;
    const uint64_t first = result.start / line * line;
    uint64_t last = (end + line - 1) / line * line;
    last = last < buffer->size ? last : buffer->size;
    if (!is_clean(buffer, (Range){first, result.start - first}) || !is_clean(buffer, (Range){end, last - end}))
        violate(&counted.shared_lines, "bytes beside the result, in its cache lines, were written and not cleaned");
    if (!is_clean(buffer, result))
        counted.dirty_results += 1;
}

/* The CPU sees what the NPU wrote where the call's range has it; the lines of the rest are stale for it. */
static void show_result(Buffer *buffer, Range result, Range out) {
    const uint64_t line = NEUTRON_DEVICE_LINE_BYTES;
    if (result.start != out.start || result.size != out.size) {
        for (uint64_t i = result.start / line; i * line < result.start + result.size; ++i)
            if (i * line < out.start || (i + 1) * line > out.start + out.size)
                buffer->stale[i / 64] |= UINT64_C(1) << i % 64;
    }
    memcpy(buffer->cpu + out.start, buffer->npu + out.start, (size_t)out.size);
}

static NeutronError matmul_locked(const void *info, int info_size, const void *in, int in_size, const void *out,
                                  int out_size, int slot) {
    Range header = {0}, input = {0}, output = {0};
    Buffer *buffer = find(info, HEADER_BYTES, &header);
    if (info_size != HEADER_BYTES || buffer == NULL)
        return refuse("the header has not 64 bytes in a buffer", ENEUTRON_LAYOUT);
    if (header.start % ALIGNMENT != 0)
        return refuse("the header is not aligned to 16 bytes", ENEUTRON_ALIGNMENT);
    if (find(in, in_size, &input) != buffer || find(out, out_size, &output) != buffer)
        return refuse("A or the result is not in the header's buffer", ENEUTRON_BUFFER);
    if (slot < 0 || header.start / SLOT_BYTES != (uint64_t)slot)
        return refuse("the slot is not the 512 MiB that the header lies in", ENEUTRON_LAYOUT);
    clean(buffer, header);
    Job job;
    const char *text = read_job(buffer, header.start, &options, &job);
    if (text != NULL)
        return refuse(text, ENEUTRON_CALL);
    if (options.cleans_input)
        clean(buffer, input);
    check_reads(buffer, &job);
    check_ends(buffer, job.result);
    if (input.start != job.a.start || input.size != job.a.size || output.start != job.result.start ||
        output.size != job.result.size)
        violate(&counted.wrong_ranges, "the ranges in or out of matmul() are not those of the header");
    if (!compute(buffer, &job, &options))
        return refuse("the host has no memory for the model", ENEUTRON_MEMORY);
    show_result(buffer, job.result, output);
    counted.jobs += 1;
    counted.multiplications += (uint64_t)(job.m * job.k * job.n);
    return ENONE;
}

NeutronError matmul(const void *info, int info_size, const void *in, int in_size, const void *out, int out_size, int slot) {
    pthread_mutex_lock(&lock);
    const NeutronError error = matmul_locked(info, info_size, in, in_size, out, out_size, slot);
    pthread_mutex_unlock(&lock);
    return error;
}
