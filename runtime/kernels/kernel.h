/* SPDX-License-Identifier: BSD-3-Clause */
/* The contract between the driver and the kernels.
 *
 * A kernel NAME of kernels.def is two functions: NAME_check(), which the driver calls once at prepare for every call in
 * the microcode, and NAME_run(), which trusts what check accepted. Both see the parameter block as its struct of
 * neutron_isa.h, straight from the microcode.
 *
 * check returns true only when a run of this window can neither read nor write outside the buffers' memory, divide by
 * zero, shift by too much, or loop for longer than the output's extents say. It must hold for any 32-bit words.
 * The driver has already checked every buffer of the table by itself (neutron_buffer_is_sound) and clipped the window
 * to the output's extents.
 *
 * A kernel may have variants (rows.py says which calls each takes): NAME_run_VARIANT() is the code of NAME_run() for those
 * calls, and is all of it that a program without others needs. A file that has several is compiled with
 * -ffunction-sections, so that the linker drops what a kernel selection does not name.
 */
#ifndef NEUTRON_KERNEL_H
#define NEUTRON_KERNEL_H

#if defined(__ARM_ARCH_PROFILE)
#if __ARM_ARCH_PROFILE == 'M'
#define NEUTRON_MICROCONTROLLER
#endif
#endif

/* A file of functions that are all NEUTRON_SMALL says so before it includes anything: gcc makes them smaller by these options than
 * by their attribute, which leaves its other ways of going from block to block. */
#if defined(NEUTRON_SMALL_FILE) && defined(NEUTRON_MICROCONTROLLER) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("Os", "no-schedule-insns", "no-shrink-wrap", "code-hoisting", "reorder-blocks-algorithm=simple")
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "NeutronDriver.h"
#include "NeutronErrors.h"
#include "neutron_isa.h"

#define NEUTRON_INLINE inline __attribute__((always_inline))

/* NEUTRON_SMALL: a function that runs once for a model, a call or a window, and on a microcontroller is made small at every level of
 * optimization, with what it alone calls. NEUTRON_SMALL_RUN: the same of code of kernels that is a small part of a network's
 * instructions, where there are no vectors; clang's minsize would call the C library for 64-bit shifts in it. */
#ifndef NEUTRON_MICROCONTROLLER
#define NEUTRON_SMALL
#elif defined(__clang__)
#define NEUTRON_SMALL __attribute__((cold, minsize))
#else
#define NEUTRON_SMALL __attribute__((cold))
#endif
#if defined(NEUTRON_MICROCONTROLLER) && !defined(__ARM_FEATURE_MVE)
#define NEUTRON_SMALL_RUN __attribute__((cold))
#else
#define NEUTRON_SMALL_RUN
#endif

/* Checked by every compiler for C11. The runtime is C99, which has no such checks. */
#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define NEUTRON_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#else
#define NEUTRON_STATIC_ASSERT(condition, text) struct NeutronUnchecked
#endif

/* Output window [batch0, batch1) x [row0, row1) x [col0, col1) x [channel0, channel1), inside the output's extents. */
typedef struct {
    int32_t batch0, batch1, row0, row1, col0, col1, channel0, channel1;
} NeutronWindowExtents;

/* The loop that follows for each row r of each batch n. */
#define NEUTRON_FOR_EACH_ROW(window, n, r)                            \
    for (int32_t n = (window)->batch0; n < (window)->batch1; n++)     \
        for (int32_t r = (window)->row0; r < (window)->row1; r++)

/* The place of a base other than an input or output among the areas of memory. */
#define NEUTRON_AREA(kind) ((kind)-NEUTRON_BASE_WEIGHTS)
#if NEUTRON_REGIONS > 2
#define NEUTRON_LAST_BASE NEUTRON_BASE_FAR
#else
#define NEUTRON_LAST_BASE NEUTRON_BASE_STATE
#endif
#ifdef NEUTRON_THREADS
#define NEUTRON_AREA_COUNT (NEUTRON_AREA(NEUTRON_LAST_BASE) + 2) /* the last one: scratch of a thread (driver/parts.c) */
#else
#define NEUTRON_AREA_COUNT (NEUTRON_AREA(NEUTRON_LAST_BASE) + 1)
#endif

#define NEUTRON_CHANNELS 16u

