# SPDX-License-Identifier: BSD-3-Clause
"""The operators of a compiled file that run on the host core."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from openneutron.compiler.cost.host import HostKind, HostOperator, kind_of
from openneutron.device import pte
from openneutron.ir import Graph, Node
from openneutron.ops.shape import VIEWS


def host_operators(data: bytes) -> tuple[HostOperator, ...]:
    """Return the operators on the host core in a ``.pte``, with the values that each computes from its first tensor."""
    return tuple(operator for method in pte.methods(data) for operator in _of(method))


def host_operators_of_graph(graph: Graph, nodes: Iterable[Node]) -> tuple[HostOperator, ...]:
    """Return those of the nodes of a ``.tflite`` that compute, with the values of their results."""
    return tuple(
        HostOperator(kind_of(node.op), graph[node.outputs[0]].elements if node.outputs else 0)
        for node in nodes
        if node.op not in VIEWS
    )


def _of(method: pte.Method) -> Iterator[HostOperator]:
    calls = [call for call in method.instructions if isinstance(call, (pte.KernelCall, pte.DelegateCall))]
    uses = Counter(index for call in calls for index in set(call.arguments))
    for call in calls:
        if isinstance(call, pte.KernelCall):
            tensors = [index for index in call.arguments if isinstance(method.values[index], pte.TensorValue)]
            shape = method.tensor(tensors[0]).shape if tensors else (0,)
            yield HostOperator(kind_of(call.operator), math.prod(shape), _io_type(method, call, tensors, uses))


def _io_type(method: pte.Method, call: pte.KernelCall, tensors: list[int], uses: Mapping[int, int]) -> str:
    """Return the quantized type of a call that converts an input or output of the method for its only reader or from its only
    maker; empty for other calls."""
    if kind_of(call.operator) is not HostKind.CONVERSION or len(tensors) < 2:
        return ""
    read, written = tensors[0], tensors[-1]
    if read in method.inputs and uses[read] == 1:
        return method.tensor(written).dtype
    return method.tensor(read).dtype if written in method.outputs and uses[written] == 1 else ""
