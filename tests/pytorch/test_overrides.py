# SPDX-License-Identifier: BSD-3-Clause
"""Settings for the quantization of single modules and operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import MinMaxObserver

import openneutron
from openneutron.api.pytorch import analyse
from openneutron.errors import InvalidOptionError
from openneutron.options import QuantizationOptions
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.graph.program import KEPT_FLOAT, is_dequantize, is_quantize, op_name
from openneutron.pytorch.operators.families import DECOMPOSITIONS
from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.quantizer.specs import QuantizationConfig, activation_spec, weight_spec

SPEC = NeutronTargetSpec("imxrt700")


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.wide = nn.Linear(8, 16)
        self.out = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(self.out(F.relu_(self.wide(self.norm(x)))), -1)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3)
        )
        self.head = Head()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head((self.features(x) / 2).mean((2, 3)))


def net() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(3)
    return Net().eval(), torch.randn(1, 3, 10, 10)


def quantized(say: Callable[[NeutronQuantizer], Any]) -> GraphModule:
    model, x = net()
    quantizer = NeutronQuantizer(SPEC)
    assert say(quantizer) is quantizer
    return calibrate_and_quantize(torch.export.export(model, (x,)), [(x,)], quantizer)


def is_int8_result(node: Node) -> bool:
    return all(is_quantize(user) for user in node.users)


def float_operators(module: GraphModule) -> list[str]:
    """The operators with float constants, and those without constants whose result is float."""
    found = []
    for node in module.graph.nodes:
        kind = op_name(node).removeprefix("aten.").split(".")[0]
        has_constant, has_none = kind in ("conv2d", "linear"), kind in ("mul", "softmax")
        if (has_constant and not is_dequantize(node.args[1])) or (has_none and not is_int8_result(node)):
            module_name = [path for path, _ in node.meta["nn_module_stack"].values()][-1]
            found.append(f"{kind} {module_name}".strip())
    return found


@pytest.mark.parametrize(
    ("say", "wanted"),
    [
        (lambda q: q, []),
        (lambda q: q.set_module_name("head.out", None), ["linear head.out"]),
        (
            lambda q: q.set_module_name("features.*", None).set_module_name("features.3", QuantizationConfig()),
            ["conv2d features.0"],
        ),
        (lambda q: q.set_module_type(nn.Conv2d, None), ["conv2d features.0", "conv2d features.3"]),
        (
            lambda q: q.set_module_name("head.wide", QuantizationConfig()).set_module_type("Linear", None),
            ["linear head.out"],
        ),
        (lambda q: q.set_operator("aten.linear", None), ["linear head.wide", "linear head.out"]),
        (lambda q: q.set_operator(torch.ops.aten.softmax, None), ["softmax head"]),
        (lambda q: q.set_operator("aten.s*.int", None), ["softmax head"]),
        (lambda q: q.keep_float("head.out", "aten::softmax.int"), ["linear head.out", "softmax head"]),
        (lambda q: q.keep_float(nn.Linear), ["linear head.wide", "linear head.out"]),
        (
            lambda q: q.set_global(None).set_module_name("features", QuantizationConfig()),
            ["mul", "linear head.wide", "linear head.out", "softmax head"],
        ),
    ],
)
def test_what_is_kept_float(say: Callable[[NeutronQuantizer], Any], wanted: list[str]) -> None:
    assert float_operators(quantized(say)) == wanted


def test_operators_are_known_by_the_names_they_have_in_the_model() -> None:
    """In-place ones, quotients that become products, and composite ones."""
    module = quantized(lambda q: q.keep_float("aten.relu_.default", "aten.div.Tensor", "aten.layer_norm.default"))
    relus = [node for node in module.graph.nodes if op_name(node) == "aten.relu.default"]
    assert len(relus) == 2 and all(
        op_name(relu.args[0]) == "quantized_decomposed.dequantize_per_tensor.default" for relu in relus
    )
    (product,) = (node for node in module.graph.nodes if op_name(node) == "aten.mul.Tensor")
    assert product.meta["custom"][KEPT_FLOAT] == "keep_float 'aten.div.Tensor'"
    (norm,) = (node for node in module.graph.nodes if op_name(node) == "aten.layer_norm.default")
    assert norm.args[2].op == "get_attr"


def test_a_kept_composite_operator_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        DECOMPOSITIONS, "aten.softmax.int", lambda self, dim, dtype: torch.exp(self) / torch.exp(self).sum(dim, True)
    )
    assert not calls(quantized(lambda q: q), "softmax")
    assert len(calls(quantized(lambda q: q.keep_float("aten.softmax")), "softmax")) == 1
    assert len(calls(quantized(lambda q: q.keep_float("head")), "softmax")) == 1


def calls(module: GraphModule, name: str) -> list[Node]:
    return [node for node in module.graph.nodes if op_name(node).startswith(f"aten.{name}.")]


def test_other_observers_and_formats() -> None:
    """With a minimum-maximum observer the scale is that of the extremes; linear weights can have a scale per channel."""
    extremes = QuantizationConfig(
        input_activation=activation_spec(observer=MinMaxObserver), weight=weight_spec(channel_axis=0)
    )
    module = quantized(lambda q: q.set_module_name("head.out", extremes))
    linear = calls(module, "linear")[-1]
    assert op_name(linear.args[1]) == "quantized_decomposed.dequantize_per_channel.default"
    assert op_name(linear.args[2]) == "quantized_decomposed.dequantize_per_channel.default"
    assert linear.args[2].args[-1] is torch.int32
    found: list[float] = []
    model, x = net()
    assert isinstance(model, Net)
    model.head.out.register_forward_pre_hook(lambda _, args: found.append(float(args[0].max())))
    model(x)
    assert linear.args[0].args[1] == pytest.approx(found[0] / 255, rel=1e-4)


def test_borders_of_an_operator_that_stay_float() -> None:
    module = quantized(
        lambda q: (
            q.set_module_name("head.out", QuantizationConfig(output_activation=None))
            .set_operator("aten.conv2d", QuantizationConfig(input_activation=None))
            .set_operator("aten.softmax", QuantizationConfig(input_activation=None))
        )
    )
    (softmax,), (_, out) = calls(module, "softmax"), calls(module, "linear")
    assert softmax.args[0] is out and is_dequantize(out.args[0])
    assert is_int8_result(softmax)
    first = calls(module, "conv2d")[0]
    assert first.args[0].op == "placeholder" and first.args[2].op == "get_attr"
    assert is_dequantize(first.args[1])


@pytest.mark.parametrize(
    ("say", "message"),
    [
        (
            lambda q: q.keep_float("hed.out"),
            "keep_float 'hed.out': the model has no such module name. "
            "Did you mean 'head.out' or 'head.norm' or 'head'?",
        ),
        (
            lambda q: q.set_operator("aten.sofmax.int", None),
            "set_operator 'aten.sofmax.int': the model has no such operator. "
            "Did you mean 'aten.softmax.int' or 'aten.mean.dim'?",
        ),
        (
            lambda q: q.set_module_type(nn.LSTM, None),
            "set_module_type 'LSTM': the model has no such module type. "
            "There are 'BatchNorm2d', 'Conv2d', 'Head' and others.",
        ),
        (
            lambda q: q.keep_float(3),
            "keep_float: 3 is a int; give the name of a module or operator, or a class of modules.",
        ),
    ],
)
def test_names_that_are_none(say: Callable[[NeutronQuantizer], Any], message: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        quantized(say)
    assert str(caught.value) == message


def test_names_of_what_is_folded_are_known() -> None:
    assert float_operators(quantized(lambda q: q.keep_float("features.1", nn.BatchNorm2d, "aten.batch_norm"))) == []


def test_the_summary_says_who_keeps_an_operator_float() -> None:
    model, x = net()
    program = analyse(
        model, (x,), calibration=[x], quantization=QuantizationOptions(keep_float=("head.out", "aten.softmax.int"))
    )
    reasons = [str(item) for item in program.delegation.on_cpu]
    for operator, subject, name in (("addmm", "head.out", "head.out"), ("_softmax", "head", "aten.softmax.int")):
        (reason,) = (text for text in reasons if operator in text)
        assert reason.endswith(
            f"'{subject}' stays on the CPU: keep_float '{name}' keeps it float. Take the name out to have it quantized."
        )
    apart = (program.run(x)[0] - program.quantized(x)).abs().max()
    assert float(apart) < 0.02


def test_a_quantized_model_has_no_more_to_keep_float() -> None:
    model, x = net()
    module = calibrate_and_quantize(torch.export.export(model, (x,)), [(x,)], NeutronQuantizer(SPEC))
    with pytest.raises(InvalidOptionError) as caught:
        openneutron.compile(
            torch.export.export(module, (x,)), quantization=QuantizationOptions(keep_float=("head",)), name="net"
        )
    assert str(caught.value) == "keep_float: 'net' is quantized already. Pass the float model."
