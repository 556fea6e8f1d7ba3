# SPDX-License-Identifier: BSD-3-Clause
"""The quantizer's nodes and scales."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.fx import GraphModule, Node

from openneutron.errors import InvalidOptionError
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.graph.program import is_dequantize, is_quantize, op_name
from openneutron.pytorch.operators.annotations import Result, annotation_rules
from openneutron.pytorch.operators.families import LOWER_RULES
from openneutron.pytorch.operators.rules.context import ACTIVATIONS
from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.quantizer.observers import (
    LEAST_ACTIVATION_SCALE,
    LEAST_CHANNEL_RATIO,
    HistogramRangeObserver,
    PerChannelWeightObserver,
    ReachedRangeObserver,
)
from openneutron.pytorch.quantizer.passes.exported_forms import MakeFunctional
from tests.pytorch.small_models import IMAGE, Around

DECOMPOSED = {
    "aten.conv1d.padding": "aten.convolution.default",
    "aten.conv2d.padding": "aten.convolution.default",
    "aten.softmax.int": "aten._softmax.default",
    "aten.clamp_min.default": "aten.clamp.default",
}
"""ExecuTorch's forms of operators that have no rule under their own name."""


def quantized(function: Callable[..., Any], *inputs: torch.Tensor, qat: bool = False) -> GraphModule:
    torch.manual_seed(1)
    inputs = inputs or (torch.randn(IMAGE),)
    module = torch.export.export(Around(function).eval(), inputs, strict=True).module()
    quantizer = NeutronQuantizer(NeutronTargetSpec("imxrt700"), is_qat=qat)
    return calibrate_and_quantize(module, [inputs], quantizer, is_qat=qat)


def calls(module: GraphModule, name: str) -> list[Node]:
    return [node for node in module.graph.nodes if op_name(node).startswith(f"aten.{name}.")]


def scale_before(node: Node, place: int = 0) -> tuple[Any, ...]:
    source = node.args[place]
    assert is_dequantize(source), f"{node} reads {source}"
    return source.args[1:3]


def scale_behind(node: Node) -> tuple[Any, ...]:
    (user,) = node.users
    assert is_quantize(user), f"{node} is read by {user}"
    return user.args[1:3]


def test_every_quantized_operator_can_be_lowered() -> None:
    assert {DECOMPOSED.get(name, name) for name in annotation_rules()} <= set(LOWER_RULES)
    assert set(ACTIVATIONS) <= set(annotation_rules())
    for name, rule in annotation_rules().items():
        assert (rule.fixed is not None) == (rule.result in (Result.FIXED, Result.REACHED)), name


def test_an_activation_runs_inside_the_layer_before_it() -> None:
    module = quantized(lambda m, x: F.relu(m.conv(x)))
    (conv,), (relu,) = calls(module, "conv2d"), calls(module, "relu")
    assert relu.args[0] is conv
    assert scale_behind(relu)[1] == -128


def test_an_activation_beside_another_reader_does_not() -> None:
    module = quantized(lambda m, x: (lambda y: F.relu(y) + y)(m.conv(x)))
    (relu,) = calls(module, "relu")
    assert is_dequantize(relu.args[0])


def test_weights_have_a_scale_for_each_channel() -> None:
    module = quantized(lambda m, x: m.linear(m.conv(x)))
    (conv,), (linear,) = calls(module, "conv2d"), calls(module, "linear")
    assert op_name(conv.args[1]) == "quantized_decomposed.dequantize_per_channel.default"
    assert conv.args[1].args[3:7] == (0, -127, 127, torch.int8)
    assert op_name(conv.args[2]) == "quantized_decomposed.dequantize_per_channel.default"
    assert conv.args[2].args[-1] is torch.int32
    assert op_name(linear.args[1]) == "quantized_decomposed.dequantize_per_channel.default"
    assert linear.args[1].args[3:7] == (0, -127, 127, torch.int8)
    weights, biases = (getattr(module, linear.args[place].args[1].target) for place in (1, 2))
    torch.testing.assert_close(biases, weights * scale_before(linear)[0])


def test_fixed_scales() -> None:
    for function, wanted in (
        (torch.sigmoid, (1 / 256, -128)),
        (torch.tanh, (1 / 128, 0)),
        (F.softmax, (1 / 256, -128)),
    ):
        options = {"dim": 1} if function is F.softmax else {}
        module = quantized(
            lambda m, x, function=function, options=options: F.max_pool2d(function(m.conv(x * 99), **options), 2)
        )
        (node,) = calls(module, function.__name__)
        assert scale_behind(node) == wanted
        # The next operator takes the fixed scale as it is.
        assert scale_before(calls(module, "max_pool2d")[0]) == wanted


