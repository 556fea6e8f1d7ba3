/* SPDX-License-Identifier: BSD-3-Clause */
/* Random numbers that are the same on every machine and in every build: splitmix64. */
#ifndef RANDOM_NUMBERS_H
#define RANDOM_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

static uint64_t random_state;

/* A sequence for each seed. (Those of states that differ by a few times the sum's constant are one sequence, shifted.) */
static inline void seed_numbers(uint64_t seed) { random_state = seed * UINT64_C(0xD1342543DE82EF95); }

static inline uint32_t random_word(void) {
    uint64_t z = (random_state += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)((z ^ (z >> 31)) >> 16);
}

/* low to high, both included. */
static inline int32_t between(int32_t low, int32_t high) {
    return low + (int32_t)(random_word() % (uint32_t)(high - low + 1));
}
static inline bool one_in(int32_t n) { return between(1, n) == 1; }

#endif
