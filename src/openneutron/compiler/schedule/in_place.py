# SPDX-License-Identifier: BSD-3-Clause
"""Outputs that take the memory of an input which nobody else reads: sums, products, tables, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from openneutron.compiler.schedule.needs import written_in_place
from openneutron.compiler.select.calls import KernelCall
from openneutron.compiler.select.storage import Storages


def in_place(storages: Storages, calls: Sequence[KernelCall]) -> Storages:
    """The storages with each such output and its input as one.

    The input is scratch that the call alone reads; the output is written by the call alone and has as many bytes. A graph
    output that is computed so lies where the graph's outputs do, and so does the input then.
    """
    of, pieces = dict(storages.of), dict(storages.storages)
    touched: dict[str, set[int]] = {}
    written: dict[str, set[int]] = {}
    for position, call in enumerate(calls):
        for name, view in call.views.items():
            (written if name == "output" else touched).setdefault(of[view.tensor], set()).add(position)
    for position, call in enumerate(calls):
        result = pieces[of[call.views["output"].tensor]]
        for name, view in call.views.items():
            source = pieces[of[view.tensor]]
            if name == "output" or source.name == result.name or not written_in_place(call, name, of):
                continue
            if source.constant is not None or source.input is not None or source.output is not None:
                continue
            alone = touched[source.name] == {position} and written[result.name] == {position}
            if not alone or source.size_bytes != result.size_bytes:
                continue
            for tensor in [tensor for tensor, storage in of.items() if storage == result.name]:
                of[tensor] = source.name
            pieces[source.name] = replace(source, output=result.output)
            del pieces[result.name]
            written[source.name] = written[source.name] | {position}
            touched[source.name] = touched[source.name] | touched.pop(result.name, set())
            break
    return Storages(pieces, of)
