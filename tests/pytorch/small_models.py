# SPDX-License-Identifier: BSD-3-Clause
"""One small module around any operator, and what its compiled program computes beside LiteRT and PyTorch."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from openneutron.api.pytorch import CompiledModel, analyse
from tests.support.oracle import random_inputs, reference_outputs, simulated_outputs

IMAGE = (1, 8, 12, 12)


class Around(nn.Module):
    """Layers that ``function`` may use: two convolutions, a batch norm, a linear layer on the last dimension, and the weights
    of one on a whole image."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.point = nn.Conv2d(8, 8, 1)
        self.norm = nn.BatchNorm2d(8)
        self.linear = nn.Linear(12, 5)
        self.relu = nn.ReLU(inplace=True)
        self.columns = nn.Parameter(torch.randn(3, 8 * 12 * 12) / 30)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled small model and the inputs it was calibrated with."""

    program: CompiledModel
    inputs: list[tuple[torch.Tensor, ...]]

    @property
    def operators(self) -> list[str]:
        """The graphs' operators, partition by partition, without the transposes at their borders."""
        return [
            node.op
            for graph in (part.graph for part in self.program.partitions)
            for node in graph.nodes
            if node.op != "transpose" or (node.inputs[0] not in graph.inputs and node.name not in graph.outputs)
        ]

    @property
    def reasons(self) -> list[str]:
        return [without_lines(str(item)) for item in self.program.delegation.on_cpu]


def without_lines(text: str) -> str:
    """Return a text without the numbers of the lines of a model's source."""
    return re.sub(r"\.py:\d+", ".py", text)


def compiled(
    function: Callable[..., Any], shapes: Sequence[Sequence[int]] = (IMAGE,), training: bool = False, **options: Any
) -> Compiled:
    """The function in a module with seeded weights, calibrated with seeded inputs and compiled."""
    torch.manual_seed(7)
    module = Around(function)
    nn.init.normal_(module.norm.running_mean)
    nn.init.uniform_(module.norm.running_var, 0.5, 2.0)
    inputs = [tuple(torch.randn(tuple(shape)) for shape in shapes) for _ in range(4)]
    return Compiled(analyse(module.train(training), inputs[0], calibration=inputs, **options), inputs)


def assert_same_as_litert(program: CompiledModel) -> None:
    """Every partition's program computes LiteRT's bytes."""
    for part in program.partitions:
        inputs = random_inputs(part.graph, 3)
        wanted = reference_outputs(part.graph, inputs)
        for got, want in zip(simulated_outputs(part.compiled, inputs), wanted, strict=True):
            np.testing.assert_array_equal(got, want, str(part.graph))


def outputs_of(result: Any) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else tuple(result) if isinstance(result, list) else (result,)


def sqnr(wanted: torch.Tensor, found: torch.Tensor) -> float:
    """Return the signal-to-quantization-noise ratio in dB."""
    noise = (wanted - found).square().sum().clamp_min(1e-30)
    return 10 * float(torch.log10(wanted.square().sum() / noise))


def steps_apart(small: Compiled) -> np.ndarray:
    """Distances, in steps of the outputs' scales, of what ExecuTorch runs from the quantized PyTorch module."""
    program = small.program
    scales = [part.graph[name].quant.scale for part in program.partitions for name in part.graph.outputs]
    apart = []
    for inputs in small.inputs:
        with torch.no_grad():
            wanted = outputs_of(program.quantized(*inputs))
        for got, want in zip(program.run(*inputs), wanted, strict=True):
            apart.append((got - want).abs().numpy().reshape(-1) / max(scales))
    return np.rint(np.concatenate(apart))
