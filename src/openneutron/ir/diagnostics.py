# SPDX-License-Identifier: BSD-3-Clause
"""Facts of a compile about an operator that are not errors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fallback:
    """The cost of connected operators on the CPU: the model's delegate calls, their number with these operators on the NPU,
    and the bytes that an inference transfers between these operators and the NPU."""

    calls: int
    calls_without: int
    border_bytes: int


@dataclass(frozen=True, slots=True)
class OnCpu:
    """An operator that stays on the CPU, and why.

    ``operator`` is its kind in the words of where it came from (``RESIZE_BILINEAR``, ``aten.convolution.default``), ``name`` the one in
    question. ``reason`` states fact and bound, ``suggestion`` what the user can do, if anything.
    ``line`` is the line of the model's source, where that is known, ``fallback`` what it costs. ``written`` is what the
    user's call that the operator is a part of, ``call`` the name of that call. ``converts``: the operator does not
    compute, but converts the model's inputs to what the NPU takes, or its results back. ``macs`` are the operator's
    multiply-accumulates. ``computes`` is false for an operator that changes no value: a view, an identity, a dropout in
    eval mode.
    """

    operator: str
    name: str
    reason: str
    suggestion: str = ""
    line: str = ""
    written: str = ""
    call: str = ""
    fallback: Fallback | None = None
    converts: bool = False
    macs: int = 0
    computes: bool = True

    def __str__(self) -> str:
        text = f"{self.operator} '{self.name}' stays on the CPU: {self.reason}."
        return f"{text} {self.suggestion}" if self.suggestion else text
