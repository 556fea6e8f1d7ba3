# SPDX-License-Identifier: BSD-3-Clause
"""The operators and limits that NXP publishes for the releases of its SDK: one file each in ``published``, with its source.

A limit is a line such as ``kernel at most 4096``: a fact of ``FACTS``, a relation of ``RELATIONS``, and one or more whole
numbers. All values of the fact must keep to it. The line is also the text of messages.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from openneutron.compiler.legalize.partition import operator_title
from openneutron.errors import InvalidOptionError
from openneutron.ir import DType, Graph, Node, Tensor
from openneutron.options.flags import did_you_mean

FOLDER = Path(__file__).with_name("published")

Fact = Callable[[Graph, Node], Iterable[float]]


def _inputs(graph: Graph, node: Node) -> list[Tensor]:
    return [graph[name] for name in node.inputs if name is not None]


def _input(graph: Graph, node: Node) -> Tensor:
    """Return the activation that a node reads: the third operand of a TRANSPOSE_CONV, the first of others."""
    name = node.inputs[2 if node.op == "transpose_conv" else 0]
    assert name is not None
    return graph[name]


def _kernel(graph: Graph, node: Node) -> tuple[int, int]:
    """Return the height and width of the kernel, from the attributes of a pool or from the weights [O, H, W, I]."""
    if "kernel_h" in node.attrs:
        return int(_number(node, "kernel_h")), int(_number(node, "kernel_w"))
    shape = _inputs(graph, node)[1].shape
    return shape[1], shape[2]


def _number(node: Node, name: str) -> float:
    value = node.attrs.get(name, 1)
    assert isinstance(value, (bool, int, float))
    return float(value)


def _stride(node: Node) -> tuple[float, float]:
    return _number(node, "stride_h"), _number(node, "stride_w")


def _axes(graph: Graph, node: Node) -> list[int]:
    data = _inputs(graph, node)[1].data
    rank = len(_inputs(graph, node)[0].shape)
    return [] if data is None else [int(axis) % rank for axis in data.reshape(-1).tolist()]


def _area(graph: Graph, node: Node, multiple: int) -> Iterable[int]:
    channels = _input(graph, node).shape[-1]
    return (math.prod(_kernel(graph, node)) * -(-channels // multiple) * multiple,)


def _scales(graph: Graph, node: Node) -> list[float]:
    before, after = _input(graph, node).shape, graph[node.name].shape
    less = 1 if node.attrs.get("align_corners") else 0
    pairs = zip(before[1:3], after[1:3], strict=True)
    return [(new - less) / (old - less) if old > less else math.inf for old, new in pairs]


def _joined(graph: Graph, node: Node) -> list[int]:
    return [tensor.shape[-1] for tensor in (*_inputs(graph, node), graph[node.name])]


def _joined_unless_alike(graph: Graph, node: Node) -> list[int]:
    shapes = {tensor.shape for tensor in _inputs(graph, node)}
    rank = len(graph[node.name].shape)
    return [] if len(shapes) == 1 and _number(node, "axis") % rank == rank - 1 else _joined(graph, node)


def _matching(graph: Graph, node: Node, of: Callable[[Tensor], object]) -> tuple[int]:
    wanted = of(graph[node.name])
    return (sum(of(tensor) == wanted for tensor in _inputs(graph, node)),)


def _sliced(graph: Graph, node: Node) -> list[int]:
    before, after = _input(graph, node).shape, graph[node.name].shape
    return [old for old, new in zip(before, after, strict=False) if old != new]


def _padded_channels(graph: Graph, node: Node) -> list[int]:
    data = _inputs(graph, node)[1].data
    return [] if data is None else [int(amount) for amount in data.reshape(-1, 2)[-1].tolist()]


FACTS: Mapping[str, Fact] = {
    "kernel": _kernel,
    "kernel height": lambda graph, node: _kernel(graph, node)[:1],
    "kernel width": lambda graph, node: _kernel(graph, node)[1:],
    "kernel area times channels": lambda graph, node: _area(graph, node, 1),
    "kernel area times channels, rounded up to 8": lambda graph, node: _area(graph, node, 8),
    "kernel width over stride width": lambda graph, node: (_kernel(graph, node)[1] / _stride(node)[1],),
    "stride": lambda _graph, node: _stride(node),
    "stride height": lambda _graph, node: _stride(node)[:1],
    "stride width": lambda _graph, node: _stride(node)[1:],
    "stride beyond the kernel": lambda graph, node: (
        step - size for step, size in zip(_stride(node), _kernel(graph, node), strict=True)
    ),
    "dilation": lambda _graph, node: (_number(node, "dilation_h"), _number(node, "dilation_w")),
    "groups": lambda graph, node: (_input(graph, node).shape[-1] / _inputs(graph, node)[1].shape[-1],),
    "constant weights": lambda graph, node: (float(_inputs(graph, node)[1].is_constant),),
    "batch": lambda graph, node: _input(graph, node).shape[:1],
    "rank": lambda graph, node: (len(_input(graph, node).shape),),
    "channels": lambda graph, node: graph[node.name].shape[-1:],
    "input channels": lambda graph, node: _input(graph, node).shape[-1:],
    "elements": lambda graph, node: (graph[node.name].elements,),
    "positions": lambda graph, node: (math.prod(graph[node.name].shape[:-1]),),
    "positions of an image": lambda graph, node: (math.prod(graph[node.name].shape[1:-1]),),
    "axis": lambda graph, node: (_number(node, "axis") % len(graph[node.name].shape),),
    "axes": _axes,
    "count of axes": lambda graph, node: (len(_axes(graph, node)),),
    "keep_dims": lambda _graph, node: (_number(node, "keep_dims"),),
    "scale": _scales,
    "scales that differ": lambda graph, node: (len(set(_scales(graph, node))) - 1,),
    "inputs": lambda graph, node: (len(_inputs(graph, node)),),
    "inputs of the output's shape": lambda graph, node: _matching(graph, node, lambda tensor: tensor.shape),
    "inputs of the output's size": lambda graph, node: _matching(graph, node, lambda tensor: tensor.elements),
    "concatenated channels": _joined,
    "concatenated channels, unless equal shapes are joined along the last axis": _joined_unless_alike,
    "extents that 8 divides, or all extents 1": lambda graph, node: (
        any(extent % 8 == 0 for extent in graph[node.name].shape) or set(graph[node.name].shape) <= {1},
    ),
    "extents of the matrices": lambda graph, node: (
        extent for tensor in _inputs(graph, node) for extent in tensor.shape[-2:]
    ),
    "zero points of the inputs": lambda graph, node: (
        zero for tensor in _inputs(graph, node) if tensor.quant is not None for zero in tensor.quant.zero_points
    ),
    "sliced extent": _sliced,
    "padding of channels": _padded_channels,
}
"""The facts of a node that a limit may be about, each with its values."""

RELATIONS: Mapping[str, Callable[[float, Sequence[int]], bool]] = {
    "at most": lambda value, bound: value <= bound[0],
    "at least": lambda value, bound: value >= bound[0],
    "exactly": lambda value, bound: value == bound[0],
    "multiple of": lambda value, bound: value % bound[0] == 0,
    "one of": lambda value, bound: value in bound,
}

_LINE = re.compile(rf"(?P<fact>.+) (?P<relation>{'|'.join(RELATIONS)}) (?P<bound>\d+(?:, \d+)*)")


@dataclass(frozen=True, slots=True)
class Limit:
    """A published limit of an operator. ``text`` is its line in the file."""

    text: str

    def broken_by(self, graph: Graph, node: Node) -> str | None:
        """Return the limit and the value of the node that breaks it in words; None where the node keeps to it."""
        found = _LINE.fullmatch(self.text)
        assert found is not None and found["fact"] in FACTS, f"'{self.text}' is no limit"
        bound = [int(number) for number in found["bound"].split(",")]
        for value in FACTS[found["fact"]](graph, node):
            if not RELATIONS[found["relation"]](value, bound):
                return f"{self.text}; it is {value:g}"
        return None


@dataclass(frozen=True, slots=True)
class Release:
    """What NXP publishes of a release of its SDK. ``operators`` has the limits of each operator by LiteRT's name.
    ``targets`` are the chips that the publication is about, and ``source`` is its address."""

    name: str
    targets: tuple[str, ...]
    source: str
    types: tuple[DType, ...]
    operators: Mapping[str, tuple[Limit, ...]]

    def lists(self, node: Node) -> bool:
        """Return whether the publication names the node's operator."""
        return operator_title(node) in self.operators

    def broken_limit(self, graph: Graph, node: Node) -> str | None:
        """Return the first published limit that a node breaks, in words. The types of the release count as limits of
        all tensors of the node that are not constants. None is returned where the node keeps to all limits, or its
        operator is not listed."""
        if not self.lists(node):
            return None
        carried = [name for name in (*node.inputs, *node.outputs) if name is not None and not graph[name].is_constant]
        for name in carried:
            if graph[name].dtype not in self.types:
                return f"types {', '.join(map(str, self.types))}; '{name}' is {graph[name].dtype}"
        broken = (limit.broken_by(graph, node) for limit in self.operators[operator_title(node)])
        return next((text for text in broken if text is not None), None)


