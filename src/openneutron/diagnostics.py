# SPDX-License-Identifier: BSD-3-Clause
"""What a compile has to say about an operator that is not an error."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OnCpu:
    """An operator that stays on the CPU, and why.

    ``operator`` is its kind in the words of where it came from (``RESIZE_BILINEAR``, ``aten.convolution.default``), ``name`` the one in
    question. ``reason`` states fact and bound, ``way_out`` what the user can do; it is empty where there is nothing to do.
    ``line`` is the line of the model's source, where that is known.
    """

    operator: str
    name: str
    reason: str
    way_out: str = ""
    line: str = ""

    def __str__(self) -> str:
        text = f"{self.operator} '{self.name}' stays on the CPU: {self.reason}."
        return f"{text} {self.way_out}" if self.way_out else text
