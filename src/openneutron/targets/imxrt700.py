# SPDX-License-Identifier: BSD-3-Clause
"""i.MX RT700: eIQ Neutron N3-64 beside two Cortex-M33 and HiFi DSPs."""

from openneutron.targets.target import Costs, Number, Target

IMXRT700 = Target(
    name="imxrt700",
    title="NXP i.MX RT700, eIQ Neutron N3-64",
    subsystem=False,
    units=1,
    pipelines=8,
    macs=8,
    hw_version="N3",
    clock=Number(324, "MHz", "published: NXP's latency tables for the MIMXRT700-EVK"),
    sram=Number(7.5 * 1024, "KiB", "secondary: NXP's product pages for the i.MX RT700"),
    costs=Costs(
        issue_cycles=Number(
            6500,
            "cycles",
            "fitted: CifarNet's published 1,027 us less its modelled compute, over the 11 kernel calls published for it",
        ),
        elementwise_bytes=Number(8, "bytes/cycle", "assumed: one byte for each pipeline"),
        softmax_cycles=Number(32, "cycles/element", "assumed: a 32-bit exponential on one pipeline"),
        flash_bytes=Number(
            0.8,
            "bytes/cycle",
            "fitted: MobileNetV1 1.0 224's published 51,982 us with weights copied from flash, less its modelled compute",
        ),
        error=Number(
            28,
            "%",
            "assumed, either way: the one published static estimate of NXP's own converter was so far below what was measured",
        ),
    ),
)

TARGETS = (IMXRT700,)
