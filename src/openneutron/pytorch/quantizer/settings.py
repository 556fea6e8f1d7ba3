# SPDX-License-Identifier: BSD-3-Clause
"""The user's settings for single modules, types of modules and operators, and the nodes of a graph that they match."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import QuantizationSpec
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

from openneutron.errors import InvalidOptionError
from openneutron.options import ACTIVATIONS
from openneutron.options.flags import check_choice
from openneutron.pytorch.graph.program import JOINS_OUTPUT, KEPT_FLOAT, LEFT_FLOAT


@dataclass(frozen=True, slots=True)
class Usual:
    """The quantizer's own choice of a spec. ``observer``: the class of observers for ranges that no operator
    decides; None means the default observer."""

    observer: Any = None


USUAL = Usual()

Choice: TypeAlias = QuantizationSpec | Usual | None
"""How a tensor is quantized: by a spec, or by the quantizer's own choice. None keeps it float."""


@dataclass(frozen=True, slots=True)
class QuantizationConfig:
    """The number formats of an operator. A format that is not given is the quantizer's own choice; None keeps a
    tensor float.

    input_activation, output_activation: the formats of tensors that calibration sees. A result whose scale the
    operator fixes (sigmoid) or shares with its input (max pool) keeps that scale.
    weight: the format of constants that are multiplied with the input. A bias is int32 where input and weight are
    int8.
    activations: the type of inputs and outputs without a spec, ``int8`` or ``int16``. None means the type of the
    next less specific setting. Operators that only move values keep the type of their input, so that nothing is
    converted for these alone.

    Raises InvalidOptionError for an unknown type.
    """

    input_activation: Choice = USUAL
    output_activation: Choice = USUAL
    weight: Choice = USUAL
    activations: str | None = None

    def __post_init__(self) -> None:
        if self.activations is not None:
            check_choice("QuantizationConfig.activations", self.activations, ACTIVATIONS)


AS_USUAL = QuantizationConfig()


_CHOSEN = "openneutron_config"
"""The key of ``node.meta`` for the override of the operator that a pass rewrote to this node."""

NAMES_SHOWN = 3


class By(Enum):
    """The kind of name that a pattern is compared with. If several overrides match a node, the last of these kinds wins."""

    OPERATOR = "operator"
    MODULE_TYPE = "module type"
    MODULE_NAME = "module name"


_SPECIAL_LAST = tuple(By)


@dataclass(frozen=True, slots=True)
class Names:
    """All names that patterns may match in a model."""

    known: dict[By, frozenset[str]]

    def __or__(self, other: Names) -> Names:
        return Names({by: self.known[by] | other.known[by] for by in By})


NO_NAMES = Names(dict.fromkeys(By, frozenset()))


@dataclass(frozen=True, slots=True)
class Override:
    """The config of the nodes that a pattern matches; None keeps them float. said: the user's call, for messages."""

    by: By
    pattern: str
    config: QuantizationConfig | None
    said: str

    def matches(self, node: Node) -> bool:
        """Return whether the pattern matches a node. The name or type of a module matches everything inside of it."""
        return any(self.fits(name) for name in _names_of(node, self.by))

    def over(self, other: Override | None) -> Override:
        """Return this override. If it states no type of activations, it takes the type of the other override."""
        if self.config is None or self.config.activations is not None or other is None or other.config is None:
            return self
        return replace(self, config=replace(self.config, activations=other.config.activations))

    def fits(self, name: str) -> bool:
        if fnmatchcase(name, self.pattern):
            return True
        if self.by is By.MODULE_NAME:
            return False
        # aten.add matches all its overloads, and Linear matches torch.nn.modules.linear.Linear.
        short = name.rpartition(".")[0 if self.by is By.OPERATOR else 2]
        return fnmatchcase(short, self.pattern)


@dataclass(frozen=True, slots=True)
class Overrides:
    """All overrides of a user, in order. rest: the config of the nodes that no pattern matches."""

    given: tuple[Override, ...] = ()
    rest: QuantizationConfig | None = field(default_factory=lambda: AS_USUAL)

    def __bool__(self) -> bool:
        return bool(self.given) or self.rest != AS_USUAL

    def having(self, override: Override) -> Overrides:
        return replace(self, given=(*self.given, override))

    def of(self, node: Node) -> QuantizationConfig | None:
        """Return the config of a node, or None if the node stays float."""
        if not self:
            return AS_USUAL
        override = self._of(node)
        if override is None:
            return self.rest
        config = override.config
        if config is None or config.activations is not None or self.rest is None:
            return config
        return replace(config, activations=self.rest.activations)

    def keeps_float(self, node: Node) -> bool:
        return self.of(node) is None

    def mark(self, module: GraphModule) -> None:
        """Store the override of each node in the node's ``meta``, from which the nodes that passes make of it
        inherit the override. A node that stays float also gets the name of the user's call."""
        for node in module.graph.nodes:
            if node.op != "call_function":
                continue
            override = self._of(node)
            if override is not None:
                node.meta[_CHOSEN] = override
            if self.of(node) is None:
                said = override.said if override is not None else "set_global"
                node.meta["custom"] = {**node.meta.get("custom", {}), KEPT_FLOAT: said}

    def check(self, names: Names) -> None:
        """Raise InvalidOptionError for a pattern that matches nothing."""
        for override in self.given:
            known = names.known[override.by]
            if not any(override.fits(name) for name in known):
                raise InvalidOptionError(_unknown(override, known))

    def _of(self, node: Node) -> Override | None:
        found: Override | None = node.meta.get(_CHOSEN)
        for override in sorted(self.given, key=lambda each: _SPECIAL_LAST.index(each.by)):
            special = found is None or _SPECIAL_LAST.index(override.by) >= _SPECIAL_LAST.index(found.by)
            if special and override.matches(node):
                found = override.over(found)
        return found


