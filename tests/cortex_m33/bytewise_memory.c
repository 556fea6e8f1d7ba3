/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions that compilers call, byte by byte: the C library's read and write words at any address. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* No loop becomes a call of the function that it is in. */
#pragma GCC optimize("no-tree-loop-distribute-patterns")

void *memcpy(void *restrict to, const void *restrict from, size_t size) {
    uint8_t *restrict out = to;
    const uint8_t *restrict in = from;
    while (size-- > 0) *out++ = *in++;
    return to;
}

void *memset(void *to, int value, size_t size) {
    uint8_t *out = to;
    while (size-- > 0) *out++ = (uint8_t)value;
    return to;
}
