# SPDX-License-Identifier: BSD-3-Clause
"""Gather outputs whose parts are between one another in the memory of the NPU.

A transfer copies all bytes from the first to the last of a row. Where several calls write an output and the parts of one are between
those of another, such as the columns that a TILE repeats, a transfer of one part would write over the others. These calls write to a
tensor in the memory of the NPU instead, and a copy behind the last of them writes the output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from openneutron.compiler.search.tiles.moves import compact
from openneutron.compiler.select.calls import KernelCall, Storage, Storages, View, copied_whole


def gathered(calls: Sequence[KernelCall], storages: Storages) -> tuple[tuple[KernelCall, ...], Storages]:
    """Return the calls and storages, with a copy for each output whose parts are between one another."""
    made = list(calls)
    for storage in [each for each in storages.storages.values() if each.output is not None]:
        writers = [at for at, call in enumerate(made) if _written(call, storage.name, storages)]
        views = [view for at in writers for view in _written(made[at], storage.name, storages)]
        if len(writers) < 2 or all(_is_compact(view) for view in views):
            continue
        whole = Storage(f"{storage.name}@parts", storage.size_bytes)
        renamed = {tensor: f"{tensor}@parts" for tensor, name in storages.of.items() if name == storage.name}
        made = [_renamed(call, renamed) for call in made]
        made.insert(writers[-1] + 1, copied_whole(whole, storage, views[0].pitches[1]))
        of = {**storages.of, **dict.fromkeys((*renamed.values(), whole.name), whole.name)}
        storages = Storages({**storages.storages, whole.name: whole}, of)
    return tuple(made), storages


def _written(call: KernelCall, name: str, storages: Storages) -> list[View]:
    results = (call.views[result] for result in call.results)
    return [view for view in results if storages.of.get(view.tensor) == name]


def _is_compact(view: View) -> bool:
    """Return whether a transfer of a view copies no byte beside it."""
    return compact(view, "").size_bytes == view.size_bytes


def _renamed(call: KernelCall, names: dict[str, str]) -> KernelCall:
    views = {name: replace(view, tensor=names.get(view.tensor, view.tensor)) for name, view in call.views.items()}
    return replace(call, views=views)
