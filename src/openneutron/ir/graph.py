# SPDX-License-Identifier: BSD-3-Clause
"""The graph every stage before kernel selection works on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from openneutron.ir.types import Tensor

AttrValue = Any
"""int, float, bool, str, or a tuple of these."""


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operator: ``op`` is a row's name in the operator table (or a LiteRT name it does not have).

    ``inputs`` and ``outputs`` are tensor names; an absent optional operand is None. ``source`` says where the node
    came from (a PyTorch module path, or the operator's index in a file), for messages only.
    """

    op: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)
    source: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "attrs", MappingProxyType(dict(self.attrs)))

    @property
    def name(self) -> str:
        """The first output's name, which is unique in a graph."""
        return self.outputs[0]

    def __getitem__(self, attr: str) -> AttrValue:
        return self.attrs[attr]

    def with_attrs(self, **changes: AttrValue) -> Node:
        return replace(self, attrs={**self.attrs, **changes})

    def __str__(self) -> str:
        operands = ", ".join("-" if name is None else f"%{name}" for name in self.inputs)
        attrs = "".join(f" {key}={_attr_text(value)}" for key, value in self.attrs.items())
        return f"{', '.join(f'%{name}' for name in self.outputs)} = {self.op}({operands}){attrs}"


def _attr_text(value: AttrValue) -> str:
    if isinstance(value, tuple):
        return "(" + ",".join(_attr_text(item) for item in value) + ")"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Nodes in execution order, over tensors by name.

    ``tensors`` holds every tensor that a node, an input or an output names; insertion order carries no meaning.
    """

    name: str
    tensors: Mapping[str, Tensor]
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", MappingProxyType(dict(self.tensors)))

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def operand(self, node: Node, index: int) -> Tensor | None:
        """The node's operand at ``index``; None where it is absent or past the end."""
        if index >= len(node.inputs):
            return None
        name = node.inputs[index]
        return None if name is None else self.tensors[name]

    def given(self, node: Node, index: int) -> Tensor:
        """Return the node's operand at ``index``; asserts that it is there."""
        tensor = self.operand(node, index)
        assert tensor is not None
        return tensor

    def producers(self) -> dict[str, Node]:
        """Tensor name to the node that computes it."""
        return {name: node for node in self.nodes for name in node.outputs}

    def consumers(self) -> dict[str, list[Node]]:
        """Tensor name to the nodes that read it, in order; tensors nobody reads are absent."""
        users: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(name for name in node.inputs if name is not None):
                users.setdefault(name, []).append(node)
        return users

    def free_name(self, name: str) -> str:
        """Return the name, with underscores behind it until no tensor has it."""
        while name in self.tensors:
            name += "_"
        return name

    def rebuilt(self, nodes: Iterable[Node], new_tensors: Iterable[Tensor] = ()) -> Graph:
        """The same graph with these nodes, with ``new_tensors`` added or replaced and unnamed tensors dropped."""
        nodes = tuple(nodes)
        table = {**self.tensors, **{tensor.name: tensor for tensor in new_tensors}}
        used = {*self.inputs, *self.outputs}
        for node in nodes:
            used.update(name for name in node.inputs if name is not None)
            used.update(node.outputs)
        return replace(self, nodes=nodes, tensors={name: tensor for name, tensor in table.items() if name in used})

    def verify(self) -> None:
        """Asserts single assignment, execution order, and that every name is known."""
        known = set(self.inputs) | {name for name, tensor in self.tensors.items() if tensor.is_constant}
        for name, tensor in self.tensors.items():
            assert name == tensor.name, f"tensor {tensor.name!r} is filed as {name!r}"
            tensor.verify()
        assigned = set(self.inputs)
        for node in self.nodes:
            for operand in node.inputs:
                known_by_now = operand is None or operand in known
                assert known_by_now, f"{node.op} {node.name!r} reads {operand!r} before it is computed"
            for output in node.outputs:
                assert output in self.tensors, f"{node.op} {node.name!r} writes unknown tensor {output!r}"
                assert output not in assigned, f"{output!r} is computed twice"
                assigned.add(output)
                known.add(output)
        for name in self.outputs:
            assert name in known, f"output {name!r} is never computed"

    def __str__(self) -> str:
        inputs = ", ".join(f"%{name}: {self.tensors[name]}" for name in self.inputs)
        lines = [f"graph {self.name}({inputs}) {{"]
        for name, tensor in sorted(self.tensors.items()):
            if tensor.is_constant:
                lines.append(f"  const %{name}: {tensor}")
        for node in self.nodes:
            lines.append(f"  {node} : {', '.join(str(self.tensors[name]) for name in node.outputs)}")
        lines.append(f"  return {', '.join(f'%{name}' for name in self.outputs)}")
        lines.append("}")
        return "\n".join(lines)
