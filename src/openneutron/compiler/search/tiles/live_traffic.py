# SPDX-License-Identifier: BSD-3-Clause
"""Prove a lower bound of the bytes that any schedule copies which computes each element once, in any tiling and any order.

Every schedule copies the accessed part of each input, each output and each constant at least once. This bound adds copies of elements that the
memory of the NPU can't hold until their last use, which follow from the dependence between elements alone.

Take any element e that the outputs depend on, and the moment at which a schedule computes e. An element x that e depends on is then computed,
as e can't be computed before, or it is an element of an input, which was loaded. Let y be an element that is computed from x directly, that depends on e,
and that the outputs depend on. Then y is computed after this moment and reads x. As nothing is computed twice, x is at this moment
in the memory of the NPU, of M bytes, or in external memory alone. Let L(e) be the bytes of all such x. At least L(e) - M of them are in
external memory alone, and are loaded after this moment: an element of an input for the second time, any other one after it was
stored, for which an output's element counts no second store. The cheapest choice of so many bytes is a lower bound.

The bounds of several elements e add up where no byte is counted twice: of each further e only the bytes count that were in no earlier
L(e). Every L(e) is a subset of the live bytes, because ``Dependence`` marks only what is certainly read. So the sum is a lower bound whichever
e are taken: here the middle element of each output of products, in descending order of L(e).

Example: a U-Net of one level, whose middle layer has one pixel. The middle pixel depends on all of the input, and every pixel of the output on
the middle one. The skipped tensor is live at this moment: in half of its bytes of memory, the other half is stored and loaded again.

A schedule that computes an element again from elements that are still at hand may copy less, so that the bound does not hold for
overlapping tiles that recompute their halos. The schedules of ``search`` compute each element once: their stripes keep rows in rolling buffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from openneutron.compiler.search.tiles.dependence import Dependence, Marks, dependence
from openneutron.compiler.select.calls import KernelCall, Storages
from openneutron.isa.kernels.row import CostClass


def least_reloaded_bytes(calls: Sequence[KernelCall], storages: Storages, budgets: Sequence[int]) -> list[int]:
    """Return, for each memory of the NPU in bytes, a lower bound of the bytes copied beside inputs, outputs and constants once.

    The bound is one over all schedules of the calls that compute each element once. It is 0 where a storage is written twice, or has a
    value between runs.
    """
    found = dependence(calls, storages)
    if not _is_written_once(found):
        return [0] * len(budgets)
    needed = found.none()
    for name, storage in storages.storages.items():
        if storage.output is not None and name in needed:
            needed[name][:] = True
    found.ahead(needed, len(calls))
    live = [*_live(found, needed, min(budgets, default=0))]
    live.sort(key=_size, reverse=True)
    return [_sum_of(live, storages, budget) for budget in budgets]


def _is_written_once(found: Dependence) -> bool:
    states = (each.state for each in found.storages.storages.values())
    if any(call.has_states for call in found.calls) or any(state is not None for state in states):
        return False
    written = found.none()
    for call in found.calls:
        output = call.views["output"]
        if found.seen(written, output).any():
            return False
        found.mark(written, output, np.ones(output.extents, np.bool_))
    return True


def _live(found: Dependence, needed: Marks, least: int) -> Iterator[Marks]:
    """Yield the elements that are live while the middle element of an output of products is computed, where they exceed ``least`` bytes."""
    most = _most_live(found)
    for position, call in enumerate(found.calls):
        if most[position] <= least:
            continue
        output = call.views["output"]
        middle = np.zeros(output.extents, np.bool_)
        middle[tuple(extent // 2 for extent in output.extents)] = True
        if call.traits.cost.kind is not CostClass.PRODUCTS or not (found.seen(needed, output) & middle).any():
            continue
        before, after = found.none(), found.none()
        found.mark(before, output, middle)
        found.mark(after, output, middle)
        found.ahead(before, position + 1)
        found.behind(after, position + 1)
        found.mark(after, output, middle, False)
        later = found.read_by({name: marks & needed[name] for name, marks in after.items()})
        made = {name: marks & later[name] for name, marks in before.items()}
        if _size(made) > least:
            yield made


def _most_live(found: Dependence) -> list[int]:
    """Return for each call an upper bound of the elements yielded for it: the tensors touched up to this call and behind it, in bytes."""
    touched: dict[str, list[int]] = {}
    for position, call in enumerate(found.calls):
        for view in call.views.values():
            touched.setdefault(found.storages.of[view.tensor], []).append(position)
    sizes = {name: marks.size for name, marks in found.none().items()}
    first = {name: -1 if found.storages.storages[name].input is not None else touched[name][0] for name in sizes}
    return [
        sum(size for name, size in sizes.items() if first[name] <= position < touched[name][-1])
        for position in range(len(found.calls))
    ]


def _size(marks: Marks) -> int:
    return sum(int(each.sum()) for each in marks.values())


def _sum_of(live: Sequence[Marks], storages: Storages, budget: int) -> int:
    """Return the sum over the moments; bytes of an earlier moment do not count again."""
    total = 0
    counted: Marks = {}
    for marks in live:
        own = {name: each & ~counted[name] if name in counted else each for name, each in marks.items()}
        over = _size(own) - budget
        if over <= 0:
            continue
        at_border = sum(int(each.sum()) for name, each in own.items() if storages.storages[name].is_border)
        total += over + max(0, over - at_border)
        counted = {name: each | counted[name] if name in counted else each for name, each in own.items()}
    return total
