/* SPDX-License-Identifier: BSD-3-Clause */
/* Element by element from view to view, in ascending order of batch, row and column: whatever moves values. */
#include "elements.h"

bool copy_s8_check(const NeutronProgramView *program, const void *params_block, const NeutronWindowExtents *window) {
    const NeutronCopyS8 *p = params_block;
    return neutron_window_buffer(program, p->input, false, window) != NULL &&
           neutron_window_buffer(program, p->output, true, window) != NULL;
}

/* Side of the squares that a transposition goes by, so that lines of a cache are used up before they are evicted. */
enum { TILE = 16 };

#ifdef __SSE2__
#include <emmintrin.h>

/* TILE rows of TILE bytes, rows and columns changed over. Four times over, interleaving the first half of the rows with the
 * second moves one bit of the row's number to the end of the column's. */
static void turn_tile(uint8_t *to, ptrdiff_t to_pitch, const uint8_t *from, ptrdiff_t from_pitch) {
    __m128i rows[TILE], mixed[TILE];
    for (int i = 0; i < TILE; i++) rows[i] = _mm_loadu_si128((const void *)(from + i * from_pitch));
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < TILE / 2; i++) {
            mixed[2 * i] = _mm_unpacklo_epi8(rows[i], rows[i + TILE / 2]);
            mixed[2 * i + 1] = _mm_unpackhi_epi8(rows[i], rows[i + TILE / 2]);
        }
        memcpy(rows, mixed, sizeof(rows));
    }
    for (int i = 0; i < TILE; i++) _mm_storeu_si128((void *)(to + i * to_pitch), rows[i]);
}

/* Copies the tile if turn_tile takes it, and returns whether it did. */
static bool turned_tile(uint8_t *to, const NeutronBuffer *out, const uint8_t *from, const NeutronBuffer *in) {
    if (in->col_pitch == 1 && out->channel_pitch == 1) {
        turn_tile(to, out->col_pitch, from, in->channel_pitch);
        return true;
    }
    if (in->channel_pitch == 1 && out->col_pitch == 1) {
        turn_tile(to, out->channel_pitch, from, in->col_pitch);
        return true;
    }
    return false;
}
#else
static bool turned_tile(uint8_t *to, const NeutronBuffer *out, const uint8_t *from, const NeutronBuffer *in) {
    (void)to, (void)out, (void)from, (void)in;
    return false;
}
#endif

/* cols x channels elements whose lines run along the columns on one side and along the channels on the other. */
static void copy_crossed(uint8_t *to, const NeutronBuffer *out, const uint8_t *from, const NeutronBuffer *in,
                         int32_t cols, int32_t channels) {
    for (int32_t c0 = 0; c0 < cols; c0 += TILE) {
        const int32_t c_count = cols - c0 < TILE ? cols - c0 : TILE;
        for (int32_t k0 = 0; k0 < channels; k0 += TILE) {
            const int32_t k_count = channels - k0 < TILE ? channels - k0 : TILE;
            uint8_t *tile_to = to + (ptrdiff_t)c0 * out->col_pitch + (ptrdiff_t)k0 * out->channel_pitch;
            const uint8_t *tile_from = from + (ptrdiff_t)c0 * in->col_pitch + (ptrdiff_t)k0 * in->channel_pitch;
            if (c_count == TILE && k_count == TILE && turned_tile(tile_to, out, tile_from, in)) continue;
            /* By the longer lines. */
            for (int32_t k = 0; k < k_count && k_count < c_count; k++) {
                neutron_copy_line(tile_to + (ptrdiff_t)k * out->channel_pitch, out->col_pitch,
                                  tile_from + (ptrdiff_t)k * in->channel_pitch, in->col_pitch, c_count);
            }
            for (int32_t c = 0; c < c_count && k_count >= c_count; c++) {
                neutron_copy_line(tile_to + (ptrdiff_t)c * out->col_pitch, out->channel_pitch,
                                  tile_from + (ptrdiff_t)c * in->col_pitch, in->channel_pitch, k_count);
            }
        }
    }
}

void copy_s8_run(const NeutronKernelCall *call) {
    const NeutronCopyS8 *p = call->params;
    const NeutronWindowExtents *w = &call->window;
    const NeutronBuffer *in = &call->buffers[p->input], *out = &call->buffers[p->output];
    const int32_t channels = w->channel1 - w->channel0;
    int32_t cols = w->col1 - w->col0, length = channels;
    neutron_join_columns((const NeutronBuffer *const[]){in, out}, 2, &cols, &length);
    const bool crossed = cols > 1 && (in->channel_pitch > in->col_pitch || out->channel_pitch > out->col_pitch);
    NEUTRON_FOR_EACH_ROW(w, n, r) {
        const uint8_t *from = neutron_element_address(call->bases, in, n, r, w->col0, w->channel0);
        uint8_t *to = neutron_element_address(call->bases, out, n, r, w->col0, w->channel0);
        if (crossed) {
            copy_crossed(to, out, from, in, cols, channels);
            continue;
        }
        for (int32_t c = 0; c < cols; c++) {
            neutron_copy_line(to, out->channel_pitch, from, in->channel_pitch, length);
            from += in->col_pitch;
            to += out->col_pitch;
        }
    }
}
