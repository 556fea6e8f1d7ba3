# SPDX-License-Identifier: BSD-3-Clause
"""Replace calls that together compute a function of one stored byte by one table of it; no bit changes.

Files state SiLU, Mish and other functions as several operators, such as x times LOGISTIC of x. If each operand is the tensor x, a
function of x or a constant of one element, the result is a function of x. Its table has the results of the calls for all 256 values of
x. These calls are removed, so no other call may read a result in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from openneutron.compiler.rewrite.call_list import Cause, Edit
from openneutron.compiler.rewrite.fold import with_table
from openneutron.compiler.select.calls import KernelCall, View
from openneutron.compiler.select.tables import COMBINED, LOOKUP, STORED, Int8s, Ints
from openneutron.ops.rescaling import INT8_MIN


def as_tables(edit: Edit) -> None:
    """Replace each group of calls whose last result is a function of one tensor by a look-up, from the last call to the first.

    A group has at least one kernel of two operands; ``fold`` joins tables alone.
    """
    for place in reversed(range(len(edit))):
        call = edit.find(place)
        if call is None or not (call.kernel in COMBINED or _is_table_of_combined(edit, call)):
            continue
        group, source, cause = _group(edit, place)
        if source is None:
            edit.skip(cause, call)
            continue
        output = call.views["output"]
        views = {"input": replace(output, tensor=source), "output": output}
        table = _table(edit, sorted(group), source)
        edit.replace({**dict.fromkeys(group), place: KernelCall(LOOKUP, call.name, views, {}, {"table": table})})


def _is_table_of_combined(edit: Edit, call: KernelCall) -> bool:
    """Return whether a call looks up the result of a kernel of two operands whose clamp can't express the table."""
    writer = edit.writer(call.views["input"].tensor) if call.kernel == LOOKUP else None
    if writer is None or edit[writer].kernel not in COMBINED:
        return False
    table = call.constants["table"]
    assert isinstance(table, np.ndarray)
    return with_table(edit[writer], table) is None


def _group(edit: Edit, last: int) -> tuple[set[int], str | None, Cause]:
    """Return the places of the calls that one table can replace, the tensor that they read, and the cause why there are none.

    ``last`` is the place of the last call. The tensor is None where there is no such group.
    """
    of = edit.storages.of
    group: set[int] = set()
    best: tuple[set[int], str | None, Cause] = group, None, Cause.NO_PARTNER
    reached, read = last, {of[edit[last].views["output"].tensor]: ""}
    while True:
        call = edit[reached]
        operands = _operands(edit, call)
        if operands is None:
            return best
        group.add(reached)
        del read[of[call.views["output"].tensor]]
        read |= {of[tensor]: tensor for tensor in operands}
        if len(read) == 1 and len(group) > 1 and any(edit[place].kernel in COMBINED for place in group):
            ((storage, source),) = read.items()
            # All calls must read the same value of a state.
            if not any(min(group) < place < last for place in edit.writers(storage)):
                best = {*group}, source, Cause.UNCHANGED
        # A result can be a function of an earlier one, so that the latest result goes first.
        writers = {place: storage for storage in read for place in edit.writers(storage) if place < last}
        reached = max(writers, default=-1)
        made = edit.find(reached) if writers else None
        if made is None or made.kernel not in (LOOKUP, *COMBINED):
            return best
        between = writers[reached]
        if edit.writer(read[between]) != reached or any(place not in group for place, _ in edit.readers(between)):
            return best if best[1] is not None else (group, None, Cause.READ_BY_OTHERS)


def _operands(edit: Edit, call: KernelCall) -> list[str] | None:
    """Return the tensors that a look-up or a kernel of two operands reads, without constants of one element.

    Return None where an element of the result is not a function of the elements at the same place of its storages.
    """
    views = [view for name, view in call.views.items() if name != "output"]
    varying = [view for view in views if _value(edit, view) is None]
    flat = all(edit.is_flat(view) for view in (call.views["output"], *varying))
    return [view.tensor for view in varying] if flat else None


def _value(edit: Edit, view: View) -> int | None:
    """Return the stored value of a constant of one element; None for other tensors."""
    content = edit.storages[view.tensor].constant
    return int.from_bytes(content, "little", signed=True) if content and len(content) == 1 else None


def _table(edit: Edit, places: Iterable[int], source: str) -> Int8s:
    """Return the result of the last of these calls for each stored value of ``source``."""
    of = edit.storages.of
    known: dict[str, Ints] = {of[source]: STORED}
    result = STORED
    for place in places:
        call = edit[place]
        values = [
            np.asarray(_value(edit, view) if of[view.tensor] not in known else known[of[view.tensor]], np.int64)
            for name, view in sorted(call.views.items())
            if name != "output"
        ]
        if call.kernel == LOOKUP:
            table = call.constants["table"]
            assert isinstance(table, np.ndarray)
            result = table.astype(np.int64)[values[0] - INT8_MIN]
        else:
            result = COMBINED[call.kernel](values[0], values[1], call.params)
        known[of[call.views["output"].tensor]] = result
    return result.astype(np.int8)
