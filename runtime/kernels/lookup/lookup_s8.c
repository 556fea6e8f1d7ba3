/* SPDX-License-Identifier: BSD-3-Clause */
/* Each element through a table of 256: LiteRT's operators of one int8 operand. */
#include "elements_avx2.h"
#include "elements_dsp.h"

bool lookup_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronLookupS8 *p = params_block;
    return neutron_window_buffer(program, p->input, false, window) != NULL &&
           neutron_window_buffer(program, p->output, true, window) != NULL &&
           neutron_range_is_sound(program, p->table_base, p->table_offset, 256, 1);
}

static void look_up_line(uint8_t *to, ptrdiff_t to_pitch, const uint8_t *from, ptrdiff_t from_pitch,
                         const uint8_t *table, int32_t count) {
    /* Stored value + 128 is the byte with its highest bit turned. */
#if NEUTRON_DSP
    if (to_pitch == 1 && from_pitch == 1) {
        for (; count >= 4; count -= 4, to += 4, from += 4) {
            const uint32_t word = neutron_load_word(from) ^ 0x80808080u;
            neutron_store_word(to, neutron_packed_bytes(table[word & 0xFFu], table[word >> 8 & 0xFFu],
                                                        table[word >> 16 & 0xFFu], table[word >> 24]));
        }
    }
#endif
    if (to_pitch == 1 && from_pitch == 1) {
        for (int32_t i = 0; i < count; i++) to[i] = table[from[i] ^ 0x80u];
    } else {
        for (int32_t i = 0; i < count; i++) to[i * to_pitch] = table[from[i * from_pitch] ^ 0x80u];
    }
}

#ifdef NEUTRON_AVX2
/* Sixteen entries of the table are one shuffle. Each shuffle gives the exclusive or of two neighbouring sixteenths, so that
 * all that an index passes on its way down cancel out but the last. A shuffle gives 0 for an index below 0: that is where
 * the ones after the last come to rest. */
NEUTRON_AVX2 static void look_up_line_avx2(uint8_t *to, ptrdiff_t to_pitch, const uint8_t *from, ptrdiff_t from_pitch,
                                           const uint8_t *table, int32_t count) {
    int32_t done = 0;
    if (to_pitch == 1 && from_pitch == 1 && count >= 64) {
        __m256i steps[16];
        __m128i before = _mm_setzero_si128();
        for (int i = 0; i < 16; i++) {
            /* In order of the unsigned byte: what the upper half of the table holds for 0 to 127 comes first. */
            const __m128i here = _mm_loadu_si128((const void *)(table + ((i * 16) ^ 0x80)));
            /* The second half of the indices starts anew, from 128 taken as 0. */
            steps[i] = _mm256_broadcastsi128_si256(i == 8 ? here : _mm_xor_si128(here, before));
            before = here;
        }
        const __m256i sixteen = _mm256_set1_epi8(16), half = _mm256_set1_epi8(-128);
        for (; done <= count - 32; done += 32) {
            const __m256i value = _mm256_loadu_si256((const void *)(from + done));
            __m256i low = value, high = _mm256_xor_si256(value, half), result = _mm256_shuffle_epi8(steps[0], low);
            __m256i upper = _mm256_shuffle_epi8(steps[8], high);
            for (int i = 1; i < 8; i++) {
                /* Saturating, so that what is below 0 stays there. */
                low = _mm256_subs_epi8(low, sixteen);
                high = _mm256_subs_epi8(high, sixteen);
                result = _mm256_xor_si256(result, _mm256_shuffle_epi8(steps[i], low));
                upper = _mm256_xor_si256(upper, _mm256_shuffle_epi8(steps[8 + i], high));
            }
            _mm256_storeu_si256((void *)(to + done), _mm256_or_si256(result, upper));
        }
    }
    look_up_line(to + done * to_pitch, to_pitch, from + done * from_pitch, from_pitch, table, count - done);
}
#endif

static NEUTRON_INLINE void look_up(const NeutronKernelCall *call, uint8_t *to, int32_t to_pitch, const uint8_t *from,
                                   int32_t from_pitch, int32_t length) {
    const NeutronLookupS8 *p = call->params;
    const uint8_t *table = neutron_base_address(call->bases, p->table_base) + p->table_offset;
    NEUTRON_FASTEST(look_up_line)(to, to_pitch, from, from_pitch, table, length);
}

void lookup_s8_run(const NeutronKernelCall *call) {
    const NeutronLookupS8 *p = call->params;
    neutron_copy_lines(call, p->input, p->output, look_up);
}
