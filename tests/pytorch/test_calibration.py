# SPDX-License-Identifier: BSD-3-Clause
"""Calibration on data of every kind: what no observer likes to see, and what the quantizer makes of awkward graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.fx import GraphModule, Node

from openneutron.api.pytorch import analyse
from openneutron.errors import InvalidOptionError
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.graph.program import is_dequantize, is_quantize, op_name
from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.quantizer.observers import MOST_COUNTED, HistogramRangeObserver, stride_of
from tests.pytorch.small_models import IMAGE, Around, assert_same_as_litert, compiled, steps_apart

SPEC = NeutronTargetSpec("imxrt700")


def test_a_sample_that_the_model_can_not_be_run_on() -> None:
    """Sample 1 looks up an entry beyond the table."""
    samples = [(torch.tensor([place]),) for place in (0, 7)]
    with pytest.raises(InvalidOptionError) as caught:
        analyse(nn.Sequential(nn.Embedding(4, 8), nn.ReLU()), samples[0], calibration=samples)
    assert str(caught.value) == (
        "calibration: the model can't be run on sample 1: index out of range in self (IndexError). Pass inputs that the float "
        "model takes."
    )


def observer() -> HistogramRangeObserver:
    return HistogramRangeObserver(dtype=torch.int8, qscheme=torch.per_tensor_affine, quant_min=-128, quant_max=127)


def scale_and_zero(*batches: torch.Tensor) -> tuple[float, int]:
    watching = observer()
    for batch in batches:
        assert torch.equal(torch.nan_to_num(watching(batch)), torch.nan_to_num(batch))
    scale, zero_point = watching.calculate_qparams()
    return float(scale), int(zero_point)


AWKWARD = {
    "nothing": torch.zeros(0),
    "zeros": torch.zeros(100),
    "all the same": torch.full((100,), 3.0),
    "all the same, below zero": torch.full((100,), -3.0),
    "not numbers": torch.full((100,), math.nan),
    "infinite": torch.tensor([math.inf, -math.inf]),
    "some of each": torch.tensor([math.nan, 1.0, -math.inf, -2.0, math.inf]),
    "the largest": torch.tensor([3e38, -3e38, 1.0]),
    "the least": torch.tensor([1e-42, -1e-42]),
    "one value": torch.tensor(5.0),
}


@pytest.mark.parametrize("kind", AWKWARD)
def test_every_tensor_has_a_usable_scale(kind: str) -> None:
    """Alone, and before and behind a usual one."""
    usual = torch.linspace(-1, 2, 1000)
    for batches in ([AWKWARD[kind]], [AWKWARD[kind], usual], [usual, AWKWARD[kind]]):
        scale, zero_point = scale_and_zero(*batches)
        assert math.isfinite(scale) and scale > 0 and -128 <= zero_point <= 127
    if kind in ("nothing", "zeros", "not numbers", "infinite", "the least"):
        assert scale_and_zero(AWKWARD[kind], usual)[0] == pytest.approx(scale_and_zero(usual)[0], rel=0.02)


@pytest.mark.parametrize("value", [3.0, -3.0])
def test_a_constant_is_exact(value: float) -> None:
    scale, zero_point = scale_and_zero(torch.full((10,), value))
    step = np.clip(np.rint(value / scale) + zero_point, -128, 127)
    assert (step - zero_point) * scale == pytest.approx(value, rel=1e-6)


@settings(max_examples=50)
@given(st.integers(1, 1 << 24))
def test_every_extent_gets_its_share_of_the_sample(count: int) -> None:
    stride = stride_of(count)
    assert math.gcd(stride, count) == 1
    assert -(-count // stride) <= MOST_COUNTED


@pytest.mark.parametrize("shape", [(1, 96, 112, 112), (8, 3, 224, 224)])
def test_a_sample_gives_the_range_of_the_whole(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(shape, generator=generator) * torch.rand(1, shape[1], 1, 1, generator=generator)
    sampled = scale_and_zero(values.clamp_min(-1))
    monkeypatch.setattr("openneutron.pytorch.quantizer.observers.MOST_COUNTED", 1 << 30)
    assert sampled[0] == pytest.approx(scale_and_zero(values.clamp_min(-1))[0], rel=0.06)


def test_an_outlier_between_the_sampled_values_counts() -> None:
    """One value in a million that is far away: its own clipping would be most of the error."""
    values = torch.rand(1 << 20)
    values[12345] = 40.0
    assert scale_and_zero(values)[0] * 255 > 10


def test_batches_of_several_sizes() -> None:
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 4)).eval(),
        torch.randn(24, 3, 10, 10),
    )
    program = torch.export.export(model, (x[:2],), dynamic_shapes=({0: torch.export.Dim("n")},))
    module = calibrate_and_quantize(program, [(x[:1],), (x[1:4],), (x[4:],)], NeutronQuantizer(SPEC))
    with torch.no_grad():
        assert float((module(x) - model(x)).abs().max()) < 0.05


def quantized(function: Callable[..., Any], *inputs: torch.Tensor) -> GraphModule:
    torch.manual_seed(1)
    module = torch.export.export(Around(function).eval(), inputs, strict=True).module()
    return calibrate_and_quantize(module, [inputs], NeutronQuantizer(SPEC))


def calls(module: GraphModule, name: str) -> list[Node]:
    return [node for node in module.graph.nodes if op_name(node).startswith(f"aten.{name}.")]


def scales_of(node: Node) -> tuple[float, float]:
    """Of an operator's first operand and its result."""
    assert is_dequantize(node.args[0])
    (user,) = node.users
    assert is_quantize(user)
    return node.args[0].args[1], user.args[1]


