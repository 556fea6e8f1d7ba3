/* SPDX-License-Identifier: BSD-3-Clause */
/* Two views of memory: the CPU's, which the program writes, and the NPU's. Cache lines carry bytes between them. */
#include <string.h>

#include "model.h"

#define LINE NEUTRON_DEVICE_LINE_BYTES
#define WORD_LINES 64 /* the lines of one word of the bit map */

static bool is_stale(const Buffer *buffer, uint64_t line) {
    return (buffer->stale[line / WORD_LINES] >> line % WORD_LINES & 1) != 0;
}

/* The bytes from start that are in the same word of the bit map, at most to end. */
static uint64_t stretch(uint64_t start, uint64_t end) {
    const uint64_t next = (start / (LINE * WORD_LINES) + 1) * (LINE * WORD_LINES);
    return (next < end ? next : end) - start;
}

static void clean_line(Buffer *buffer, uint64_t line) {
    const uint64_t at = line * LINE;
    const uint64_t left = buffer->size - at;
    const size_t size = left < LINE ? (size_t)left : LINE;
    if (is_stale(buffer, line)) {
        memcpy(buffer->cpu + at, buffer->npu + at, size);
        buffer->stale[line / WORD_LINES] &= ~(UINT64_C(1) << line % WORD_LINES);
    } else {
        memcpy(buffer->npu + at, buffer->cpu + at, size);
    }
}

void clean(Buffer *buffer, Range range) {
    uint64_t at = range.start / LINE * LINE;
    uint64_t end = (range.start + range.size + LINE - 1) / LINE * LINE;
    end = end < buffer->size ? end : buffer->size;
    while (at < end) {
        const uint64_t size = stretch(at, end);
        if (buffer->stale[at / LINE / WORD_LINES] == 0) {
            memcpy(buffer->npu + at, buffer->cpu + at, (size_t)size);
        } else {
            for (uint64_t line = at / LINE; line * LINE < at + size; ++line)
                clean_line(buffer, line);
        }
        at += size;
    }
}

bool is_clean(const Buffer *buffer, Range range) {
    uint64_t at = range.start;
    const uint64_t end = range.start + range.size;
    while (at < end) {
        const uint64_t size = stretch(at, end);
        if (memcmp(buffer->cpu + at, buffer->npu + at, (size_t)size) != 0) {
            for (uint64_t byte = at; byte < at + size; ++byte)
                if (buffer->cpu[byte] != buffer->npu[byte] && !is_stale(buffer, byte / LINE))
                    return false;
        }
        at += size;
    }
    return true;
}
