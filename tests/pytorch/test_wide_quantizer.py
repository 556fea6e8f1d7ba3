# SPDX-License-Identifier: BSD-3-Clause
"""Activations of 16 bits: the formats, the types of operators that move values, conversions where two types meet."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import MinMaxObserver

import openneutron
from openneutron.errors import InvalidOptionError
from openneutron.ir import per_tensor
from openneutron.options import QuantizationOptions
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.graph.program import is_dequantize, is_quantize, op_name, quantized_dtype
from openneutron.pytorch.lower import units
from openneutron.pytorch.lower.units import _interpolated
from openneutron.pytorch.quantizer import precision
from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize, quantized_with, quantizer_for
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.quantizer.specs import QuantizationConfig, activation_spec
from openneutron.pytorch.source.exporting import ModelInputs

WIDE = QuantizationConfig(activations="int16")
NARROW = QuantizationConfig(activations="int8")


class Net(nn.Module):
    """Two convolutions with a shortcut, a pool, and a head behind a view."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.body = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8 * 16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = F.relu(self.stem(x))
        return self.head(F.max_pool2d(self.body(first) + first, 2).flatten(1))


def images(count: int = 2) -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(2)
    return [(torch.randn(1, 3, 8, 8, generator=generator),) for _ in range(count)]


def quantized(
    quantizer: NeutronQuantizer, model: nn.Module | None = None, inputs: tuple[torch.Tensor, ...] | None = None
) -> GraphModule:
    torch.manual_seed(1)
    samples = images() if inputs is None else [inputs]
    exported = torch.export.export((model or Net()).eval(), samples[0])
    return calibrate_and_quantize(exported, samples, quantizer)


def operands(module: GraphModule) -> dict[str, list[str]]:
    """Return the types that each operator's activations have, its results last; f for float."""
    found: dict[str, list[str]] = {}
    for node in module.graph.nodes:
        if node.op != "call_function" or is_quantize(node) or is_dequantize(node):
            continue
        sources = [item for item in node.all_input_nodes if not is_constant(item)]
        nodes = [*sources, *node.users]
        found[op_name(node).split(".")[1]] = [type_of(item) for item in nodes]
    return found


def is_constant(node: Node) -> bool:
    return node.op == "get_attr" or (is_dequantize(node) and node.all_input_nodes[0].op == "get_attr")


def type_of(node: Node) -> str:
    return str(quantized_dtype(node)).removeprefix("torch.") if is_quantize(node) or is_dequantize(node) else "f"


def conversions(module: GraphModule) -> list[tuple[str, str]]:
    """Return the types before and behind each quantize node of a dequantized value."""
    return [
        (type_of(source), type_of(node))
        for node in module.graph.nodes
        if is_quantize(node) and isinstance(source := node.args[0], Node) and is_dequantize(source)
    ]


def test_activations_are_symmetric_and_biases_wait_for_lowering() -> None:
    module = quantized(NeutronQuantizer(activations="int16"))
    wide = [node for node in module.graph.nodes if is_quantize(node)]
    assert {node.args[2:] for node in wide} == {(0, -32767, 32767, torch.int16)}
    weights = [node for node in module.graph.nodes if op_name(node).endswith("dequantize_per_channel.default")]
    assert {(node.args[4:], node.args[0].op) for node in weights} == {((-127, 127, torch.int8), "get_attr")}
    biases = [
        node.args[2].op for node in module.graph.nodes if op_name(node).startswith(("aten.conv2d", "aten.linear"))
    ]
    assert biases == ["get_attr"] * 3
    assert conversions(module) == []


def test_the_largest_magnitude_is_in_the_middle_of_the_range() -> None:
    module = quantized(NeutronQuantizer(activations="int16"))
    scale = next(node.args[1] for node in module.graph.nodes if is_quantize(node))
    largest = max(float(item[0].abs().max()) for item in images())
    assert scale == pytest.approx(2 * largest / 32767, rel=1e-6)


