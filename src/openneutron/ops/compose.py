# SPDX-License-Identifier: BSD-3-Clause
"""Compositions of operators: each method adds one node and returns the name of its result."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from openneutron.ir import DType, Graph, Node, QuantParams, Tensor, constant
from openneutron.ir.graph import AttrValue
from openneutron.ops.table import Composition


class Parts:
    """The nodes that ``node`` of ``graph`` is made of, under construction.

    Helpers take tensors by name. Where ``output`` is given, it names a tensor of the graph that the helper's node computes;
    otherwise a new tensor with the type and quantization of its source holds the result.
    """

    def __init__(self, graph: Graph, node: Node) -> None:
        self._graph = graph
        self._node = node
        self._nodes: list[Node] = []
        self._tensors: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors.get(name) or self._graph[name]

    def _name(self) -> str:
        name = f"{self._node.name}/{len(self._tensors)}"
        while name in self._graph.tensors:
            name += "_"
        return name

    def constant(self, data: npt.ArrayLike, quant: QuantParams | None = None) -> str:
        """Add a constant tensor."""
        tensor = constant(self._name(), data, quant)
        self._tensors[tensor.name] = tensor
        return tensor.name

    def integers(self, values: Sequence[int]) -> str:
        """Add a constant int32 vector."""
        return self.constant(np.array(values, np.int32).reshape(-1))

    def new(self, shape: Sequence[int], dtype: DType, quant: QuantParams | None) -> str:
        """Add a tensor that a node computes."""
        tensor = Tensor(self._name(), tuple(shape), dtype, quant)
        self._tensors[tensor.name] = tensor
        return tensor.name

    def add(self, op: str, inputs: Sequence[str], output: str, **attrs: AttrValue) -> str:
        """Add a node that computes ``output``."""
        self._nodes.append(Node(op, tuple(inputs), (output,), attrs, self._node.source))
        return output

    def _result(self, output: str | None, shape: Sequence[int], source: str) -> str:
        return output or self.new(shape, self[source].dtype, self[source].quant)

    def reshape(self, source: str, shape: Sequence[int], output: str | None = None) -> str:
        """Add a RESHAPE to this shape."""
        result = self._result(output, shape, source)
        return self.add("reshape", [source, self.integers(shape)], result, new_shape=tuple(shape))

    def transpose(self, source: str, order: Sequence[int], output: str | None = None) -> str:
        """Add a TRANSPOSE to this order of axes."""
        shape = [self[source].shape[axis] for axis in order]
        return self.add("transpose", [source, self.integers(order)], self._result(output, shape, source))

    def pad(self, source: str, amounts: npt.NDArray[np.int32], output: str | None = None) -> str:
        """Add a PAD with the zero point; ``amounts`` has a row (before, after) for each axis."""
        shape = [extent + int(sum(pair)) for extent, pair in zip(self[source].shape, amounts, strict=True)]
        return self.add("pad", [source, self.constant(amounts)], self._result(output, shape, source))

    def slice(self, source: str, begin: Sequence[int], size: Sequence[int], output: str | None = None) -> str:
        """Add a SLICE of the box of this size that starts at ``begin``."""
        operands = [source, self.integers(begin), self.integers(size)]
        return self.add("slice", operands, self._result(output, size, source))

    def concatenate(self, pieces: Sequence[str], axis: int, output: str | None = None) -> str:
        """Add a CONCATENATION of the pieces along an axis."""
        shape = list(self[pieces[0]].shape)
        shape[axis] = sum(self[piece].shape[axis] for piece in pieces)
        result = self._result(output, shape, pieces[0])
        return self.add("concatenation", pieces, result, axis=axis, activation="NONE")

    def gather(self, source: str, indices: str, output: str | None = None) -> str:
        """Add a GATHER of the slices of axis 0 at ``indices``."""
        shape = (*self[indices].shape, *self[source].shape[1:])
        return self.add("gather", [source, indices], self._result(output, shape, source), axis=0, batch_dims=0)

    def rows(self, source: str, row: Sequence[int]) -> str:
        """Reshape to a matrix whose rows have as many elements as the shape ``row``."""
        width = math.prod(row)
        return self.reshape(source, (self[source].elements // max(width, 1), width))

    def done(self) -> Composition:
        """Return the nodes in order, and the tensors they use beside the graph's."""
        return Composition(tuple(self._nodes), tuple(self._tensors.values()))
