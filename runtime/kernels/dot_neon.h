/* SPDX-License-Identifier: BSD-3-Clause */
/* The dot product extension of Armv8.2 (Arm DDI 0487, SDOT), in files that are compiled with it or without it. */
#ifndef NEUTRON_DOT_NEON_H
#define NEUTRON_DOT_NEON_H

#include <arm_neon.h>

#if defined(__ARM_FEATURE_DOTPROD)
#define NEUTRON_DOT_PRODUCT
static inline bool neutron_has_dot_product(void) { return true; }
#else
#ifdef __clang__
#define NEUTRON_DOT_PRODUCT __attribute__((target("dotprod")))
#else
#define NEUTRON_DOT_PRODUCT __attribute__((target("arch=armv8.2-a+dotprod")))
#endif
#ifdef __linux__
#include <sys/auxv.h>
/* HWCAP_ASIMDDP of Linux (arch/arm64/include/uapi/asm/hwcap.h). */
static inline bool neutron_has_dot_product(void) { return (getauxval(AT_HWCAP) >> 20 & 1) != 0; }
#else
static inline bool neutron_has_dot_product(void) { return false; }
#endif
#endif

/* Adds to each lane of `sums` the products of its 4 bytes of `weights` with the 4 bytes of lane `lane` of `inputs`. This is assembler text,
 * since clang 14 has the intrinsic in files alone that are compiled for the extension. */
#define NEUTRON_ADD_DOTS(sums, weights, inputs, lane) \
    __asm__("sdot %0.4s, %1.16b, %2.4b[" #lane "]" : "+w"(sums) : "w"(weights), "w"(inputs))
/* The same for the 4 bytes of the same lane. */
#define NEUTRON_ADD_DOTS_OF_LANES(sums, weights, inputs) \
    __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(sums) : "w"(weights), "w"(inputs))

#endif
