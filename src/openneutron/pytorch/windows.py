# SPDX-License-Identifier: BSD-3-Clause
"""Run a network for sound over windows of a sequence, so that a program of a short length computes a long one.

A network of convolutions, such as a vocoder, computes each output from the inputs near it: those of its receptive field. A window's outputs whose
receptive field is inside the window are those of the whole sequence, bit for bit. The first window also begins where the sequence begins, and
the last one ends where it ends, so that their padding is that of the sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from openneutron.errors import InvalidModelError, InvalidOptionError

Run = Callable[[Tensor], Any]
"""A function of the input, whose only output is a tensor or a tuple of one: a module, or ``run`` of a compiled program."""


@dataclass(frozen=True, slots=True)
class Field:
    """The receptive field of a model. The outputs of an input depend on this input, on ``before`` inputs in front of
    it and on ``after`` inputs behind it. ``outputs`` is the number of outputs for each input."""

    before: int
    after: int
    outputs: int


@dataclass(frozen=True, slots=True)
class Window:
    """A window that begins at the input ``first`` of the sequence. Of its outputs, those of the inputs [begin, end)
    of the sequence are kept."""

    first: int
    begin: int
    end: int


def receptive_field(model: nn.Module, example: Tensor, axis: int, output_axis: int = -1) -> Field:
    """Return the receptive field of a float model along an axis of its input and an axis of its output.

    The input in the middle of the example is set to NaN, so that each output that depends on it becomes NaN. The
    result is right for all places only if the field is the same everywhere, as it is for convolutions.

    Raises InvalidModelError if the number of outputs is not a multiple of the number of inputs, if no output depends
    on the middle input, or if the first or the last output does: the example is then too short, or the model has no
    bounded field.
    """
    count = example.shape[axis]
    middle = count // 2
    given = example.clone().float()
    given.select(axis, middle).fill_(float("nan"))
    with torch.no_grad():
        found = _tensor(model(given))
    length = found.shape[output_axis]
    others = [place for place in range(found.dim()) if place != output_axis % found.dim()]
    touched = found.isnan().amax(others).nonzero().flatten() if others else found.isnan().nonzero().flatten()
    if length % count or not len(touched):
        raise InvalidModelError(
            f"model: {count} inputs along axis {axis} give {length} outputs; windows need the same number of outputs for each input."
        )
    outputs = length // count
    first, last = int(touched[0]), int(touched[-1])
    if first == 0 or last == length - 1:
        raise InvalidModelError(
            f"model: an input in the middle of {count} reaches the first or the last output; windows need a receptive field that is shorter. "
            "Give a longer example; a network with attention or a recurrence along this axis has no such field."
        )
    # Output j depends on input i: j // outputs is up to `after` places in front of i, or up to `before` places behind it.
    return Field(before=last // outputs - middle, after=middle - first // outputs, outputs=outputs)


def windows(total: int, size: int, field: Field) -> list[Window]:
    """Return windows of ``size`` inputs that together compute all outputs of a sequence of ``total`` inputs.

    Raises InvalidOptionError where ``size`` is more than ``total``, or is not more than the ``before + after`` inputs
    of the field.
    """
    if not field.before + field.after < size <= total:
        raise InvalidOptionError(
            f"window: {size} inputs; a window has more than the {field.before + field.after} inputs around an output's own, and at most the "
            f"{total} of the sequence."
        )
    found, end = [], 0
    while end < total:
        first = min(max(0, end - field.before), total - size)
        begin, end = end, total if first + size == total else first + size - field.after
        found.append(Window(first, begin, end))
    return found


def in_windows(run: Run, sequence: Tensor, size: int, field: Field, axis: int, output_axis: int = -1) -> Tensor:
    """Return the outputs of a sequence, computed by runs over windows of ``size`` inputs.

    Raises InvalidOptionError as ``windows`` does.
    """
    parts = []
    for window in windows(sequence.shape[axis], size, field):
        found = _tensor(run(sequence.narrow(axis, window.first, size).contiguous()))
        begin, count = window.begin - window.first, window.end - window.begin
        parts.append(found.narrow(output_axis, begin * field.outputs, count * field.outputs))
    return torch.cat(parts, output_axis)


def _tensor(found: Any) -> Tensor:
    leaves = pytree.tree_leaves(found)
    if len(leaves) != 1 or not isinstance(leaves[0], Tensor):
        raise InvalidModelError(f"model: it has {len(leaves)} outputs; a model that runs in windows has one tensor.")
    return leaves[0]
