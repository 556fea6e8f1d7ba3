# SPDX-License-Identifier: BSD-3-Clause
"""The names in ``operators_not_to_delegate``: operators, nodes, modules.

An operator is named with its overload (``aten.add.Tensor``) or for all overloads of it (``aten.add``); what the user wrote counts
too, so that ``aten.silu`` is every node it was made into. ``::`` is ``.``, and in a compile spec ``_``. A node is named as summaries
name it (``aten_convolution_default_1``), a module by its path, for everything in it (``features.3``). ``*``, ``?`` and ``[...]`` are
wildcards; anything else matches whole names.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from torch.fx import Graph, Node

from openneutron.errors import InvalidOptionError
from openneutron.pytorch.graph.program import is_compute, module_path, op_name, written
from openneutron.pytorch.operators.lowerings import LOWER_RULES

OPTION = "operators_not_to_delegate"

TAKEN_APART = {"aten.linear.default": ("aten.addmm.default", "aten.mm.default")}
"""The names of operators that may stay whole for users of other backends."""

NEAREST, LIKENESS = 2, 0.7


def names_of(node: Node, edge_name: str | None = None) -> set[str]:
    """Return all that a pattern may be to match the node. ``edge_name``: what it will be called in the edge program."""
    return {edge_name or node.name, *_operators_of(node), *_modules_of(node)}


def matching(node: Node, patterns: Sequence[str], edge_name: str | None = None) -> str | None:
    """Return the first pattern that matches the node."""
    names = names_of(node, edge_name) if patterns else ()
    return next((pattern for pattern in patterns if _matches(pattern, names)), None)


def check_names(patterns: Sequence[str], graphs: Iterable[Graph], more: Iterable[str] = ()) -> None:
    """Raise InvalidOptionError for a pattern that matches no node of the graphs (and none of ``more``) and no operator
    we know.

    An operator we know is no mistake where the model does not have it: scripts keep lists of them.
    """
    if not patterns:
        return
    nodes = [node for graph in graphs for node in graph.nodes if is_compute(node)]
    there = {name for node in nodes for name in names_of(node)} | set(more)
    known = {form for name in LOWER_RULES for form in _forms(name)}
    for pattern in patterns:
        if _matches(pattern, there) or _matches(pattern, known):
            continue
        near = _nearest(pattern, nodes)
        hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
        raise InvalidOptionError(f"{OPTION}: '{pattern}' names no operator, node or module of the model.{hint}")


def _nearest(pattern: str, nodes: Sequence[Node]) -> list[str]:
    """Return names to put in place of an unknown one, best first: the model's own, else operators it might have."""
    own = {node.name for node in nodes} | {path for node in nodes for path in _modules_of(node)}
    own |= {
        base for node in nodes for base in (_base(op_name(node)), f"aten.{written(node)}") if not base.endswith(".")
    }
    known = {_base(name) for name in LOWER_RULES}
    for names in (own, known):
        if near := difflib.get_close_matches(pattern, sorted(names), NEAREST, LIKENESS):
            return near
    return []


def _base(name: str) -> str:
    return ".".join(name.split(".")[:2])


def _matches(pattern: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def _operators_of(node: Node) -> Iterable[str]:
    for name in (op_name(node), *TAKEN_APART.get(op_name(node), ())):
        yield from _forms(name)
    if said := written(node):
        yield from _forms(f"aten.{said}.default")


def _forms(name: str) -> Iterable[str]:
    """Yield ``aten.view_copy.default``, ``aten.view_copy``, ``aten.view``, and all three with the first dot as in a
    compile spec."""
    parts = name.split(".")
    if len(parts) < 2:
        return
    base = ".".join(parts[:2])
    for form in (name, base, base.removesuffix("_copy")):
        yield form
        yield form.replace(".", "_", 1)


def _modules_of(node: Node) -> Iterable[str]:
    path = module_path(node)
    while path:
        yield path
        path = path.rpartition(".")[0]
