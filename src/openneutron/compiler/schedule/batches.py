# SPDX-License-Identifier: BSD-3-Clause
"""Batches one after the other: runs of calls that go through all batches become as many runs that go through one each.

Most kernels compute each batch by itself. So a run of calls can be finished for one batch before the next one is begun, and the
tensors between them are held for one batch at a time. Each such call is issued once a batch, which is all it costs. Its pieces have one
batch, so that they can be part of cascades.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from openneutron.compiler.select.calls import KernelCall, Storage, Storages, View

MOST_CALLS = 512
"""Networks of more calls than this once they are cut are left as they are: searching them takes too long."""


@dataclass(frozen=True, slots=True)
class CallList:
    """Calls in their order, and their storages, those of ``in_place``. ``cuts``: no cascade continues from before such a call into it."""

    calls: tuple[KernelCall, ...]
    storages: Storages
    cuts: frozenset[int] = frozenset()


def batch_by_batch(calls: Sequence[KernelCall], storages: Storages, groups: int = 0) -> CallList | None:
    """Return the calls with each run of them batch by batch, cut at each batch; None where nothing is held in parts then.

    ``groups``: the batches in so many groups, where their number can be divided so; 0: each batch by itself.
    """
    runs, counts = [], []
    for each in _runs(calls, storages):
        counts.append(each.count)
        count = (groups if each.count % groups == 0 else 1) if groups else each.count
        runs.append((count if len(each.calls) > 1 else 1, each.calls))
    if sum(count * len(run) for count, run in runs) > MOST_CALLS:
        return None
    parts = _parts(runs, storages)
    if not parts:
        return None
    made: list[KernelCall] = []
    starts: list[int] = []
    for (count, run), batches in zip(runs, counts, strict=True):
        for batch in range(count):
            starts.append(len(made))
            for call in run if count > 1 else ():
                views = {
                    name: _some_batches(view, batch, count, storages, parts) if view.extents[0] == batches else view
                    for name, view in call.views.items()
                }
                made.append(replace(call, name=f"{call.name}/{batch}", views=views))
            made += run if count == 1 else ()
    kept = {name: storage for name, storage in storages.storages.items() if name not in parts}
    pieces = {piece.name: piece for each in parts.values() for piece in each}
    of = {tensor: name for tensor, name in storages.of.items() if name not in parts}
    of.update((name, name) for name in pieces)
    return CallList(tuple(made), Storages({**kept, **pieces}, of), frozenset(starts))


def batches_apart(call: KernelCall) -> int:
    """Return how many batches the call computes independently; 1 where it has one, or where its tensors differ in them."""
    counts = {view.extents[0] for name, view in call.views.items() if not call.is_scratch(name)}
    return counts.pop() if len(counts) == 1 and call.traits.batches_apart else 1


@dataclass(slots=True)
class _Run:
    """Neighbouring calls that can go through ``count`` batches one after the other. ``apart``: of the storages they touch, those
    of which each batch of a call has a part of its own, the same in all calls; ``written`` are those written here."""

    count: int
    storages: Storages
    calls: list[KernelCall] = field(default_factory=list)
    apart: dict[str, bool] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)

    def takes(self, call: KernelCall) -> bool:
        """Return whether the call can follow: where it shares what is written here, it shares it batch by batch."""
        if batches_apart(call) != self.count:
            return False
        for name, view in call.views.items():
            storage = self.storages[view.tensor]
            shared = storage.name in self.apart and (call.writes(name) or storage.name in self.written)
            if shared and not (self.apart[storage.name] and has_batches_apart(view, storage.size_bytes, self.count)):
                return False
        return True

    def add(self, call: KernelCall) -> None:
        self.calls.append(call)
        for name, view in call.views.items():
            storage = self.storages[view.tensor]
            apart = has_batches_apart(view, storage.size_bytes, self.count)
            self.apart[storage.name] = self.apart.get(storage.name, True) and apart
            if call.writes(name):
                self.written.add(storage.name)


def _runs(calls: Sequence[KernelCall], storages: Storages) -> list[_Run]:
    runs: list[_Run] = []
    for call in calls:
        if not runs or not runs[-1].takes(call):
            runs.append(_Run(batches_apart(call), storages))
        runs[-1].add(call)
    return runs


def _parts(runs: Sequence[tuple[int, Sequence[KernelCall]]], storages: Storages) -> dict[str, tuple[Storage, ...]]:
    """Return the scratch storages that every call goes through batch by batch, in pieces of the batches that a run goes through at once."""
    counts: dict[str, int] = {}
    of_batch: set[str] = set()  # scratch for one batch at a time: each piece has as much
    for count, run in runs:
        for call in run:
            for name, view in call.views.items():
                storage = storages[view.tensor]
                batches = view.extents[0]
                divided = count > 1 and batches % count == 0 and storage.is_scratch
                if divided and call.is_scratch(name) and not view.pitches[0]:
                    of_batch.add(storage.name)
                fits = divided and (storage.name in of_batch or has_batches_apart(view, storage.size_bytes, batches))
                here = count if fits else 1
                counts[storage.name] = here if counts.get(storage.name, here) == here else 1
    taken = {*storages.storages, *storages.of}
    parts: dict[str, tuple[Storage, ...]] = {}
    for name, count in counts.items():
        if count > 1:
            names = [_unused(f"{name}/{batch}", taken) for batch in range(count)]
            size = storages.storages[name].size_bytes // (1 if name in of_batch else count)
            parts[name] = tuple(Storage(each, size) for each in names)
    return parts


def has_batches_apart(view: View, size_bytes: int, count: int) -> bool:
    """Return whether the view's batches are in as many equal parts of a storage, each in its own."""
    end = view.offset + view.reach(1)
    return size_bytes % count == 0 and view.pitches[0] == size_bytes // count and end <= view.pitches[0]


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "'"
    taken.add(name)
    return name


Parts = Mapping[str, tuple[Storage, ...]]
"""The pieces of a storage, one for each batch."""


def _some_batches(view: View, part: int, count: int, storages: Storages, parts: Parts) -> View:
    """Return the batches of one of ``count`` parts of a view."""
    batches = view.extents[0] // count
    some = replace(view, extents=(batches, *view.extents[1:]))
    pieces = parts.get(storages.of[view.tensor])
    if pieces is not None:
        return replace(some, tensor=pieces[part].name)
    return replace(some, offset=view.offset + part * batches * view.pitches[0])
