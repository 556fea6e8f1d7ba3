# SPDX-License-Identifier: BSD-3-Clause
"""What no plan can stay below: how far the least memory that the search finds is from the least that there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from openneutron.compiler.search.cascade.network import Network
from openneutron.compiler.search.cascade.search import Search, count_of_all
from openneutron.compiler.search.cascade.segment import segment, window_rows
from openneutron.compiler.search.cascade.stripes import evaluate
from openneutron.compiler.search.effort import DEFAULT

EXHAUSTIVE = 20000
"""Ways to run the cascades of a network up to which all of them are gone through."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bytes of the arena. ``by_rows``: no plan by rows takes less, as the search reckons memory; ``is_exact``: and one takes that.

    ``any_plan``: nor does any other that cuts the calls, in this order, into runs and keeps what lies between two runs whole,
    in patches or however its runs are executed.
    """

    by_rows: int
    is_exact: bool
    any_plan: int


def bounds(network: Network) -> Bounds:
    """The bounds of one order of calls.

    Every plan is a way through the cuts between calls, and its memory is the most any run on it takes. With something that each
    run takes at least, the least over all ways of the most on the way is therefore a bound. A run takes at least what passes by,
    and the larger of what dies in it and what it makes: the input of its first kernel call is there before anything is written,
    and its output is there when everything else has gone. By rows it holds besides, of each piece between its calls, the rows that
    one row of a reader takes. A run of one call is best in stripes of one row: then its output lies furthest over its input.
    Where a network is small, every way to run every run is evaluated instead, and the bound is the least that there is.
    """
    any_plan = _least_way(network, partial(_border_bytes, network))
    if count_of_all(network) <= EXHAUSTIVE:
        effort = replace(DEFAULT, longest=len(network.calls), everything=EXHAUSTIVE, patches=())
        return Bounds(Search(network, effort=effort).least().peak_bytes, True, any_plan)
    held = window_rows(network)

    def row_by_row(first: int, end: int) -> int | None:
        run = segment(network, first, end) if network.calls[first].by_rows else None
        if run is None:
            return None
        return evaluate(run, first, 1).peak_bytes if end - first == 1 else run.least_bytes(held)

    return Bounds(_least_way(network, row_by_row), False, any_plan)


def _border_bytes(network: Network, first: int, end: int) -> int:
    through = dying = made = 0
    for piece in network.pieces.values():
        begins, ends = piece.first < first, piece.last >= end
        if piece.first < end and piece.last >= first:
            through += piece.size if begins and ends else 0
            dying += piece.size if begins and not ends else 0
            made += piece.size if ends and not begins else 0
    return through + max(dying, made)


def _least_way(network: Network, at_least: Callable[[int, int], int | None]) -> int:
    """The most on the best way through the cuts, where a whole call takes what it takes, and a run ``at_least`` so much; None: it
    can't be run, nor can a longer one that ends there."""
    peaks = [0]
    for end in range(1, len(network.calls) + 1):
        alone = segment(network, end - 1, end)
        assert alone is not None
        best = max(peaks[-1], evaluate(alone, end - 1, max(1, network.calls[end - 1].rows)).peak_bytes)
        for first in range(end - 1, -1, -1):
            taken = at_least(first, end)
            if taken is None:
                break
            best = min(best, max(peaks[first], taken))
        peaks.append(best)
    return peaks[-1]
