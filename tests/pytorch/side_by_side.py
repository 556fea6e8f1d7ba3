# SPDX-License-Identifier: BSD-3-Clause
"""Several operators on the same inputs, compiled as one model, each result checked on its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from tests.pytorch.small_models import IMAGE, Compiled, assert_same_as_litert, compiled


def assert_delegated(
    functions: Mapping[str, Callable[..., Any]], shapes: Sequence[Sequence[int]] = (IMAGE,), most: float = 0.01
) -> Compiled:
    """All of the functions run in one delegate call, compute LiteRT's bytes, and of each result at most the part ``most`` is
    more than one step from the quantized module's."""
    small = compiled(lambda m, *inputs: tuple(function(m, *inputs) for function in functions.values()), shapes)
    assert small.reasons == []
    assert len(small.program.partitions) == 1
    assert_same_as_litert(small.program)
    for name, apart in zip(functions, steps_of_each(small), strict=True):
        assert np.mean(apart > 1) <= most, f"{name}: {dict(zip(*np.unique(apart, return_counts=True), strict=True))}"
    return small


def steps_of_each(small: Compiled) -> list[np.ndarray]:
    """For each result the distances between what ExecuTorch runs and the quantized module, in steps of its own scale."""
    program = small.program
    (output,) = (node for node in program.quantized.graph.nodes if node.op == "output")
    apart: list[list[np.ndarray]] = [[] for _ in output.args[0]]
    for inputs in small.inputs:
        with torch.no_grad():
            wanted = program.quantized(*inputs)
        for place, (got, want) in enumerate(zip(program.run(*inputs), wanted, strict=True)):
            apart[place].append((got - want).abs().numpy().reshape(-1) / _scale(output.args[0][place]))
    return [np.rint(np.concatenate(parts)) for parts in apart]


def _scale(node: Node) -> float:
    while "dequantize" not in str(node.target):
        node = node.all_input_nodes[0]
    scale = node.args[1]
    assert isinstance(scale, float)
    return scale
