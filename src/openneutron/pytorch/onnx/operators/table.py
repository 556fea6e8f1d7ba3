# SPDX-License-Identifier: BSD-3-Clause
"""The table of converters, and what converters share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch

Values: TypeAlias = torch.Tensor | Sequence[Any]
"""The output of a converter, or all its outputs in order."""


class Refused(Exception):
    """Raised for a node that has no form in PyTorch here. The message is the reason, and begins with a verb."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node of a graph, as converters see it.

    Attributes:
        operator: The operator, such as ``Conv``.
        version: The version of the operator set that the model uses for the operator's domain.
        attributes: The attributes that are given, as Python values; tensors are NumPy arrays.
        names: The names of the outputs; an output that the graph leaves out has the name "".
        kept: The constants that the method ``constant`` made, by name: arrays, or the tensors that the module stores
            in their place.
    """

    operator: str
    version: int
    attributes: Mapping[str, Any] = field(repr=False)
    names: tuple[str, ...] = ()
    kept: dict[str, Any] = field(default_factory=dict, repr=False)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or ``default`` if it is not given."""
        return self.attributes.get(name, default)

    def wants(self, output: int) -> bool:
        """Return whether the graph names an output."""
        return output < len(self.names) and bool(self.names[output])

    def constant(self, name: str, array: Any) -> torch.Tensor:
        """Return an array as a tensor that is stored with the model, under a name that the node uses once."""
        if name not in self.kept:
            self.kept[name] = np.array(array)
        value = self.kept[name]
        return value if isinstance(value, torch.Tensor) else torch.from_numpy(value)


@dataclass(frozen=True, slots=True)
class Converter:
    """The converter of an ONNX operator to PyTorch: a row of the table ``OPERATORS``.

    Attributes:
        function: Takes a NodeView and the inputs; an input that the graph leaves out is None.
        structure: The indices of inputs that determine shapes. They must be constants, and the function takes them as
            NumPy arrays.
        constants: The indices of inputs that the function takes as NumPy arrays if they are constants, and as tensors
            otherwise.
        folds: Whether a node whose inputs are all constants is computed when the model is read.
    """

    function: Callable[..., Values]
    structure: frozenset[int] = frozenset()
    constants: frozenset[int] = frozenset()
    folds: bool = True


OWN = "openneutron"
"""The domain of operators that the importer makes of several nodes."""

OPERATORS: dict[tuple[str, str], Converter] = {}
"""The converters by domain ("" is ONNX's own) and operator."""


def converts(
    *operators: str,
    structure: Sequence[int] = (),
    constants: Sequence[int] = (),
    folds: bool = True,
    domain: str = "",
) -> Callable[[Callable[..., Values]], Callable[..., Values]]:
    """Enter a function in the table for these operators."""

    def enter(function: Callable[..., Values]) -> Callable[..., Values]:
        row = Converter(function, frozenset(structure), frozenset(constants), folds)
        OPERATORS.update({(domain, operator): row for operator in operators})
        return function

    return enter


def cast(x: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """Return a tensor converted to a type, or the tensor itself if it has this type already. torch.export would also
    record a conversion to the same type. It would stand between an operator and the quantize node of its result."""
    return x if x.dtype == kind else x.to(kind)


def integers(values: Any) -> list[int]:
    """Return the elements of an array, or of a list, as Python integers."""
    return [int(value) for value in np.asarray(values).reshape(-1)]


def scalar(value: Any, default: float) -> float:
    """Return the only element of an array; ``default`` if there is no array."""
    return default if value is None else float(np.asarray(value).reshape(()))


def axes_of(node: NodeView, given: Any, rank: int) -> list[int] | None:
    """Return the axes of an operator that has them as an attribute or as an input, each between 0 and ``rank``; None if it has none."""
    axes = given if given is not None else node.get("axes")
    return None if axes is None else [axis % rank for axis in integers(axes)]
