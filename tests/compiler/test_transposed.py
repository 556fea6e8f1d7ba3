# SPDX-License-Identifier: BSD-3-Clause
"""Transposed convolutions against LiteRT's, and the convolutions that they become."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.select.rules.conv import groups_of, phases
from openneutron.compiler.select.select import select_node
from openneutron.ir import Graph, Node, constant, per_channel
from openneutron.ops import reject
from tests.support import oracle
from tests.support.random_builder import Builder
from tests.support.random_graphs import single
from tests.support.random_transposed import transpose_conv, weights_with_zeros

SEEDS = range(150)


@pytest.mark.parametrize("first", SEEDS[::30])
def test_equal_litert(first: int) -> None:
    for seed in range(first, first + 30):
        oracle.assert_bit_exact(single("transpose_conv", seed), seeds=(seed,))


@pytest.mark.parametrize("seed", range(30))
def test_a_crop_behind_is_not_computed(seed: int) -> None:
    b = Builder(seed)
    source = b.input((1, b.up_to(6), b.up_to(6), b.up_to(9)))
    whole = transpose_conv(b, source)
    assert whole is not None
    begin = [0, *(int(b.random.integers(extent)) for extent in whole.shape[1:3]), 0]
    size = [whole.shape[0], *(b.up_to(whole.shape[axis] - begin[axis]) for axis in (1, 2)), whole.shape[3]]
    part = b.node("slice", [whole, b.integers(*begin), b.integers(*size)], b.new(size, whole.quant))
    last = b.node("relu", [part], b.new(size, whole.quant))
    compiled = oracle.assert_bit_exact(b.graph([last]), seeds=(seed,))
    assert "transpose_conv" in [node.op for node in compiled.graph.nodes]
    assert "slice" not in [node.op for node in legalize(compiled.graph).nodes]


def test_what_is_cropped_and_read_elsewhere_is_computed() -> None:
    b = Builder(3)
    whole = transpose_conv(b, b.input((1, 4, 4, 3)))
    assert whole is not None
    size = [1, 1, 1, whole.shape[3]]
    part = b.node("slice", [whole, b.integers(0, 0, 0, 0), b.integers(*size)], b.new(size, whole.quant))
    graph = b.graph([whole, part])
    assert [node.op for node in legalize(graph).nodes] == ["transpose_conv", "slice"]
    oracle.assert_bit_exact(graph, seeds=(0,))


@pytest.mark.parametrize("axis", [0, 3])
def test_a_crop_of_batches_or_channels_is_a_slice(axis: int) -> None:
    b = Builder(5)
    whole = transpose_conv(b, b.input((3, 4, 4, 3)))
    assert whole is not None and whole.shape[axis] > 1
    size = [extent - (place in (1, axis)) for place, extent in enumerate(whole.shape)]
    part = b.node("slice", [whole, b.integers(0, 0, 0, 0), b.integers(*size)], b.new(size, whole.quant))
    graph = b.graph([part])
    assert [node.op for node in legalize(graph).nodes] == ["transpose_conv", "slice"]
    oracle.assert_bit_exact(graph, seeds=(0,))


def test_each_of_two_crops_is_joined_with_its_own_layer() -> None:
    b = Builder(3)
    source = b.input((1, 5, 4, 3))
    parts = []
    for begin in ((0, 1, 0, 0), (0, 0, 2, 0)):
        whole = transpose_conv(b, source)
        assert whole is not None
        size = [extent - first for extent, first in zip(whole.shape, begin, strict=True)]
        parts.append(b.node("slice", [whole, b.integers(*begin), b.integers(*size)], b.new(size, whole.quant)))
    graph = b.graph(parts)
    assert [node.op for node in legalize(graph).nodes] == ["transpose_conv", "transpose_conv"]
    oracle.assert_bit_exact(graph, seeds=(0,))


def _layer(
    kernel: tuple[int, int], stride: int, channels: tuple[int, int], extent: int = 4, groups: int = 1, dilation: int = 1
) -> Graph:
    """All that the windows cover, with a bias, a scale for each output channel and no zero among the weights but those
    between the groups and of the dilation."""
    random = np.random.default_rng(1)
    inputs, outputs = channels
    spread = tuple((taps - 1) * dilation + 1 for taps in kernel)
    data = np.zeros((outputs, *spread, inputs), np.int8)
    data[:, ::dilation, ::dilation] = random.integers(1, 128, (outputs, *kernel, inputs))
    own = np.arange(outputs)[:, None] // (outputs // groups) == np.arange(inputs) // (inputs // groups)
    data *= own[:, None, None]
    shape = (1, *((extent - 1) * stride + taps for taps in spread), outputs)
    source = oracle.activation("x", (1, extent, extent, inputs), 0.05, 7)
    scales = random.uniform(0.001, 0.003, outputs)
    others = [
        constant("s", np.array(shape, np.int32)),
        constant("w", data, per_channel(scales, 0)),
        constant("b", random.integers(-500, 500, outputs).astype(np.int32), per_channel(scales * 0.05, 0)),
        oracle.activation("y", shape, 0.2, -11),
    ]
    attrs = {"padding": "VALID", "stride_h": stride, "stride_w": stride, "activation": "NONE"}
    return oracle.graph_of([source], [Node("transpose_conv", ("s", "w", "x", "b"), ("y",), attrs)], others)


@pytest.mark.parametrize(
    ("graph", "calls", "kernels"),
    [
        (_layer((2, 2), 2, (16, 8)), 2, {"conv_2d_1x1_s8"}),
        (_layer((4, 4), 2, (3, 5)), 2, {"conv_2d_s8"}),
        (_layer((3, 3), 2, (8, 8)), 4, {"conv_2d_1x1_s8", "conv_2d_s8"}),
        (_layer((5, 5), 1, (8, 8)), 1, {"conv_2d_s8"}),
        (_layer((4, 4), 2, (12, 12), groups=12), 4, {"depthwise_conv_2d_s8"}),
        (_layer((4, 4), 2, (4, 12), groups=4), 4, {"depthwise_conv_2d_s8"}),
        (_layer((3, 3), 1, (8, 12), groups=4), 1, {"conv_2d_s8"}),
        (_layer((3, 3), 1, (8, 8), dilation=3), 1, {"conv_2d_s8"}),
        (_layer((64, 64), 32, (2, 2), 2), 32, {"conv_2d_s8"}),
    ],
    ids=["2x2", "4x4", "3x3", "stride 1", "depthwise", "depth multiplier", "groups", "dilated", "by 32"],
)
def test_no_more_calls_than_phases_that_differ(graph: Graph, calls: int, kernels: set[str]) -> None:
    selected = select_node(graph, graph.nodes[0])
    assert len(selected) == calls
    assert {call.kernel for call in selected} <= kernels
    oracle.assert_bit_exact(graph, seeds=(0,))


def test_multiplies_no_zeros_that_were_put_in() -> None:
    graph = _layer((4, 4), 2, (8, 8), 4)
    calls = select_node(graph, graph.nodes[0])
    # 4 phases of 2x2 taps for each of their 5x5 outputs, those at the borders with some taps outside.
    assert sum(call_cost(call, oracle.TARGET).macs for call in calls) == 10 * 10 * 2 * 2 * 8 * 8


def test_phases_take_every_tap_once() -> None:
    random = np.random.default_rng(2)
    for _ in range(300):
        stride, kernel, inputs = (int(random.integers(1, most)) for most in (5, 9, 6))
        before, behind = (int(random.integers(-2, 4)) for _ in range(2))
        taps = sorted(int(tap) for tap in random.permutation(kernel)[: int(random.integers(kernel + 1))])
        outputs = (inputs - 1) * stride + kernel - before - behind
        if outputs < 1:
            continue
        wanted = sorted(
            (place * stride + tap - before, place, tap)
            for place in range(inputs)
            for tap in taps
            if 0 <= place * stride + tap - before < outputs
        )
        found = []
        written = []
        for phase in phases(outputs, stride, before, taps):
            for number in range(phase.count):
                output = phase.first + number * stride
                written.append(output)
                places = [number - phase.pad + index * phase.dilation for index in range(len(phase.taps))]
                found += [
                    (output, place, tap)
                    for place, tap in zip(places, phase.taps, strict=True)
                    if 0 <= place < inputs and tap in taps
                ]
        assert sorted(found) == wanted
        assert sorted(written) == list(range(outputs))


def test_groups_are_found() -> None:
    random = np.random.default_rng(3)
    for _ in range(200):
        shape = tuple(int(random.integers(1, most)) for most in (13, 3, 3, 13))
        weights = weights_with_zeros(random, shape)  # type: ignore[arg-type]
        groups = groups_of(weights)
        own = np.arange(shape[0])[:, None] * groups // shape[0] == np.arange(shape[3]) * groups // shape[3]
        assert not weights[~np.broadcast_to(own[:, None, None], shape)].any()


def test_limits_have_reasons() -> None:
    graph = _layer((3, 3), 2, (8, 4))
    (node,) = graph.nodes

    def reason(**changed: np.ndarray) -> str | None:
        tensors = {
            **graph.tensors,
            **{name: replace(graph[name], data=data, shape=data.shape) for name, data in changed.items()},
        }
        other = replace(graph, tensors=tensors)
        return reject(other, node)

    assert reason() is None
    assert reason(s=np.array([1, 11, 9, 4], np.int32)) == (
        "it makes 11 of 4 rows; under VALID padding it must be 9 to 10"
    )
    assert (
        reason(s=np.array([1, 9, 8, 4], np.int32)) == "it makes 8 of 4 columns; under VALID padding it must be 9 to 10"
    )
    assert reason(s=np.array([2, 9, 9, 4], np.int32)) == (
        "its output shape is [2, 9, 9, 4]; it must be [1, height, width, 4]"
    )
    assert reason(w=np.zeros((4, 3, 3, 7), np.int8)) == (
        "its weights have shape [4, 3, 3, 7]; they must be [output, height, width, 8]"
    )
    computed = replace(graph, tensors={**graph.tensors, "s": replace(graph["s"], data=None)})
    assert reject(computed, node) == "its output shape 's' is computed at run time; it must be a constant"


def test_the_crop_of_each_side_is_stated() -> None:
    layer = _layer((3, 3), 2, (4, 4))
    begin, size = np.array([0, 1, 3, 0], np.int32), np.array([1, 6, 5, 4], np.int32)
    others = [constant("begin", begin), constant("size", size), oracle.activation("z", (1, 6, 5, 4), 0.2, -11)]
    nodes = [*layer.nodes, Node("slice", ("y", "begin", "size"), ("z",))]
    graph = replace(layer.rebuilt(nodes, others), outputs=("z",))
    assert layer["y"].shape == (1, 9, 9, 4)
    (node,) = legalize(graph).nodes
    assert node["padding"] == (1, 2, 3, 1)
    oracle.assert_bit_exact(graph, seeds=(0,))
