# SPDX-License-Identifier: BSD-3-Clause
"""The numbers that tune the search for schedules in tiles."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """The numbers that bound the search and end it early. The first word of each description is the unit.

    ``python -m bench neutron_s`` prints the modelled time, the traffic and the compile time that these numbers give.
    """

    few_calls: int = 16
    """Calls. A graph of at most so many calls is searched for every size of memory up to the budget."""

    divided_for_shares: tuple[float, ...] = (0.84, 0.6)
    """Fractions of the memory of the NPU. Calls are divided so that a plan exists for such a fraction. The second one leaves more to
    constants."""

    kept_segments: int = 30_000
    """Segments, of about 10 KB each. The searches of earlier budgets are discarded once they have more segments than this."""

    many_calls: int = 100
    """Calls. In a graph of more calls, a search is long: it ends with the first schedule that is within ``enough_ratio``."""

    sizes_in_octave: int = 4
    """Sizes of memory in an octave that a graph of few calls is searched for: 4, 5, 6, 7, 8, 10, 12 KiB and so on."""

    divided_again_ratio: float = 1.15
    """A ratio of cycles. Calls are divided again where the best schedule takes more than this ratio of a plan's estimate, since its kernels
    wait for constants."""

    group_constants_share: float = 0.25
    """A fraction of the memory of the NPU for the constants of a group. The rest is for stripes of the group's tensors, and for the
    constants of the next group."""

    full_group_constants_share: float = 0.3
    """A fraction of the memory of the NPU for the constants of a group that has channels for all pipelines."""

    row_share: float = 1 / 8
    """A fraction of the memory of the NPU for a row of a tensor. The memory then holds several rows of several tensors."""

    part_share: float = 1 / 4
    """A fraction of the memory of the NPU for the tensors of a part of an elementwise call, and of a part of the batches of a call."""

    most_parts: int = 64
    """Parts. A call of several batches is divided into at most so many parts, since a search of more calls takes long."""

    kept_states: int = 4
    """States. The search keeps at most so many states of each cut."""

    longest_cascade: int = 16
    """Calls. A cascade has at most so many."""

    hidden_cycles: int = 8
    """Cycles. So many cycles of a copy that kernels hide count as one cycle of the search. Of two plans that are nearly as fast, the plan
    with fewer bytes is taken, since other cores share the bandwidth of external memory."""

    stripes: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
    """Numbers of stripes that are tried, beside one stripe for each row."""

    most_stripes: int = 4096
    """Iterations. A segment has at most so many."""

    finer_stripes: int = 3
    """Numbers of stripes. After the smallest number that fits, so many of the next larger numbers are tried."""

    segment_shares: tuple[float, ...] = (1.0, 0.92, 0.84, 0.77, 0.7, 0.6, 0.5)
    """Fractions of the memory of the NPU. A segment may take such a fraction with its constants. The rest is for constants of later
    segments."""

    enough_ratio: float = 1.01
    """A ratio of cycles. A schedule within this ratio of the first plan's estimate ends the search of a list of calls, also where an
    earlier list has a faster schedule: later plans have less memory. In graphs of more than ``few_calls`` and at most ``many_calls`` calls,
    all plans are compared. The first plan for a larger memory takes more of it and leaves less to constants, so that a smaller plan, such
    as the first plan for a smaller memory, can be faster."""

    hidden_constants_ratio: float = 0.96
    """A ratio of cycles. A search of calls that are divided again ends with a plan whose estimate times this ratio is no less than the
    cycles of a known schedule: later plans have less memory. A schedule takes less than the estimate of its plan where constants arrive
    during an earlier segment: at least 0.966 times in the networks of the benchmark."""

    near_ratio: float = 1.03
    """A ratio of cycles. First fit gives a schedule no addresses where it takes more than this ratio of the cycles of the fastest
    schedule."""

    refined: int = 3
    """Schedules. So many are placed anew by the exact search."""

    furthest_steps: int = 6
    """Steps. A load moves before at most so many steps, and a wait after as many: kernels of one or two stripes hide the load."""


TUNING = Tuning()