@pytest.mark.parametrize("function", [torch.tanh, torch.sigmoid, lambda x: torch.softmax(x, 1)])
def test_results_between_minus_1_and_1_have_the_scale_that_litert_fixes(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    class Function(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x)

    module = quantized(NeutronQuantizer(activations="int16"), Function())
    result = [node for node in module.graph.nodes if is_quantize(node)][-1]
    assert result.args[1:] == (2.0**-15, 0, -32768, 32767, torch.int16)


def test_slopes_stay_8_bits() -> None:
    module = quantized(NeutronQuantizer(activations="int16"), nn.PReLU(3))
    data, slopes = next(node for node in module.graph.nodes if op_name(node).startswith("aten.prelu")).args
    assert (type_of(data), type_of(slopes)) == ("int16", "int8")


def test_types_meet_at_one_conversion_and_moved_values_keep_theirs() -> None:
    module = quantized(NeutronQuantizer(activations="int16").set_module_name("head", NARROW))
    types = operands(module)
    assert (types["max_pool2d"], types["flatten"]) == (["int16"] * 2, ["int16"] * 2)
    assert types["linear"] == ["int8"] * 2
    assert conversions(module) == [("int16", "int8")]


def test_a_value_with_two_readers_is_converted_once() -> None:
    module = quantized(NeutronQuantizer().set_module_name("stem", WIDE))
    assert operands(module)["relu"] == ["f", "int16"]
    assert conversions(module) == [("int16", "int8")]


def test_what_moves_a_converted_value_moves_it_converted() -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first = self.stem(x)
            return first + first.flip(3)

    module = quantized(NeutronQuantizer(activations="int16").set_module_name("stem", NARROW), Turned())
    assert operands(module)["flip"] == ["int16"] * 2
    assert conversions(module) == [("int8", "int16")]


def test_the_type_of_an_operator_covers_all_of_its_calls() -> None:
    module = quantized(NeutronQuantizer().set_operator("aten.add", WIDE))
    assert operands(module)["add"] == ["int16"] * 3
    # The pool and the view behind the sum move int16; the linear layer converts.
    assert conversions(module) == [("int8", "int16"), ("int8", "int16"), ("int16", "int8")]


def test_what_moves_an_input_has_the_type_of_its_readers() -> None:
    class Moved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x.flip(3))

    module = quantized(NeutronQuantizer().set_module_name("net", WIDE), Moved())
    assert operands(module)["flip"] == ["int16"] * 2
    assert conversions(module) == []


def test_an_observer_of_a_layer_leaves_its_type_as_it_is() -> None:
    observed = QuantizationConfig(output_activation=activation_spec(observer=MinMaxObserver, activations="int16"))
    quantizer = NeutronQuantizer().set_module_type(nn.Linear, WIDE).set_module_name("head", observed)
    assert operands(quantized(quantizer))["linear"] == ["int16"] * 2
    options = QuantizationOptions(
        activations="int16", layer_activations=[("b*", "int8")], layer_observers=[("body", "minmax")]
    )
    assert operands(quantized(quantizer_for(options, NeutronTargetSpec())))["add"] == ["int16"] * 3
    assert operands(quantized(quantizer_for(options, NeutronTargetSpec())))["conv2d"] == ["int8"] * 2


def test_training_simulates_16_bits() -> None:
    torch.manual_seed(1)
    exported = torch.export.export(Net().eval(), images()[0])
    seen = []

    def train(module: GraphModule) -> None:
        module.train()
        seen.extend(item.dtype for item in module.modules() if hasattr(item, "fake_quant_enabled"))
        for item in images():
            module(*item)

    module = calibrate_and_quantize(exported, (), NeutronQuantizer(is_qat=True, activations="int16"), True, train)
    assert set(seen) == {torch.int8, torch.int16}
    wide = [node for node in module.graph.nodes if is_quantize(node)]
    assert {node.args[2:] for node in wide} == {(0, -32767, 32767, torch.int16)}


def test_corrected_biases_leave_the_float_module_as_it_is() -> None:
    torch.manual_seed(1)
    model = Net().eval()
    before = model.body.bias.clone()
    module = torch.export.export(model, images()[0]).module(check_guards=False)
    options = QuantizationOptions(activations="int16", correct_biases=True)
    calls = [ModelInputs(item, {}) for item in images()]
    real, made = quantized_with(module, quantizer_for(options, NeutronTargetSpec()), calls, options)
    assert torch.equal(model.body.bias, before)
    names = [str(node.args[2].target) for node in made.graph.nodes if op_name(node).startswith("aten.conv2d")]
    assert names == ["stem_bias_corrected", "body_bias_corrected"]
    difference = torch.stack([made(*item) - real(*item) for item in images()]).mean()
    assert abs(float(difference)) < 1e-4


def test_a_table_interpolates_within_three_steps() -> None:
    scale, stored = 8 / 32767, np.arange(-32768, 32769)
    values = np.tanh(stored * scale)
    table = _interpolated(values[::64].astype(np.float32), per_tensor(2.0**-15, 0)).astype(np.int64)
    index, offset = (stored[:-1] >> 7) + 256, stored[:-1] & 127
    found = table[index] + ((table[index + 1] - table[index]) * offset + 64 >> 7)
    assert table.shape == (513,)
    assert np.abs(found - values[:-1] * 2**15).max() < 3


UNKNOWN = "'int12' is unknown; there are int8, int16."


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NeutronQuantizer(activations="int12"), f"activations: {UNKNOWN} Did you mean 'int16'?"),
        (
            lambda: QuantizationConfig(activations="int12"),
            f"QuantizationConfig.activations: {UNKNOWN} Did you mean 'int16'?",
        ),
        (
            lambda: QuantizationOptions(layer_activations=[("head", "int12")]),
            f"layer_activations: {UNKNOWN} Did you mean 'int16'?",
        ),
    ],
)
def test_an_unknown_type_is_an_error(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidOptionError) as raised:
        make()
    assert str(raised.value) == message