@cache
def names() -> tuple[str, ...]:
    """Return the names of the releases, the oldest first."""
    found = [path.stem for path in FOLDER.glob("*.toml")]
    # The quarters 25.03 to 25.12 came before versions 2.2.2 and later.
    return tuple(sorted(found, key=lambda name: (name.count(".") > 1, [int(part) for part in name.split(".")])))


@cache
def get(name: str) -> Release:
    """Return a release by its name. ``name`` can also be the beginning of a name: the newest release that begins with
    these numbers is then returned, such as 3.1.3 for 3.1. Raises InvalidOptionError where no release has such a name.
    """
    fits = [each for each in names() if each == name or each.startswith(f"{name}.")]
    if not fits:
        raise InvalidOptionError(
            f"release: nothing is published of '{name}'; there are {', '.join(names())}.{did_you_mean(name, names())}"
        )
    facts = tomllib.loads((FOLDER / f"{fits[-1]}.toml").read_text())
    limits = {op: tuple(map(Limit, lines)) for op, lines in facts["operators"].items()}
    types = tuple(DType(each) for each in facts["types"])
    return Release(facts["release"], tuple(facts["targets"]), facts["source"], types, limits)


def of_sdk(version: str) -> Release:
    """Return the release of an installed SDK: that of its version, or else the newest that is published."""
    return get(version) if version in names() else get(names()[-1])