def test_values_far_inside_a_fixed_range_have_their_own_scale() -> None:
    module = quantized(lambda m, x: torch.tanh(F.max_pool2d(torch.sigmoid(m.conv(x) - 7), 2)))
    for name, (scale, _) in (("sigmoid", (1 / 256, -128)), ("tanh", (1 / 128, 0))):
        (node,) = calls(module, name)
        own, zero_point = scale_behind(node)
        assert own < scale / 8 and zero_point == -128
    # One that reaches most of the range has LiteRT's scale, so that LiteRT's operator computes it.
    observer = ReachedRangeObserver(1 / 256, -128, dtype=torch.int8, quant_min=-128, quant_max=127)
    observer(torch.tensor([0.1, 0.85]))
    assert [float(item) for item in observer.calculate_qparams()] == [1 / 256, -128]
    observer = ReachedRangeObserver(1 / 256, -128, dtype=torch.int8, quant_min=-128, quant_max=127)
    assert [float(item) for item in observer.calculate_qparams()] == [1 / 256, -128]


def test_operands_of_mul_keep_their_own_scales() -> None:
    module = quantized(lambda m, x: (m.conv(x) * 10) * m.point(x))
    product = calls(module, "mul")[-1]
    first, second = scale_before(product, 0)[0], scale_before(product, 1)[0]
    assert first > 4 * second


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: F.max_pool2d(m.conv(x), 2),
        lambda m, x: m.conv(x).flatten(1),
        lambda m, x: torch.cat([m.conv(x), m.point(x)], 1),
        lambda m, x: F.adaptive_avg_pool2d(m.conv(x), 6),
    ],
)
def test_moved_values_keep_their_scale(function: Callable[..., Any]) -> None:
    module = quantized(function)
    node = [n for n in module.graph.nodes if n.op == "call_function" and not is_quantize(n) and not is_dequantize(n)][
        -1
    ]
    operands = node.args[0] if isinstance(node.args[0], list) else [node.args[0]]
    assert {operand.args[1:3] for operand in operands} == {scale_behind(node)}


def test_a_global_mean_has_its_own_scale() -> None:
    module = quantized(lambda m, x: F.adaptive_avg_pool2d(m.conv(x), 1))
    (pool,) = calls(module, "adaptive_avg_pool2d")
    assert scale_behind(pool)[0] < scale_before(pool)[0] / 2


def test_integers_stay_as_they_are() -> None:
    module = quantized(lambda m, x, index: m.conv(x) + index.float().sum(), torch.randn(IMAGE), torch.arange(4))
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    assert not any(is_quantize(user) for user in placeholders[1].users)


def test_in_place_operators_are_their_out_of_place_forms() -> None:
    module = quantized(lambda m, x: m.relu(m.conv(x)).add_(1.0))
    names = {op_name(node) for node in module.graph.nodes}
    assert {"aten.relu.default", "aten.add.Tensor"} <= names
    assert not any(name.endswith("_.default") or name.endswith("_.Tensor") for name in names)


@pytest.mark.parametrize(
    ("function", "in_place"),
    [
        (lambda m, x: F.relu_(m.conv(x)) * 2, 0),
        (lambda m, x: F.dropout(m.relu(m.conv(x)), training=False), 0),
        (lambda m, x: (lambda y: (F.relu_(y), y)[1])(m.conv(x)), 0),
        (lambda m, x: (lambda y, z: (F.relu_(y), z)[1])(*(lambda y: (y, y.flatten(1)))(m.conv(x))), 1),
    ],
    ids=["plain", "before dropout", "old name read", "view read"],
)
def test_out_of_place_forms_compute_the_same(function: Callable[..., Any], in_place: int) -> None:
    torch.manual_seed(1)
    x = torch.randn(IMAGE)
    module = torch.export.export(Around(function).eval(), (x,), strict=True).module()
    wanted = module(x)
    MakeFunctional()(module)
    assert torch.equal(module(x), wanted)
    mutating = [node for node in module.graph.nodes if op_name(node).endswith("_.default")]
    assert len(mutating) == in_place


def test_training_reaches_the_same_structure() -> None:
    module = quantized(lambda m, x: F.relu(m.norm(m.conv(x))), qat=True)
    assert not calls(module, "batch_norm")
    (relu,) = calls(module, "relu")
    assert op_name(relu.args[0]) == "aten.conv2d.default"
    assert scale_behind(relu)[1] == -128