class Norms(nn.Module):
    """A power-average pool of a convolution, whose results a layer reads."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8 * 16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.lp_pool2d(F.relu(self.stem(x)), 2.0, 2).flatten(1))


def test_powers_in_front_of_a_root_are_wide_where_the_target_computes_on_int16(monkeypatch: pytest.MonkeyPatch) -> None:
    found = operands(quantized(NeutronQuantizer(), Norms()))
    assert found["avg_pool2d"] == ["int16", "int16"]
    assert found["relu"][-1] == found["linear"][0] == "int8"
    narrow = [
        NeutronQuantizer(NeutronTargetSpec("mcxn94x")),
        NeutronQuantizer().set_operator("aten.avg_pool2d.default", NARROW),
    ]
    for quantizer in narrow:
        assert operands(quantized(quantizer, Norms()))["avg_pool2d"] == ["int8", "int8"]
    monkeypatch.setattr(precision, "MOST_TERMS", 3)
    assert operands(quantized(NeutronQuantizer(), Norms()))["avg_pool2d"] == ["int8", "int8"]


class Windows(nn.Module):
    """The cubic norm of each window as convolutions of single channels have it, which a layer reads."""

    def __init__(self, weight: float, has_bias: bool = False) -> None:
        super().__init__()
        self.head = nn.Linear(3 * 16, 4)
        self.weights = nn.Parameter(torch.full((3, 1, 2, 2), weight))
        self.bias = nn.Parameter(torch.full((3,), 0.5)) if has_bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sums = F.conv2d(x.abs() ** 3, self.weights, self.bias, stride=2, groups=3)
        return self.head(torch.pow(sums.abs(), 1 / 3).flatten(1))


def test_a_convolution_that_only_adds_up_powers_is_wide() -> None:
    assert operands(quantized(NeutronQuantizer(), Windows(0.25)))["conv2d"] == ["int16", "int16"]
    for model in (Windows(-0.25), Windows(0.25, has_bias=True)):
        assert operands(quantized(NeutronQuantizer(), model))["conv2d"] == ["int8", "int8"]


class Fourths(nn.Module):
    """The 4-norm of each window."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.pow(F.conv2d(x.abs() ** 4, torch.ones(3, 1, 2, 2), groups=3), 0.25)


@pytest.mark.parametrize(("scale", "least"), [(1.0, 40.0), (1000.0, 40.0)])
def test_a_root_that_is_steep_at_zero_has_a_table_near_zero(scale: float, least: float) -> None:
    generator = torch.Generator().manual_seed(1)
    x = scale * torch.randn(1, 3, 16, 16, generator=generator)
    program = openneutron.compile(Fourths(), (x,), calibration=[(x,)])
    right = Fourths()(x)
    found = program.run(x)[0]
    assert 10 * torch.log10(right.square().sum() / (found - right).square().sum()) > least  # 27 dB with one table


def test_results_that_are_missing_are_those_of_the_nearest_value() -> None:
    values = np.array([np.nan, 1.0, np.nan, np.nan, 4.0, np.nan, 6.0, np.nan])
    assert units._without_gaps(values).tolist() == [1, 1, 1, 4, 4, 4, 6, 6]
    assert units._without_gaps(np.full(3, np.nan)).tolist() == [0, 0, 0]


class Recurrence(nn.Module):
    """Four steps of ``gate * state + key outer value``, as in gated linear attention. ``has_gate`` False leaves the gates out."""

    def __init__(self, has_gate: bool = True) -> None:
        super().__init__()
        self.has_gate = has_gate

    def forward(
        self, state: torch.Tensor, gates: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        outputs = []
        for gate, key, value in zip(gates, keys, values, strict=True):
            state = (torch.sigmoid(gate).unsqueeze(-1) * state if self.has_gate else state) + key.unsqueeze(
                -1
            ) @ value.unsqueeze(-2)
            outputs.append(state.sum(-2))
        return torch.stack(outputs)


def test_a_state_that_is_carried_from_step_to_step_is_wide() -> None:
    generator = torch.Generator().manual_seed(3)
    shapes = ((1, 2, 8, 8), *((4, 1, 2, 8),) * 3)
    inputs = tuple(torch.randn(shape, generator=generator) for shape in shapes)
    found = operands(quantized(NeutronQuantizer(), Recurrence(), inputs))
    assert (set(found["add"]), set(found["mul"]), set(found["sum"])) == ({"int16"}, {"int16"}, {"int8"})
    assert set(operands(quantized(NeutronQuantizer(), Recurrence(has_gate=False), inputs))["add"]) == {"int8"}
    program = openneutron.compile(Recurrence(), inputs, calibration=[inputs])
    right = Recurrence()(*inputs)
    error = (program.run(*inputs)[0] - right).square().sum()
    assert 10 * torch.log10(right.square().sum() / error) > 36
