# SPDX-License-Identifier: BSD-3-Clause
"""Describe kernels that stand for several others: a call that runs other kernels, and a call that can be two."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """A kernel that a call runs among others: its parameters are those with this prefix, its ``buffers`` pairs of its own name and the
    call's. ``flag``: the parameter that is 0 where the part is left out."""

    kernel: str
    prefix: str
    buffers: tuple[tuple[str, str], ...]
    flag: str = ""


@dataclass(frozen=True, slots=True)
class Passes:
    """A kernel that computes statistics of its input, then each element of its output by them, as two kernels.

    ``first`` writes ``bytes`` of statistics for each ``group`` of channels of a block of ``rows``; ``second`` computes any elements by the
    ``statistics`` of all blocks. ``count`` is the number of elements of a group in all, at most ``blocks`` blocks.
    """

    first: str
    second: str
    group: str
    rows: str
    count: str
    statistics: str
    bytes: int
    blocks: int
