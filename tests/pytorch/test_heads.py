# SPDX-License-Identifier: BSD-3-Clause
"""Results that concatenate parts of different ranges keep the accuracy of each part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

import openneutron
from openneutron import QuantizationOptions
from openneutron.errors import OpenNeutronWarning
from openneutron.options import Request
from openneutron.pytorch.graph.program import joins_output
from openneutron.pytorch.quantizer.heads import split_heads
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.source.exporting import FirstSamples, aten_graph
from tests.pytorch.small_models import without_lines

_aten = torch.ops.aten


class Head(nn.Module):
    """Boxes in pixels and scores of one feature map."""

    def __init__(self, join: Callable[..., object]) -> None:
        super().__init__()
        self.box, self.score = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 2, 1)
        self.box.weight.data *= 300
        self.join = join

    def forward(self, x: Tensor) -> object:
        return self.join(self.box(x), self.score(x).sigmoid())


def samples(count: int = 8) -> list[tuple[Tensor, ...]]:
    torch.manual_seed(3)
    return [(torch.randn(1, 3, 4, 6),) for _ in range(count)]


def prepared(join: Callable[..., object], given: list[tuple[Tensor, ...]] | None = None) -> GraphModule:
    """Return the graph of a head after the quantizer's passes."""
    torch.manual_seed(5)
    quantizer = NeutronQuantizer()
    quantizer.samples = None if given is None else FirstSamples(given)
    return quantizer.transform_for_annotation(
        aten_graph(Request(model=Head(join).eval(), example_inputs=samples(1)[0], name="head")).module
    )


def operators(module: GraphModule, joins: bool) -> list[str]:
    """Return the operators that join parts in float, or all others."""
    nodes = [node for node in module.graph.nodes if node.op == "call_function"]
    return [str(node.target).split(".")[1] for node in nodes if joins_output(node) is joins]


JOINS: dict[str, tuple[Callable[..., object], list[str]]] = {
    "cat": (lambda b, s: torch.cat([b, s], 1), ["cat"]),
    "flattened": (lambda b, s: torch.cat([b, s], 1).flatten(2), ["cat"]),
    "anchors first": (lambda b, s: torch.cat([b, s], 1).flatten(2).permute(0, 2, 1), ["cat"]),
    "as one row": (lambda b, s: torch.cat([b, s], 1).flatten(), ["cat"]),
    "levels": (lambda b, s: torch.cat([torch.cat([b, s], 1).flatten(2)] * 2, 2), ["cat"]),
    "stack": (lambda b, s: torch.stack([b[:, 0], s[:, 1]]), ["cat"]),
    "stack behind, as one row": (lambda b, s: torch.stack([b[:, 0], s[:, 1]], -1).flatten(1), ["cat", "reshape"]),
    "flipped": (lambda b, s: torch.cat([b, s], 1).flip(2), ["cat"]),
    "rows of each": (lambda b, s: torch.cat([b, s], 1)[:, :, 1:3, ::2], ["cat"]),
    "three parts": (lambda b, s: torch.cat([b[:, :2], s, b[:, 2:]], 1), ["cat"]),
    "one range": (lambda b, s: torch.cat([b[:, :2], b[:, 2:] * 2], 1), []),
    "split again": (lambda b, s: torch.cat([b, s], 1).split((4, 2), 1), []),
    "split into other parts": (lambda b, s: torch.cat([b, s], 1).flatten(2).split((3, 3), 1), ["cat"]),
    "split levels": (
        lambda b, s: torch.cat([torch.cat([b, s], 1).flatten(2), torch.cat([2 * b, s], 1).flatten(2)], 2).split(
            (4, 2), 1
        ),
        [],
    ),
    "computed on": (lambda b, s: (lambda y: (y, y.amax(1)))(torch.cat([b, s], 1)), ["cat"]),
}


@pytest.mark.parametrize("name", JOINS)
def test_shape_operators_go_in_front_of_the_join(name: str) -> None:
    join, joined = JOINS[name]
    module = prepared(join, samples())
    assert operators(module, joins=True) == joined
    (sample,) = samples(1)
    torch.manual_seed(5)
    for got, wanted in zip(
        torch.utils._pytree.tree_leaves(module(*sample)),
        torch.utils._pytree.tree_leaves(Head(join)(*sample)),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted)
    if name.startswith("split") and not joined:
        assert "split" not in operators(module, joins=False) and not any(
            node.target is _aten.slice.Tensor for node in module.graph.nodes
        )


def test_ranges_that_functions_fix_are_known_without_samples() -> None:
    assert operators(prepared(lambda b, s: torch.cat([b, s], 1)), joins=True) == ["cat"]
    assert operators(prepared(lambda b, s: torch.cat([b, b * 2], 1)), joins=True) == []