def test_no_samples_no_scales() -> None:
    module = torch.export.export(Around(lambda m, x: m.conv(x)).eval(), (torch.randn(IMAGE),)).module()
    with pytest.raises(InvalidOptionError) as caught:
        calibrate_and_quantize(module, [], NeutronQuantizer(NeutronTargetSpec("imxrt700")))
    assert str(caught.value) == (
        "calibration: there are no samples; int8 scales come from at least one. "
        "Pass some typical inputs, each a tuple of the model's arguments."
    )


def observer(**options: Any) -> HistogramRangeObserver:
    return HistogramRangeObserver(
        dtype=torch.int8, qscheme=torch.per_tensor_affine, quant_min=-128, quant_max=127, **options
    )


@given(st.lists(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=50), min_size=1, max_size=4))
def test_the_range_holds_zero_and_lies_in_what_was_seen(batches: list[list[float]]) -> None:
    watching = observer()
    for batch in batches:
        watching(torch.tensor(batch))
    scale, zero_point = watching.calculate_qparams()
    assert float(scale) >= LEAST_ACTIVATION_SCALE
    assert -128 <= int(zero_point) <= 127
    values = [value for batch in batches for value in batch]
    slack = 1.01 * float(scale) + 1e-6
    low, high = (-128 - int(zero_point)) * float(scale), (127 - int(zero_point)) * float(scale)
    if float(scale) > LEAST_ACTIVATION_SCALE:
        assert low >= min(0.0, *values) - slack
        assert high <= max(0.0, *values) + slack


def squared_error(values: torch.Tensor, scale: float, zero_point: float) -> float:
    steps = torch.clamp(torch.round(values / scale) + zero_point, -128, 127)
    return float(((steps - zero_point) * scale - values).square().mean())


def test_the_range_beats_that_of_the_extremes_where_tails_are_long() -> None:
    watching = observer()
    values = torch.randn(200_000, generator=torch.Generator().manual_seed(0)) ** 3
    watching(values)
    scale, zero_point = (float(item) for item in watching.calculate_qparams())
    extremes = float(values.max() - values.min()) / 255
    ours, theirs = (
        squared_error(values, scale, zero_point),
        squared_error(values, extremes, -128 - float(values.min()) / extremes),
    )
    assert ours < 0.9 * theirs


def test_values_beyond_the_reach_count_as_values_at_it() -> None:
    values = torch.linspace(-40, 20, 10_000)
    ends = {
        0.0: (-6.24, 6.24),
        -24.0: (-10.24, 0.0),  # the largest is -4
        50.0: (0.0, 16.24),  # the least is 10
    }
    for shift, (low, high) in ends.items():
        watching = observer(reach=math.log(511))
        watching(values + shift)
        scale, zero_point = (float(item) for item in watching.calculate_qparams())
        assert np.allclose([(-128 - zero_point) * scale, (127 - zero_point) * scale], [low, high], atol=0.5)


@pytest.mark.parametrize(
    ("function", "is_bounded"),
    [
        (torch.sigmoid, True),
        (lambda x: torch.cat([torch.sigmoid(x[:, :2]), torch.tanh(x[:, 2:])], 1), True),
        (lambda x: 1 - torch.sigmoid(x), True),
        (lambda x: torch.log(1.01 - torch.sigmoid(x)), False),
        (lambda x: x * torch.sigmoid(x), False),
    ],
)
def test_the_input_of_a_function_with_flat_ends_has_a_bounded_range(function: Any, is_bounded: bool) -> None:
    found = quantized(lambda m, x: function(x - x.flip(1) / 2), torch.linspace(-30, 30, 64).reshape(4, 4, 4))
    scales = [n.args[1] for n in found.graph.nodes if is_quantize(n) and op_name(n.args[0]) == "aten.sub.Tensor"]
    assert (max(scales[:1]) < 13 / 255) == is_bounded


def test_values_that_are_zero_do_not_count() -> None:
    dense, sparse = observer(), observer()
    values = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    dense(values)
    sparse(torch.cat([values, torch.zeros(1_000_000)]))
    assert np.isclose(float(dense.calculate_qparams()[0]), float(sparse.calculate_qparams()[0]), rtol=0.02)


def test_a_channel_of_almost_nothing_keeps_its_bias_in_int32() -> None:
    watching = PerChannelWeightObserver(
        dtype=torch.int8, qscheme=torch.per_channel_symmetric, quant_min=-127, quant_max=127, ch_axis=0
    )
    watching(torch.stack([torch.ones(4), torch.full((4,), 1e-12)]))
    scales, _ = watching.calculate_qparams()
    assert float(scales[1]) == pytest.approx(float(scales[0]) * LEAST_CHANNEL_RATIO)
