# SPDX-License-Identifier: BSD-3-Clause
"""Random int8 graphs in the making."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from openneutron.ir import DType, Graph, Node, QuantParams, Tensor, constant, per_tensor
from openneutron.ir.graph import AttrValue


class Builder:
    """A graph in the making; every choice comes from ``random``."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.inputs: list[str] = []

    def quant(self, scale: float | None = None) -> QuantParams:
        value = scale if scale is not None else float(np.exp(self.random.uniform(np.log(0.005), np.log(0.5))))
        return per_tensor(value, int(self.random.integers(-128, 128)))

    def new(self, shape: Sequence[int], quant: QuantParams | None = None, dtype: DType = DType.INT8) -> Tensor:
        quant = (quant or self.quant()) if dtype is DType.INT8 else None
        tensor = Tensor(f"t{len(self.tensors)}", tuple(shape), dtype, quant)
        self.tensors[tensor.name] = tensor
        return tensor

    def input(self, shape: Sequence[int], quant: QuantParams | None = None, dtype: DType = DType.INT8) -> Tensor:
        tensor = self.new(shape, quant, dtype)
        self.inputs.append(tensor.name)
        return tensor

    def const(self, data: np.ndarray, quant: QuantParams | None = None) -> Tensor:
        tensor = constant(f"c{len(self.tensors)}", data, quant)
        self.tensors[tensor.name] = tensor
        return tensor

    def integers(self, *values: int) -> Tensor:
        return self.const(np.array(values, np.int32))

    def node(self, op: str, inputs: Sequence[Tensor | None], output: Tensor, **attrs: AttrValue) -> Tensor:
        names = tuple(None if tensor is None else tensor.name for tensor in inputs)
        self.nodes.append(Node(op, names, (output.name,), attrs))
        return output

    def choice(self, *options: AttrValue) -> AttrValue:
        return options[int(self.random.integers(len(options)))]

    def up_to(self, most: int) -> int:
        return int(self.random.integers(1, most + 1))

    def graph(self, outputs: Sequence[Tensor]) -> Graph:
        names = tuple(dict.fromkeys(tensor.name for tensor in outputs))
        made = Graph("main", self.tensors, tuple(self.nodes), tuple(self.inputs), names)
        made = made.rebuilt(made.nodes)
        made.verify()
        return made


Sampler = Callable[[Builder, Tensor], Tensor | None]
"""Adds one node that reads a tensor and returns its output, or None where the operator does not take it."""
