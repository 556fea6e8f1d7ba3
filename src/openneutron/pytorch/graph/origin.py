# SPDX-License-Identifier: BSD-3-Clause
"""What in the user's own model a node comes from."""

from __future__ import annotations

from torch.fx import Node

from openneutron.pytorch.graph.program import op_name, overload_of


def written(node: Node) -> str:
    """The function or method that the user, or the module the user wrote, called: ``silu`` of the sigmoid it was made of.

    torch.export notes it (``torch_fn``), and keeps it through decompositions; empty where it does not.
    """
    noted = node.meta.get("torch_fn")
    if not noted or not isinstance(noted[1], str):
        return ""
    kind, _, name = noted[1].partition(".")
    if kind == "OpOverload":
        name = name.rpartition(".")[0]
    return "" if "quantize_per" in name else name.strip("_")


def call_of(node: Node) -> str:
    """A name that all nodes made of one call of the user's have in common; empty where it is not known."""
    noted = node.meta.get("torch_fn")
    return str(noted[0]) if noted and written(node) else ""


def base_name(node: Node) -> str:
    """The operator without namespace and overload, and without what makes it another form of the same: ``view`` of
    ``aten.view_copy.default``."""
    parts = op_name(node).split(".")
    name = parts[1] if len(parts) > 1 else parts[0]
    return name.strip("_").removesuffix("_copy")


def title(node: Node) -> str:
    """The operator as the user knows it: ``aten.relu``; ``silu (aten.sigmoid)`` where it is made from another one."""
    parts = op_name(node).split(".")
    operator = ".".join(parts[:2])
    said = written(node)
    return operator if not said or said == base_name(node) else f"{said} ({operator})"


def is_decomposed(node: Node) -> bool:
    """Whether the node is one of several that a call of the user's was taken apart into, as far as names tell."""
    said, base = written(node), base_name(node)
    overload = overload_of(node)
    return bool(said) and overload is not None and said != base and said not in base and base not in said
