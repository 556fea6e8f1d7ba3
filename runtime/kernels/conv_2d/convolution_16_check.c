/* SPDX-License-Identifier: BSD-3-Clause */
/* What the convolution kernels for int16 ask of a call: what those for int8 ask, and what two bytes change. */
#include "conv_2d/convolution_16.h"

/* The same convolution of bytes. */
static NeutronConv2dS8 of_bytes(const NeutronConv2dS16 *p) {
    return (NeutronConv2dS8){
        .input = p->input,
        .output = p->output,
        .weights_base = p->weights_base,
        .weights_offset = p->weights_offset,
        .requant_base = p->requant_base,
        .requant_offset = p->requant_offset,
        .constant_channel0 = p->constant_channel0,
        .constant_channels = p->constant_channels,
        .kernel_h = p->kernel_h,
        .kernel_w = p->kernel_w,
        .stride_h = p->stride_h,
        .stride_w = p->stride_w,
        .dilation_h = p->dilation_h,
        .dilation_w = p->dilation_w,
        .pad_top = p->pad_top,
        .pad_left = p->pad_left,
        .group_inputs = p->group_inputs,
        .group_outputs = p->group_outputs,
    };
}

bool neutron_convolution_16_is_sound(const NeutronProgramView *program, const NeutronConv2dS16 *p,
                                     const NeutronWindowExtents *window, uint64_t block_bytes) {
    const NeutronConv2dS8 bytes = of_bytes(p);
    if (!neutron_convolution_is_sound(program, &bytes, window, block_bytes)) return false;
    const NeutronBuffer *input = neutron_checked_buffer(program, p->input, false);
    const uint64_t table_bytes = neutron_blocks_of(p->constant_channels) * sizeof(NeutronRequantBlock16);
    return neutron_elements_are_sound(program, input, false, 2) &&
           neutron_window_elements(program, p->output, true, window, 2) != NULL && p->rounding >= 0 &&
           p->rounding <= NEUTRON_MOST_ROUNDING && neutron_bounds_are_sound_16(p->clamp_min, p->clamp_max) &&
           neutron_range_is_sound(program, p->requant_base, p->requant_offset, table_bytes, NEUTRON_ALIGNMENT);
}
