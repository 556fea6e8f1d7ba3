# SPDX-License-Identifier: BSD-3-Clause
"""What limits a call, and why multipliers idle."""

from __future__ import annotations

from openneutron.compiler import CompileOptions, compile_graph
from scripts.published_networks import Chain, cifarnet, mobilenet_v1
from tests.oracle import TARGET


def test_every_call_with_few_multipliers_at_work_says_why() -> None:
    for graph in (cifarnet(), mobilenet_v1()):
        for call in compile_graph(graph, TARGET, CompileOptions()).report.operators:
            assert bool(call.idle) == (call.macs > 0 and call.utilisation < 0.5), call


def test_reasons_stand_with_the_largest_loss_first() -> None:
    depthwise = next(
        call for call in compile_graph(mobilenet_v1(), TARGET).report.operators if call.kernel == "depthwise_conv_2d_s8"
    )
    (pointwise,) = compile_graph(Chain("pointwise", (1, 128, 128, 3)).conv(16, 1).graph(), TARGET).report.operators
    assert (pointwise.bottleneck, pointwise.idle) == ("compute", "3 input channels fill 38% of the multipliers")
    assert depthwise.bottleneck == "compute"
    assert depthwise.idle == "a depthwise convolution uses 1 multiplier of 8 in each pipeline"
    small = Chain("small", (1, 4, 4, 3)).conv(9, 3)
    (call,) = compile_graph(small.graph(), TARGET).report.operators
    assert call.bottleneck == "issue"
    assert call.idle == (
        "issuing it takes longer than computing; 3 input channels fill 38% of the multipliers; "
        "9 output channels fill 56% of the pipelines"
    )


def test_a_latency_has_its_band() -> None:
    low, high = TARGET.band(324_000)
    assert (round(low, 3), round(high, 3)) == (0.67, 1.33)