@pytest.mark.parametrize("name", ["exp", "mean", "sum", "softmax"])
def test_results_have_scales_of_their_own(name: str) -> None:
    functions: dict[str, Callable[..., Any]] = {
        "exp": lambda m, x: torch.exp(m.conv(x)),
        "mean": lambda m, x: m.conv(x).mean((2, 3)),
        "sum": lambda m, x: m.conv(x).sum(1),
        "softmax": lambda m, x: F.softmax(m.conv(x), 1),
    }
    (node,) = calls(quantized(functions[name], torch.randn(IMAGE)), name)
    before, behind = scales_of(node)
    assert not 0.8 < before / behind < 1.25


def test_an_operator_without_a_kernel_breaks_nothing_behind_it() -> None:
    """An operator that shares its input's scale begins a chain of its own behind one that stays float."""
    module = quantized(
        lambda m, x: m.relu(torch.fft.fft(m.conv(x)).real.flatten(1).reshape(8, -1).t()), torch.randn(IMAGE)
    )
    for name in ("flatten", "reshape", "relu"):
        (node,) = calls(module, name)
        assert is_dequantize(node.args[0]) and all(is_quantize(user) for user in node.users), name


INTEGERS = torch.arange(8).reshape(1, 8, 1, 1)


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: (lambda y: torch.cat([torch.sigmoid(y), F.max_pool2d(torch.sigmoid(y), 3, 1, 1), y], 1))(
            m.conv(x)
        ),
        lambda m, x: (lambda y: torch.cat([F.softmax(y, 1), torch.tanh(y)], 1))(m.conv(x)),
        lambda m, x: (lambda y: (y + F.max_pool2d(y, 3, 1, 1)) * torch.sigmoid(y))(m.relu(m.conv(x))),
        lambda m, x: (lambda y: torch.cat([torch.cat([y, m.point(x)], 1), F.max_pool2d(y, 3, 1, 1)], 1))(m.conv(x)),
        lambda m, x: (lambda y: torch.cat([y, y, y], 1))(torch.sigmoid(m.conv(x))),
        lambda m, x: (lambda y: F.max_pool2d(y, 2) * 2 + F.avg_pool2d(torch.sigmoid(y), 2))(m.conv(x)),
    ],
    ids=["fixed and pooled", "two fixed ones", "shared, own and fixed", "nested", "the same thrice", "pools"],
)
def test_a_tensor_with_readers_of_different_wishes(function: Callable[..., Any]) -> None:
    small = compiled(function)
    assert not small.program.delegation.on_cpu, small.reasons
    assert_same_as_litert(small.program)
    assert steps_apart(small).max() <= 2
    assert signal_to_noise(small.program.quantized, function, small.inputs) > 30


