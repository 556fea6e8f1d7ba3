# SPDX-License-Identifier: BSD-3-Clause
"""Define the efforts of the search for a faster or smaller schedule, and the numbers that tune the search."""

from __future__ import annotations

from dataclasses import dataclass

from openneutron.options import DEFAULT_EFFORT, HIGH_EFFORT


@dataclass(frozen=True, slots=True)
class Effort:
    """The bounds of the search for cascades.

    * ``longest``: the maximum number of calls of a cascade.
    * ``stripes``: the numbers of stripes (groups of output rows that a cascade computes at a time) that are tried, in
      addition to one stripe for each row.
    * ``fine``: stripe heights, in rows of the pacing call (the call that is divided into stripes of equal height).
      They are tried where this is not the last call, in addition to the heights that follow from ``stripes``.
    * ``everything``: a number of candidates. If a network has no more in total over all cascades, each call is tried as
      the pacing call with each stripe height.
    * ``exact_work``: CP-SAT's deterministic time limit for the addresses of one plan. A search places several plans.
    * ``patches``: pairs (by channels, part). A chain of calls runs in patches of channels (True) or columns (False) if a
      rolling buffer between its calls takes more than 1 / part of the largest rolling buffer of the network.
    * ``pieces``: the maximum number of patches into which the output of a chain is divided.
    * ``patched``: the maximum number of calls of a cascade with a chain, where a chain counts as one call.
    * ``levels``: a ratio. With constant prefetch, each cascade that is tried takes at most this ratio of the memory of
      the previous one.
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


@dataclass(frozen=True, slots=True)
class Tuning:
    """The numbers that bound the search and end it early. Each description states the unit.

    ``python -m bench neutron_s`` prints the modelled time, the traffic and the compile time that these numbers give.
    """

    few_calls: int = 16
    """The largest number of calls of a graph that is searched for every size of memory up to the budget."""

    divided_for_shares: tuple[float, ...] = (0.84, 0.6)
    """Fractions of the memory of the NPU. For each, calls are divided so that a plan exists in that fraction. The
    smaller fraction leaves more memory to constants."""

    kept_segments: int = 30_000
    """The largest number of segments, of about 10 KB each, that are kept from the searches of earlier budgets. With
    more, all are discarded."""

    many_calls: int = 100
    """The number of calls above which a graph takes long to search. The search then ends with the first schedule that
    is within ``enough_ratio``."""

    sizes_in_octave: int = 4
    """The number of sizes of memory in an octave that a graph of few calls is searched for: 4, 5, 6, 7, 8, 10, 12 KiB
    and so on."""

    divided_again_ratio: float = 1.15
    """A ratio of cycles. If the best schedule takes more than this ratio of the estimate of its plan, its kernels wait
    for constants, and calls are divided again."""

    group_constants_share: float = 0.25
    """The fraction of the memory of the NPU for the constants of one group of output channels. The rest is for stripes
    of the group's tensors, and for the constants of the next group."""

    full_group_constants_share: float = 0.3
    """The fraction of the memory of the NPU for the constants of a group of output channels that occupies all
    pipelines."""

    row_share: float = 1 / 8
    """The largest fraction of the memory of the NPU for a row of a tensor. The memory then holds several rows of
    several tensors."""

    whole_share: float = 1 / 2
    """The fraction of the memory of the NPU for the operands that each row of a call needs whole, such as the keys and values of a group of
    heads. The rest is for stripes of the other tensors, and for constants. The tensors of a part of the batches of a call may take as much
    where there would be more than ``most_parts`` parts otherwise."""

    part_share: float = 1 / 4
    """The fraction of the memory of the NPU for the tensors of a part of an elementwise call, or of a part of the
    batches of a call."""

    most_parts: int = 64
    """The largest number of parts into which a call of several batches is divided. A search of more calls takes long."""

    kept_states: int = 4
    """The largest number of states (sets of tensors that stay in the memory of the NPU) that the search keeps at each
    cut."""

    longest_cascade: int = 16
    """The largest number of calls of a cascade."""

    hidden_cycles: int = 8
    """The number of cycles of a copy, hidden by kernels, that count as one cycle of the search.

    Of two plans that are nearly as fast, the plan with fewer bytes is then taken, since other cores share the
    bandwidth of external memory.
    """

    stripes: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
    """The numbers of stripes that are tried, in addition to one stripe for each row."""

    most_stripes: int = 4096
    """The largest number of iterations of a segment."""

    finer_stripes: int = 3
    """The largest number of further numbers of stripes that are tried, after the smallest one that fits."""

    segment_shares: tuple[float, ...] = (1.0, 0.92, 0.84, 0.77, 0.7, 0.6, 0.5)
    """The fractions of the memory of the NPU that are tried as a limit for a segment with its constants. The rest is
    for constants of later segments."""

    enough_ratio: float = 1.01
    """A ratio of cycles. A schedule within this ratio of the first plan's estimate ends the search of a list of
    calls.

    Later plans have less memory, so the search ends even if an earlier list has a faster schedule. In graphs of more
    than ``few_calls`` and at most ``many_calls`` calls, all plans are compared: the first plan for a larger memory
    leaves less memory to constants, so that a smaller plan can be faster.
    """

    hidden_constants_ratio: float = 0.96
    """A ratio of cycles. When calls are divided again, the search ends with the first plan whose estimate times this
    ratio is at least the cycles of a known schedule.

    Later plans have less memory. A schedule takes less than its plan's estimate if constants arrive during an earlier
    segment: at least 0.966 times the estimate in the networks of the benchmark.
    """

    near_ratio: float = 1.03
    """A ratio of cycles. A schedule gets no addresses by first fit if it takes more than this ratio of the cycles of
    the fastest schedule."""

    refined: int = 3
    """The number of schedules for which the exact search finds addresses again."""

    furthest_steps: int = 6
    """The largest number of steps before which a load moves, or after which a wait moves. Kernels of one or two
    stripes hide the load."""


TUNING = Tuning()