/* The addresses of the bases in this run, and the run's transfers. */
typedef struct {
    const void *const *inputs;
    void *const *outputs;
    uint8_t *areas[NEUTRON_AREA_COUNT]; /* by NEUTRON_AREA of the base's kind; the weights are never written */
    NeutronConfig config; /* a copy, made when the run begins */
    uint32_t channels_open; /* a bit for each channel with transfers that were not waited for */
} NeutronBases;

/* The facts about the program for check. Sizes are bytes. */
typedef struct {
    const NeutronBuffer *buffers;
    uint32_t buffer_count;
    const NeutronBinding *bindings; /* inputs first, then outputs */
    uint32_t input_count, output_count;
    uint32_t area_sizes[NEUTRON_AREA_COUNT]; /* by NEUTRON_AREA of the base's kind */
} NeutronProgramView;

/* The size of the memory of a base other than an input or output. */
static inline uint32_t neutron_area_size(const NeutronProgramView *program, uint32_t kind) {
    return program->area_sizes[NEUTRON_AREA(kind)];
}

typedef struct {
    const void *params;
    const NeutronBuffer *buffers;
    NeutronBases *bases;
    NeutronWindowExtents window;
    /* Where a kernel whose indices come with the data says that one of them names nothing: the run then ends with this
     * error. NULL: nobody asks. Every address stays inside the buffers all the same. */
    NeutronError *error;
#ifdef NEUTRON_THREADS
    const NeutronThreads *threads; /* for a kernel that divides its work itself (shared_work.h); NULL: none */
#endif
} NeutronKernelCall;

typedef bool (*NeutronKernelCheck)(const NeutronProgramView *program, const void *params,
                                   const NeutronWindowExtents *window);
typedef void (*NeutronKernelRun)(const NeutronKernelCall *call);
/* Returns whether a variant of a kernel takes a call that check has accepted. */
typedef bool (*NeutronKernelTakes)(const NeutronBuffer *buffers, const void *params);

/* takes: NULL where run takes every call. Entries of one id are variants of one kernel and differ in takes and run alone;
 * the first that takes a call runs it. output_word: the parameter word that holds the output buffer's index. taps_words: the
 * product of the words whose bits are set is how many input elements one output element takes; with
 * NEUTRON_TAPS_INPUT_PLANE, times the rows and columns of the buffer in word 0. */
typedef struct {
    uint16_t id;
    uint8_t params_words;
    uint8_t output_word;
    uint32_t taps_words;
    NeutronKernelTakes takes;
    NeutronKernelCheck check;
    NeutronKernelRun run;
} NeutronKernel;

#define NEUTRON_TAPS_INPUT_PLANE 0x80000000u

/* The functions of all kernels, and of their variants. */
#define NEUTRON_KERNEL_DECLARATION(id, name, params, taps)                                                             \
    NEUTRON_SMALL bool name##_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window); \
    void name##_run(const NeutronKernelCall *call);

#define NEUTRON_KERNEL NEUTRON_KERNEL_DECLARATION
#define NEUTRON_VARIANT(id, name, variant, ...) void name##_run_##variant(const NeutronKernelCall *call);
#include "kernels.def"
#undef NEUTRON_KERNEL
#undef NEUTRON_VARIANT

/* The registered kernels. The library's own definition is weak: a generated kernel selection takes its place. */
extern const NeutronKernel neutron_kernels[];
extern const uint32_t neutron_kernel_count;

/* ---- for check ---------------------------------------------------------------------------------------------------- */

/* Bytes of a base; 0 where the base word names none. `writable`: WEIGHTS and INPUT do not count. */
NEUTRON_SMALL uint32_t neutron_base_size(const NeutronProgramView *program, uint32_t base, bool writable);

/* Every element (n, r, c, k) of the columns and channels that the buffer holds is inside its base; extents are positive,
 * pitches are not negative, and no sum overflows. */
NEUTRON_SMALL bool neutron_buffer_is_sound(const NeutronProgramView *program, const NeutronBuffer *buffer);

/* The buffer at `index`, or NULL where there is none (or it is not writable though `writable` asks for it). */
NEUTRON_SMALL const NeutronBuffer *neutron_checked_buffer(const NeutronProgramView *program, uint32_t index, bool writable);