def signal_to_noise(
    module: GraphModule, function: Callable[..., Any], inputs: Sequence[tuple[torch.Tensor, ...]]
) -> float:
    """dB, of the quantized module beside the float one."""
    torch.manual_seed(7)
    model = Around(function)
    nn.init.normal_(model.norm.running_mean)
    nn.init.uniform_(model.norm.running_var, 0.5, 2.0)
    with torch.no_grad():
        pairs = [(model.eval()(*sample), module(*sample)) for sample in inputs]
    noise = sum(float((wanted - got).square().sum()) for wanted, got in pairs)
    return 10 * math.log10(sum(float(wanted.square().sum()) for wanted, _ in pairs) / noise)


CONSTANT = torch.linspace(-4, 4, 8).reshape(1, 8, 1, 1)


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: m.conv(x) + CONSTANT,
        lambda m, x: CONSTANT * m.conv(x),
        lambda m, x: torch.cat([m.conv(x), CONSTANT.expand(1, 8, 12, 12)], 1),
        lambda m, x: CONSTANT - m.conv(x),
    ],
    ids=["add", "mul", "cat", "sub"],
)
def test_constants_as_operands(function: Callable[..., Any]) -> None:
    small = compiled(function)
    assert not small.program.delegation.on_cpu, small.reasons
    assert_same_as_litert(small.program)
    assert signal_to_noise(small.program.quantized, function, small.inputs) > 35


def test_in_place_activations_behind_every_layer() -> None:
    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        y = m.conv(x).sigmoid_()
        z = m.point(x).tanh_().relu_()
        return F.hardtanh_((y + z).mul_(2).clamp_(0.5, 3), 0, 2)

    small = compiled(function)
    assert not small.program.delegation.on_cpu, small.reasons
    assert_same_as_litert(small.program)
    assert signal_to_noise(small.program.quantized, function, small.inputs) > 35


def test_integer_inputs_beside_float_ones() -> None:
    torch.manual_seed(0)
    model, inputs = Around(lambda m, x, k: (m.conv(x), k + 1)), (torch.randn(IMAGE), torch.arange(5))
    program = analyse(model.eval(), inputs, calibration=[inputs])
    image, numbers = program.run(*inputs)
    assert torch.equal(numbers, torch.arange(5) + 1) and numbers.dtype == torch.int64
    with torch.no_grad():
        assert float((image - model(*inputs)[0]).abs().max()) < 0.1


def test_channels_without_weights() -> None:
    """Per-channel scales of channels that are zero, and nearly so, and a bias that is large beside them."""
    torch.manual_seed(0)
    layer = nn.Conv2d(8, 8, 3)
    with torch.no_grad():
        layer.weight[2] = 0
        layer.weight[3] *= 1e-9
        assert layer.bias is not None
        layer.bias[2:4] = torch.tensor([1.5, -1.5])
    inputs = [(torch.randn(IMAGE),) for _ in range(4)]
    program = analyse(layer, inputs[0], calibration=inputs)
    assert_same_as_litert(program)
    with torch.no_grad():
        apart = [(program.run(*sample)[0] - layer(*sample)).abs().amax((0, 2, 3)) for sample in inputs]
    assert float(torch.stack(apart).max()) < 0.06


def test_a_model_that_is_constant_on_its_calibration_data() -> None:
    small = compiled(lambda m, x: m.conv(m.relu(m.conv(x) - 1000)))
    assert not small.program.delegation.on_cpu
    assert_same_as_litert(small.program)
    assert steps_apart(small).max() <= 1
