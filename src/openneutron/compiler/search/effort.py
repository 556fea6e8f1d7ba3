# SPDX-License-Identifier: BSD-3-Clause
"""The efforts of the search for a faster or smaller schedule."""

from __future__ import annotations

from dataclasses import dataclass

from openneutron.options import DEFAULT_EFFORT, HIGH_EFFORT


@dataclass(frozen=True, slots=True)
class Effort:
    """The bounds of the search for cascades.

    * ``longest``: the maximum number of calls of a cascade.
    * ``stripes``: the numbers of stripes that are tried, in addition to one stripe for each row.
    * ``fine``: stripe heights of pacing calls other than the last call, in addition to those that follow from ``stripes``.
    * ``everything``: a number of candidates. If all cascades of a network have no more in total, each call is tried as the pacing call
      with each stripe height.
    * ``exact_work``: CP-SAT's deterministic time limit for the addresses of one plan. A search places several plans.
    * ``patches``: pairs (by channels, part). A chain of calls runs in patches of channels (True) or columns (False) if a ring between its
      calls takes more than 1 / part of the largest ring of the network.
    * ``pieces``: the maximum number of pieces of a chain.
    * ``patched``: the maximum number of chains and calls of a cascade that has a chain.
    * ``levels``: a ratio. With constant prefetch, each cascade that is tried takes at most this ratio of the memory of the one before.
    """

    name: str
    longest: int
    stripes: tuple[int, ...]
    fine: tuple[int, ...]
    everything: int
    exact_work: float
    levels: float
    patches: tuple[tuple[bool, int], ...]
    pieces: int
    patched: int


DEFAULT = Effort(
    DEFAULT_EFFORT,
    24,
    (*range(2, 33), 40, 48, 56, 64, 80, 96, 112, 128, 192, 256, 384, 512, 768),
    (1, 2, 4),
    20000,
    0.5,
    0.92,
    (*((False, part) for part in (2, 3, 4, 5, 8)), (True, 2)),
    8,
    4,
)

HIGH = Effort(
    HIGH_EFFORT,
    64,
    (*range(2, 129), *range(144, 1025, 16)),
    (1, 2, 3, 4, 6, 8),
    200000,
    10.0,
    0.95,
    tuple((by_channels, part) for by_channels in (False, True) for part in (2, 3, 4, 5, 6, 8, 12)),
    16,
    4,
)

BY_NAME = {effort.name: effort for effort in (DEFAULT, HIGH)}