/* Columns [col0, col1) and channels [channel0, channel1) are held by the buffer. Empty ranges are. */
NEUTRON_SMALL bool neutron_buffer_holds(const NeutronBuffer *buffer, int32_t col0, int32_t col1, int32_t channel0, int32_t channel1);

/* [offset, offset + size) is inside the base, and offset is a multiple of `alignment` (a power of two). */
NEUTRON_SMALL bool neutron_range_is_sound(const NeutronProgramView *program, uint32_t base, uint32_t offset, uint64_t size,
                            uint32_t alignment);

/* ---- for run ------------------------------------------------------------------------------------------------------ */

/* The address of a base in this run. */
static inline uint8_t *neutron_base_address(const NeutronBases *bases, uint32_t base) {
    const uint32_t index = base >> 8;
    switch (base & 0xFFu) {
        case NEUTRON_BASE_INPUT:
            /* An input is never written: check asks for writable buffers where a kernel writes. */
            return (uint8_t *)(uintptr_t)bases->inputs[index];
        case NEUTRON_BASE_OUTPUT:
            return (uint8_t *)bases->outputs[index];
        default:
            return bases->areas[NEUTRON_AREA(base)]; /* their base words have no index */
    }
}

/* The address of element (n, r, 0, 0) as if the buffer held column 0 and channel 0: add c * col_pitch and
 * k * channel_pitch of what it does hold. */
static inline uint8_t *neutron_row_address(const NeutronBases *bases, const NeutronBuffer *buffer, int32_t n,
                                           int32_t r) {
    uint8_t *base = neutron_base_address(bases, buffer->base) + buffer->offset;
    const ptrdiff_t held = (ptrdiff_t)buffer->col0 * buffer->col_pitch + (ptrdiff_t)buffer->channel0 * buffer->channel_pitch;
    return base + (ptrdiff_t)n * buffer->batch_pitch + (ptrdiff_t)(r % buffer->ring) * buffer->row_pitch - held;
}

/* ---- fixed point, as LiteRT's reference kernels round it ------------------------------------------------------------ */

/* round(a * b / 2^31), halves up, for any two but both INT32_MIN: what gemmlowp's SaturatingRoundingDoublingHighMul gives,
 * trunc((p + nudge) / 2^31) of the product p. From 0 up its nudge is 2^30 and trunc is floor; below 0 its nudge is 1 - 2^30,
 * the sum is not above 0, trunc is ceil, and ceil(x / 2^31) = floor((x + 2^31 - 1) / 2^31): 2^30 is added there too. */
static inline int32_t neutron_high_mul(int32_t a, int32_t b) {
    return (int32_t)((uint64_t)((int64_t)a * b + (INT64_C(1) << 30)) >> 31);
}

/* neutron_high_mul() of any two numbers: saturates the one overflow. */
static inline int32_t neutron_doubling_high_mul(int32_t a, int32_t b) {
    return a == INT32_MIN && b == INT32_MIN ? INT32_MAX : neutron_high_mul(a, b);
}

/* round(x / 2^exponent), ties away from zero; exponent 0 to 31. gemmlowp's RoundingDivideByPOT, from the magnitude, to
 * which half the divisor can be added without an overflow. */
static NEUTRON_INLINE int32_t neutron_rounding_shift_right(int32_t x, int32_t exponent) {
    const uint32_t sign = (uint32_t)(x >> 31), half = (UINT32_C(1) << exponent) >> 1;
    const uint32_t magnitude = ((uint32_t)x ^ sign) - sign;
    return (int32_t)((((magnitude + half) >> exponent) ^ sign) - sign);
}

/* x * multiplier * 2^(shift - 31), rounded as LiteRT's MultiplyByQuantizedMultiplier (double rounding); shift -31 to 30.
 * The left shift wraps where LiteRT's would overflow. */
static inline int32_t neutron_requantize(int32_t x, int32_t multiplier, int32_t shift) {
    const int32_t left = shift > 0 ? shift : 0;
    const int32_t right = shift > 0 ? 0 : -shift;
    const int32_t shifted = (int32_t)((uint32_t)x << left);
    return neutron_rounding_shift_right(neutron_doubling_high_mul(shifted, multiplier), right);
}

static inline bool neutron_shift_is_sound(int32_t shift) { return shift >= -31 && shift <= 30; }

#endif
