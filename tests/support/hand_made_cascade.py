# SPDX-License-Identifier: BSD-3-Clause
"""Three operators, and programs of schedules that are written by hand."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from openneutron.compiler import CompileOptions
from openneutron.compiler.driver import finish
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.rewrite.passes import select_calls
from openneutron.compiler.schedule.schedule import Schedule
from openneutron.ir import Graph, Node, constant, per_channel
from tests.support import oracle

CONV = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "activation": "NONE"}


def three_operators() -> Graph:
    generator = np.random.default_rng(7)

    def weights(name: str, shape: tuple[int, ...], axis: int) -> object:
        scales = generator.uniform(0.001, 0.02, shape[axis])
        return constant(name, generator.integers(-127, 128, shape, np.int8), per_channel(scales, axis))

    def bias(name: str, count: int) -> object:
        return constant(name, generator.integers(-2000, 2000, count, np.int32))

    strided = {**CONV, "stride_h": 2, "stride_w": 2, "depth_multiplier": 1, "activation": "RELU6"}
    return oracle.graph_of(
        [oracle.activation("x", (1, 16, 16, 8), 0.05, -5)],
        [
            Node("conv_2d", ("x", "wa", "ba"), ("a",), CONV),
            Node("depthwise_conv_2d", ("a", "wb", "bb"), ("b",), strided),
            Node("conv_2d", ("b", "wc", "bc"), ("c",), CONV),
        ],
        [
            weights("wa", (16, 3, 3, 8), 0),
            bias("ba", 16),
            oracle.activation("a", (1, 16, 16, 16), 0.1, 4),
            weights("wb", (1, 3, 3, 16), 3),
            bias("bb", 16),
            oracle.activation("b", (1, 8, 8, 16), 6 / 255, -128),
            weights("wc", (24, 1, 1, 16), 0),
            bias("bc", 24),
            oracle.activation("c", (1, 8, 8, 24), 0.02, 1),
        ],
    )


def compiled_with(graph: Graph, steps: tuple, rings: dict[str, int], options: CompileOptions = CompileOptions()):
    legal = legalize(graph)
    storages, calls = select_calls(legal)
    schedule = Schedule(tuple(calls), steps, MappingProxyType(rings))
    return finish(graph, legal, storages, schedule, oracle.TARGET, options)
