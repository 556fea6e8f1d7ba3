# SPDX-License-Identifier: BSD-3-Clause
"""Schedules of small graphs as text to read: a change of the compiler shows its effect in tests/golden/schedules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from openneutron import litert
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.device.mixed import compile_file, part_name
from openneutron.ir import Graph, Tensor, per_tensor
from tests.support.litert_files import mixed_file
from tests.support.made_networks import SIGNED, Layers
from tests.support.oracle import TARGET


@dataclass(frozen=True, slots=True)
class Case:
    """A graph and options. ``shows`` are parts of the text without which the case has lost its subject."""

    name: str
    make: Callable[[Layers], Tensor]
    input_shape: tuple[int, ...]
    shows: tuple[str, ...]
    options: CompileOptions = CompileOptions()

    def graph(self) -> Graph:
        layers = Layers(self.name, self.input_shape, 1)
        return layers.graph(self.make(layers))


def budget(sram_budget: int) -> CompileOptions:
    return CompileOptions(sram_budget=sram_budget)


def fetch(sram_budget: int | None = None) -> CompileOptions:
    return CompileOptions(sram_budget=sram_budget, prefetch_constants=True)


def three_convolutions(g: Layers) -> Tensor:
    return g.conv(g.conv(g.conv(g.input, 8, (3, 3)), 8, (3, 3)), 4, (3, 3))


def residual(g: Layers) -> Tensor:
    first = g.conv(g.input, 8)
    return g.conv(g.add(first, g.conv(g.conv(first, 16, (3, 3)), 8, (3, 3))), 4)


def inverted(g: Layers) -> Tensor:
    """An expansion to 64 channels, a depthwise convolution and a projection."""
    return g.conv(g.depthwise(g.conv(g.input, 64)), 4)


def wide_between(g: Layers) -> Tensor:
    return g.conv(g.conv(g.input, 32), 4)


def deep_kernel(g: Layers) -> Tensor:
    return g.conv(g.depthwise(g.conv(g.input, 16)), 8, (5, 5))


def table_between(g: Layers) -> Tensor:
    wide = g.conv(g.input, 16, (3, 3), activation="NONE")
    return g.conv(g.operator("hard_swish", (wide,), wide.shape, SIGNED), 4, (3, 3))


def late_weights(g: Layers) -> Tensor:
    """Tensors are large where the network begins, weights where it ends."""
    last = g.conv(g.conv(g.conv(g.input, 8, (3, 3)), 16, (3, 3), 2), 16, (3, 3), 2)
    return g.fully_connected(g.whole_average(last), 40)


def pointwise_64(g: Layers) -> Tensor:
    return g.conv(g.input, 64)


def two_branches_joined(g: Layers) -> Tensor:
    first = g.conv(g.input, 8, (3, 3), activation="NONE")
    a, b = g.conv(first, 8, (3, 3), activation="NONE"), g.conv(first, 4, activation="NONE")
    return g.operator("concatenation", (a, b), (*a.shape[:3], 12), SIGNED, axis=3)


def half_of_the_channels(g: Layers) -> Tensor:
    first = g.conv(g.input, 16, activation="NONE")
    half = (*first.shape[:3], 8)
    operands = (first, g.constant(0, 0, 0, 8), g.constant(*half))
    return g.conv(g.operator("slice", operands, half, SIGNED), 4, (3, 3))


def rows_4_to_8(g: Layers) -> Tensor:
    first = g.conv(g.input, 16, (3, 3), activation="NONE")
    part = (1, 4, *first.shape[2:])
    return g.conv(g.operator("slice", (first, g.constant(0, 4, 0, 0), g.constant(*part)), part, SIGNED), 4)


def channels_last(g: Layers) -> Tensor:
    """A transpose in front, as for images of PyTorch."""
    _, channels, height, width = g.input.shape
    operands = (g.input, g.constant(0, 2, 3, 1))
    return g.conv(g.operator("transpose", operands, (1, height, width, channels), SIGNED), 8, (3, 3))


def flattened(g: Layers) -> Tensor:
    last = g.conv(g.input, 4, (3, 3), 2, activation="NONE")
    shape = (1, last.elements)
    return g.fully_connected(g.operator("reshape", (last,), shape, SIGNED, new_shape=shape), 10)


def first_layer(g: Layers) -> Tensor:
    return g.conv(g.input, 16, (3, 3), 2)


def sequence(g: Layers) -> Tensor:
    return g.conv(g.conv(g.conv(g.input, 16, (1, 5)), 16, (1, 3)), 4, (1, 3))


def branches_side_by_side(g: Layers) -> Tensor:
    """Both branches are wide before they are narrow, and the graph computes both wide tensors first."""
    a, b = g.conv(g.input, 32), g.conv(g.input, 32)
    return g.add(g.conv(a, 4), g.conv(b, 4))


def two_tables(g: Layers) -> Tensor:
    first = g.conv(g.input, 8, activation="NONE")
    second = g.operator("tanh", (first,), first.shape, per_tensor(1 / 128, 0))
    return g.operator("hard_swish", (second,), first.shape, SIGNED)


def activation_behind(g: Layers) -> Tensor:
    first = g.conv(g.input, 8, activation="NONE")
    return g.operator("relu6", (first,), first.shape, SIGNED)


CASES = (
    Case("whole_tensors", three_convolutions, (1, 12, 8, 3), ("call 2 whole",)),
    Case("caller_io", three_convolutions, (1, 12, 8, 3), ("INPUT",), CompileOptions(io_place="caller")),
    Case("cascade", three_convolutions, (1, 12, 8, 3), ("9 times", "rolling buffer"), budget(768)),
    Case("cascade_residual", residual, (1, 16, 8, 4), ("add_s8", "rolling buffer"), budget(2048)),
    Case("cascade_from_last_row", three_convolutions, (1, 12, 8, 3), ("-3 each time",), budget(1024)),
    Case("cascade_even_rounds", deep_kernel, (1, 12, 4, 8), ("rolling buffer", "call 4 rows 9:10"), budget(800)),
    Case("cascade_in_place", table_between, (1, 12, 8, 4), ("%hard_swish_1 is in %conv_2d_0",), budget(1100)),
    Case("patch_by_columns", inverted, (1, 4, 24, 4), ("in patches", "1x4x12x64"), budget(6528)),
    Case("patch_by_channels", inverted, (1, 6, 6, 4), ("in patches", "1x6x6x32"), budget(2096)),
    Case("prefetch", three_convolutions, (1, 12, 8, 3), ("fetch", "wait"), fetch()),
    Case("prefetch_in_arena", late_weights, (1, 16, 16, 4), ("call 4 to 0x110",), fetch()),
    Case("prefetch_channel_groups", pointwise_64, (1, 4, 4, 64), ("fetch", "1x4x4x24"), fetch(4096)),
    Case("prefetch_cascade", three_convolutions, (1, 12, 8, 3), ("fetch", "times"), fetch(1728)),
    Case("concatenation_as_views", two_branches_joined, (1, 8, 8, 4), ("output=%concatenation_3[1x8x8x4]@8 pitch",)),
    Case("slice_as_view", half_of_the_channels, (1, 8, 8, 4), ("%conv_2d_0[1x8x8x8]@8 pitch",)),
    Case("transpose_as_view", channels_last, (1, 4, 8, 8), ("%input[1x8x8x4]@0 pitch",)),
    Case("reshape", flattened, (1, 8, 8, 4), ("is in",)),
    Case("merged_columns", first_layer, (1, 128, 128, 3), ("pitch",)),
    Case("unread_rows", rows_4_to_8, (1, 12, 8, 4), ("call 0 rows 0:8",)),
    Case("batch_by_batch", wide_between, (3, 4, 4, 4), ("4: conv_2d_1x1_s8(input=%input[1x4x4x4]@128",), budget(1000)),
    Case("sequence_by_rows", sequence, (1, 1, 64, 2), ("[1x64x1x2]", "rows 26:50"), budget(1200)),
    Case("branches_reordered", branches_side_by_side, (1, 8, 8, 4), ("1: conv_2d_1x1_s8(input=%conv_2d_0",)),
    Case("tables_merged", two_tables, (1, 8, 8, 4), ("lookup",)),
    Case("activation_folded", activation_behind, (1, 8, 8, 4), ("clamp_min=4",)),
)


@pytest.mark.imxrt700
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_schedule_of_a_small_graph(case: Case, golden: Callable[[str, str], None]) -> None:
    graph = case.graph()
    text = str(compile_graph(graph, TARGET, case.options))
    golden(f"schedules/{case.name}", f"{graph}\n{text}\n")
    assert [part for part in case.shows if part not in text] == []


def test_partitions_of_a_mixed_file(golden: Callable[[str, str], None]) -> None:
    made = compile_file(litert.read(mixed_file()), "mixed")
    parts = "".join(f"\n{part_name(index)}\n{part}\n" for index, part in enumerate(made.parts))
    golden("schedules/cpu_fallback", f"{made.graph}\n{made.partitioning}\n{parts}")