def module_name(name: str, config: QuantizationConfig | None, said: str) -> Override:
    return Override(By.MODULE_NAME, name, config, f"{said} '{name}'")


def module_type(kind: type | str, config: QuantizationConfig | None, said: str) -> Override:
    """Return the override for modules of a class, given as the class or as its name with or without the module it is
    in."""
    pattern = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    return Override(By.MODULE_TYPE, pattern, config, f"{said} '{pattern.rpartition('.')[2]}'")


def operator(target: object, config: QuantizationConfig | None, said: str) -> Override:
    """Return the override for an overload, for all overloads of an operator, or for the name of either (aten::add is
    aten.add)."""
    pattern = str(target).replace("::", ".")
    return Override(By.OPERATOR, _out_of_place(pattern), config, f"{said} '{pattern}'")


def any_of(item: object, config: QuantizationConfig | None, said: str) -> Override:
    """Return the override for an item: a class of modules, an operator or its name, or the name of a module. Raises
    InvalidOptionError for any other item."""
    if isinstance(item, type):
        return module_type(item, config, said)
    if isinstance(item, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return operator(item, config, said)
    if not isinstance(item, str):
        raise InvalidOptionError(
            f"{said}: {item!r} is a {type(item).__name__}; give the name of a module or operator, or a class of modules."
        )
    return (operator if item.startswith(("aten.", "aten::")) else module_name)(item, config, said)


def names_in(module: GraphModule) -> Names:
    """Return the names of the modules, module types and operators of a model."""
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    known = {by: frozenset(name for node in calls for name in _names_of(node, by)) for by in By}
    # A module of constants alone (a batch norm that was folded) has no nodes.
    known[By.MODULE_NAME] |= {name for name, _ in module.named_modules() if name}
    return Names(known)


def unmark(module: GraphModule) -> None:
    """Remove the overrides that ``mark`` stored, which only passes and annotation need."""
    for node in module.graph.nodes:
        node.meta.pop(_CHOSEN, None)


def _names_of(node: Node, by: By) -> Iterable[str]:
    if by is By.OPERATOR:
        return (_out_of_place(str(node.target)),)
    stack = node.meta.get("nn_module_stack") or {}
    if by is By.MODULE_NAME:
        paths = (str(path).removeprefix("L['self'].").removeprefix("L__self___") for path, _ in stack.values())
        return tuple(path for path in paths if path)
    return tuple(
        kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}" for _, kind in stack.values()
    )


def _out_of_place(name: str) -> str:
    """Return the name of the out-of-place operator, such as ``aten.relu.default`` for ``aten.relu_.default``. The
    graph has only this form."""
    parts = name.split(".")
    if len(parts) > 1 and not parts[1].startswith("_"):
        parts[1] = parts[1].removesuffix("_")
    return ".".join(parts)


def _unknown(override: Override, known: Iterable[str]) -> str:
    if override.by is By.MODULE_TYPE:
        known = {name.rpartition(".")[2] for name in known}
    names = sorted(name for name in known if not name.startswith("<"))
    pattern = override.pattern.rpartition(".")[2] if override.by is By.MODULE_TYPE else override.pattern
    near = difflib.get_close_matches(pattern, names, NAMES_SHOWN, 0.5)
    hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
    if not near and names:
        shown = ", ".join(repr(name) for name in names[:NAMES_SHOWN])
        hint = f" There are {shown}{' and others' if len(names) > NAMES_SHOWN else ''}."
    return f"{override.said}: the model has no such {override.by.value}.{hint}"


def mark_left_float(model: GraphModule, constants: Set[Node]) -> None:
    """Mark with ``LEFT_FLOAT`` each call that stays float although no setting asks for it. The partitioner's reasons
    read the mark."""
    for node in model.graph.nodes:
        custom = node.meta.get("custom", {})
        wanted = KEPT_FLOAT in custom or JOINS_OUTPUT in custom or Q_ANNOTATION_KEY in node.meta
        if node.op == "call_function" and not wanted and node not in constants:
            node.meta["custom"] = {**custom, LEFT_FLOAT: True}
