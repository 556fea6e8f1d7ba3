# SPDX-License-Identifier: BSD-3-Clause
"""The efforts of the search for a faster or smaller schedule."""

from __future__ import annotations

from dataclasses import dataclass

from openneutron.options import DEFAULT_EFFORT, HIGH_EFFORT


@dataclass(frozen=True, slots=True)
class Effort:
    """The candidates of the search for cascades.

    ``longest``: the most calls of a cascade. ``stripes``: numbers of stripes, beside one for each row. ``fine``: stripe heights of
    pacing calls other than the last call, beside those numbers of stripes. ``everything``: every call is a pacing call with every
    stripe height where all cascades of a network have at most so many candidates. ``exact_work``: CP-SAT's deterministic time
    limit for the addresses of a plan; there are several plans. ``patches``: chains of calls run in patches (True: of channels,
    False: of columns) where rings between them would take more than such a part of the network's largest ring; in at most
    ``pieces`` pieces, in cascades of at most ``patched`` such chains and calls. ``levels``: with constant prefetch, each cascade
    that is tried takes at most this ratio of the memory of the one before.
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
