/* SPDX-License-Identifier: BSD-3-Clause */
/* LiteRT's ResizeBilinearInteger (reference/resize_bilinear.h); positions and weights have become maps. */
#include "bilinear.h"

bool resize_bilinear_s8_check(const NeutronProgramView *program, const void *params_block,
                              const NeutronWindowExtents *window) {
    const NeutronResizeBilinearS8 *p = params_block;
    return neutron_maps_are_sound(program, p->input, p->output, p->map_base, p->map_offset, MAP_WORDS, window);
}

NEUTRON_DEFINE_MIX(int8_t, int32_t, neutron_load_block, neutron_store_block)

void resize_bilinear_s8_run(const NeutronKernelCall *call) {
    const NeutronResizeBilinearS8 *p = call->params;
    const uint8_t *maps = neutron_base_address(call->bases, p->map_base) + p->map_offset;
    neutron_mix_corners(call, &call->buffers[p->input], &call->buffers[p->output], maps, NEUTRON_FASTEST(mix));
}