def test_a_result_of_many_parts_keeps_one_scale() -> None:
    many = prepared(lambda b, s: torch.cat([b[:, :1], s[:, :1]] * 9, 1), samples())
    assert not split_heads(many, FirstSamples(samples()))
    assert operators(many, joins=True) == []


def test_first_samples_are_read_once() -> None:
    given = FirstSamples(iter(range(5)))
    assert given.first(2) == [0, 1]
    assert given.first(1) == [0]
    assert list(given) == [0, 1, 2, 3, 4]
    assert list(FirstSamples(iter(range(2)))) == [0, 1]


def decoded(b: Tensor, s: Tensor) -> tuple[Tensor, ...]:
    """Return a detector's result in three forms: joined, written into slices, and the joined levels split again."""
    y = torch.cat([b, s], 1).flatten(2).transpose(1, 2)
    written = torch.cat([b, s], 1)
    written[:, :2] = (b[:, :2] / 300).exp()
    written[:, [2, 3]] = s * 300
    return y, written, *torch.cat([y, y], 1).split((4, 2), 2)


def ratio(wanted: Tensor, got: Tensor) -> float:
    return float(10 * torch.log10(wanted.square().sum() / (wanted - got).square().sum()))


def test_each_part_has_its_own_scale_in_one_call() -> None:
    torch.manual_seed(5)
    model = Head(decoded).eval()
    program = openneutron.compile(model, samples()[0], calibration=iter(samples()))
    assert program.report.whole
    assert program.delegation.on_cpu == ()
    wanted, got = [], []
    for sample in samples():
        wanted.append(torch.utils._pytree.tree_leaves(model(*sample)))
        got.append([torch.as_tensor(item) for item in program.run(*sample)])
    whole = (
        [torch.cat(items) for items in zip(*wanted, strict=True)],
        [torch.cat(items) for items in zip(*got, strict=True)],
    )
    for want, have in zip(*whole, strict=True):
        assert want.shape == have.shape
    assert [len(item.parts) for item in program.outputs] == [2, 3, 2, 2]
    assert all(not item.lost for item in program.outputs)
    y, _, boxes, scores = range(4)
    for place, part in ((y, slice(0, 4)), (y, slice(4, 6)), (boxes, slice(0, 4)), (scores, slice(0, 2))):
        assert ratio(whole[0][place][..., part], whole[1][place][..., part]) > 35


def test_with_int8_outputs_a_result_keeps_one_scale_and_the_compile_warns() -> None:
    torch.manual_seed(5)
    model = Head(lambda b, s: torch.cat([b, s], 1)).eval()
    with pytest.warns(OpenNeutronWarning) as seen:
        program = openneutron.compile(
            model, samples()[0], calibration=samples(), quantization=QuantizationOptions(io_dtype="int8")
        )
    (caught,) = [item for item in seen if item.category is OpenNeutronWarning]
    assert without_lines(str(caught.message)) == (
        "'model': result 0 part sigmoid (test_heads.py) [:, 4:6] is constant, against float on 4 calibration samples. A result of "
        "io_dtype='int8' has one scale for all of its parts. Return the parts as results of their own, or leave io_dtype out."
    )
    assert caught.filename == __file__
    assert program.report.whole
    assert [str(item.dtype) for item in program.run(torch.zeros(1, 3, 4, 6, dtype=torch.int8))] == ["torch.int8"]
    (found,) = program.recompile(sram_budget=64 * 1024).report.to_dict()["outputs"]
    assert found["samples"] == 4 and 30 < found["db"] < 50
    assert [(without_lines(part["name"]), part["place"], part["is_constant"]) for part in found["parts"]] == [
        ("box", "[:, 0:4]", False),
        ("sigmoid (test_heads.py)", "[:, 4:6]", True),
    ]
    assert without_lines(str(program.report.outputs[0].parts[1])) == "sigmoid (test_heads.py) [:, 4:6] is constant"


def test_channels_of_one_layer_with_two_ranges_are_parts_too(tmp_path: Path) -> None:
    """A compile from the cache warns as the first one does."""
    torch.manual_seed(5)
    layer = nn.Conv2d(3, 6, 1).eval()
    layer.weight.data[:4] *= 300
    for _ in range(2):
        with pytest.warns(OpenNeutronWarning) as seen:
            program = openneutron.compile(layer, samples()[0], calibration=samples(), cache=tmp_path)
        (caught,) = [item for item in seen if item.category is OpenNeutronWarning]
        assert str(caught.message) == (
            "'model': result 0 part channels [:, 4:6] is constant, against float on 4 calibration samples. One layer computes channels "
            "of different ranges with one scale. Compute them with a layer for each range, and concatenate."
        )
    assert "is constant" in str(program.summary())
