# SPDX-License-Identifier: BSD-3-Clause
"""The storages of a graph: tensors that share memory, and the kind of each piece of memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from openneutron.compiler.graph.legalize import VIEWS
from openneutron.compiler.select.calls import KernelCall, View, whole
from openneutron.ir import Graph, Node, Tensor


@dataclass(frozen=True, slots=True)
class Storage:
    """A piece of memory: a graph input, a graph output, a constant, or (none of these) scratch."""

    name: str
    size_bytes: int
    input: int | None = None
    output: int | None = None
    constant: bytes | None = None


@dataclass(frozen=True, slots=True)
class Storages:
    """``of`` leads from a tensor to its storage's name; reshapes share their input's."""

    storages: Mapping[str, Storage]
    of: Mapping[str, str]

    def __getitem__(self, tensor: str) -> Storage:
        return self.storages[self.of[tensor]]

    def __str__(self) -> str:
        """Return a line for each tensor in the storage of another one."""
        return "\n".join(f"%{tensor} is in %{name}" for tensor, name in self.of.items() if tensor != name)


def copy_call(name: str, source: Tensor, destination: str) -> KernelCall:
    """Return a call that copies a whole tensor's bytes to a tensor of the same size."""
    view = whole(source)
    return KernelCall("copy_s8", name, {"input": view, "output": View(destination, view.extents, view.pitches)})


def share(graph: Graph) -> tuple[Storages, dict[str, list[KernelCall]]]:
    """Return the storages of a legalized graph, and for each node's name the copies that a view of it needs after all.

    A view needs a copy where its memory is an input's or a constant's and it is a graph output, or where two graph
    outputs would be one memory. An output that is listed twice is copied to the tensor ``name@position``.
    """
    of: dict[str, str] = {}
    copies: dict[str, list[KernelCall]] = {}
    storages: dict[str, Storage] = {}
    for name, tensor in graph.tensors.items():
        if tensor.data is not None:
            of[name] = name
            storages[name] = Storage(name, tensor.size_bytes, constant=tensor.data.tobytes())
    for position, name in enumerate(graph.inputs):
        of[name] = name
        storages[name] = Storage(name, graph[name].size_bytes, input=position)
    for node in graph.nodes:
        for name in node.outputs:
            of[name] = _root(node, of) if node.op in VIEWS else name
            storages.setdefault(of[name], Storage(of[name], graph[name].size_bytes))
    for position, name in enumerate(graph.outputs):
        root = storages[of[name]]
        if root.input is None and root.output is None and root.constant is None:
            storages[root.name] = Storage(root.name, root.size_bytes, output=position)
            continue
        destination = f"{name}@{position}"
        copies.setdefault(name, []).append(copy_call(destination, graph[name], destination))
        of[destination] = destination
        storages[destination] = Storage(destination, root.size_bytes, output=position)
    return Storages(storages, of), copies


def _root(node: Node, of: Mapping[str, str]) -> str:
    assert node.inputs[0] is not None
    return of[node.inputs[0]]
