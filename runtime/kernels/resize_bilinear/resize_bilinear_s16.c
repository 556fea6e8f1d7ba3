/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's ResizeBilinearInteger (reference/resize_bilinear.h) on int16; positions and weights have become maps. */
#include "bilinear.h"

bool resize_bilinear_s16_check(const NeutronProgramView *program, const void *params_block,
                               const NeutronWindowExtents *window) {
    const NeutronResizeBilinearS16 *p = params_block;
    return neutron_maps_are_sound(program, p->input, p->output, p->map_base, p->map_offset, MAP_WORDS, window) &&
           neutron_elements_are_sound(program, &program->buffers[p->input], false, 2) &&
           neutron_window_elements(program, p->output, true, window, 2) != NULL;
}

NEUTRON_DEFINE_MIX(int16_t, int64_t, neutron_load_block_16, neutron_store_block_16)

void resize_bilinear_s16_run(const NeutronKernelCall *call) {
    const NeutronResizeBilinearS16 *p = call->params;
    const uint8_t *maps = neutron_base_address(call->bases, p->map_base) + p->map_offset;
    neutron_mix_corners(call, &call->buffers[p->input], &call->buffers[p->output], maps, NEUTRON_FASTEST(mix));
}
