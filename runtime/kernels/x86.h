/* SPDX-License-Identifier: BSD-3-Clause */
/* The intrinsic functions of AVX2 and of what came before it. */
#ifndef NEUTRON_X86_H
#define NEUTRON_X86_H

/* <immintrin.h> has 40 later extensions too, which take gcc 0.2 s to read for each source. It includes the headers below once its
 * own guard is defined. NEUTRON_NARROW_INTRINSICS: the build has tried that the compiler takes them so (CMakeLists.txt). */
#if defined(NEUTRON_NARROW_INTRINSICS)
#if defined(__clang__)
#define __IMMINTRIN_H
#else
#define _IMMINTRIN_H_INCLUDED
#endif
#include <smmintrin.h>
#include <avxintrin.h>
#include <avx2intrin.h>
#else
#include <immintrin.h>
#endif

#endif
