# SPDX-License-Identifier: BSD-3-Clause
"""Compute one batch after the other, or one window of an image after the other.

Most kernels compute each batch by itself. So a run of calls can be finished for one batch before the next batch begins, and the tensors
between the calls hold one batch at a time. The cost is one dispatch of each call for each batch. The pieces have one batch, so that they
can be part of cascades.

Swin divides an image into windows and computes attention in each window. In memory a window is several pieces of the image's rows, so a
copy in front of the layers gathers the windows, and a copy behind the layers scatters them. These copies commute with a normalization, a
linear layer and a sum. So every call of the block can be cut into calls of one window, which read the window out of the image and add
their result to the image in place. The tensors between these calls hold one window, and the copies are no longer needed.

Each byte of a tensor in such a run belongs to one window. The windows of the attention's operands are its batches; the calls around it
lead from the windows of one tensor to those of the next. A call can be cut where the positions of a window are a box of its output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from openneutron.compiler.rewrite.call_list import CallList, Uses
from openneutron.compiler.rewrite.rows import goes_by_position
from openneutron.compiler.select.calls import Extents, KernelCall, Storage, Storages, View, four, written_in_place
from openneutron.isa.kernels.row import Function

MOST_CALLS = 512
"""Networks of more calls than this once they are cut are left as they are: searching them takes too long."""


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
class _Neighbours:
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


def _runs(calls: Sequence[KernelCall], storages: Storages) -> list[_Neighbours]:
    runs: list[_Neighbours] = []
    for call in calls:
        if not runs or not runs[-1].takes(call):
            runs.append(_Neighbours(batches_apart(call), storages))
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


Ints = npt.NDArray[np.int64]
Box = tuple[slice, slice, slice]
"""Batches, rows and columns of a call's output."""

NOWHERE = -1
"""The window of a byte that no window has."""


def windows_apart(calls: Sequence[KernelCall], storages: Storages) -> CallList | None:
    """Return the calls with each run around an attention of several batches cut into windows; None where there is no such run, or
    there would be too many calls. ``storages`` are those before ``in_place``, with tensors of equal layout apart."""
    uses = Uses.of(storages, calls)
    runs: list[_Cut] = []
    for place, call in enumerate(calls):
        if call.traits.columns_apart and call.views["output"].extents[0] > 1:
            run = _Cut.around(uses, place, runs[-1].end if runs else 0)
            if run is not None:
                runs.append(run)
    if not runs or len(calls) + sum(run.windows * (run.end - run.first) for run in runs) > MOST_CALLS:
        return None
    made: list[KernelCall] = []
    cuts: set[int] = set()
    pieces, of = dict(storages.storages), dict(storages.of)
    at = 0
    for run in runs:
        made += calls[at : run.first]
        for window in _Windows(run).calls():
            cuts |= {len(made), len(made) + next(n for n, call in enumerate(window) if call.traits.columns_apart)}
            made += window
        cuts.add(len(made))
        at = run.end
        for name in run.inner:
            del pieces[name]
        pieces |= run.made
        of = {tensor: name for tensor, name in of.items() if name not in run.inner}
        of |= {name: name for name in run.made}
        _continue_in_place(run, pieces, of)
    made += calls[at:]
    return CallList(tuple(made), Storages(pieces, of), frozenset(cuts))


def _continue_in_place(run: _Cut, pieces: dict[str, Storage], of: dict[str, str]) -> None:
    """Give the last call's result the memory of an input whose windows have no reader after that call's window."""
    last, uses = run.uses[run.end - 1], run.uses
    result = uses.storages[last.views["output"].tensor]
    for name, view in last.views.items():
        source = uses.storages[view.tensor]
        readers = uses.readers.get(source.name, ())
        if (
            name != "output"
            and written_in_place(last, name, uses.storages.of)
            and source.is_scratch
            and result.is_scratch
            and source.name in pieces
            and result.name in pieces
            and source.size_bytes == result.size_bytes
            and uses.writers.get(result.name) == [run.end - 1]
            and all(run.first <= place < run.end for place, _ in readers)
            and all(place < run.first for place in uses.writers[source.name])
        ):
            del pieces[result.name]
            of.update({tensor: source.name for tensor, there in of.items() if there == result.name})
            return


def _offsets(view: View) -> Ints:
    """Return the first byte of each position of a view, in the order of its batches, rows and columns."""
    extents, pitches = view.extents[:3], view.pitches[:3]
    axes = (np.arange(extent) * pitch for extent, pitch in zip(extents, pitches, strict=True))
    batches, rows, cols = np.ix_(*axes)
    offsets: Ints = view.offset + batches + rows + cols
    return offsets


def _bytes(view: View) -> Ints:
    """Return the first byte of each element of a view."""
    return _offsets(view)[..., None] + np.arange(view.extents[3]) * view.pitches[3]


@dataclass(slots=True)
class _Cut:
    """Calls [first, end) around an attention of so many ``windows``. ``labels``: for each storage the window of each of its bytes.

    ``inner``: the storages that the run alone touches. ``made``: the storages of single windows, once there are any.
    """

    uses: Uses
    windows: int
    first: int
    end: int
    labels: dict[str, Ints] = field(default_factory=dict)
    inner: frozenset[str] = frozenset()
    made: dict[str, Storage] = field(default_factory=dict)

    @classmethod
    def around(cls, uses: Uses, place: int, earliest: int) -> _Cut | None:
        """Return the longest run around the attention at ``place``; None where nothing else can be cut along with it."""
        call = uses[place]
        windows = call.views["output"].extents[0]
        run = cls(uses, windows, place, place + 1)
        batches = np.arange(windows)[:, None, None]
        for name, view in call.views.items():
            if call.is_scratch(name):
                continue
            if view.extents[0] != windows or not run._label(view, np.broadcast_to(batches, view.extents[:3])):
                return None
        while run.first > earliest and run._reaches_back():
            run.first -= 1
        while run.end < len(uses.calls):
            shares = run._goes_on()
            if shares is None:
                break
            run.end += 1
            if shares:
                break
        run.inner = frozenset(run._inner())
        return run if len(run.inner) > 1 else None

    def _label(self, view: View, windows: Ints) -> bool:
        """Record the windows of a view's bytes; return whether they agree with those that are known."""
        storage = self.uses.storages[view.tensor]
        if storage.constant is not None:
            return True
        labels = self.labels.get(storage.name)
        labels = np.full(storage.size_bytes, NOWHERE) if labels is None else labels.copy()
        for byte in range(view.element_bytes):
            where, there = _bytes(view) + byte, windows[..., None]
            known = labels[where]
            if np.any((known != NOWHERE) & (known != there)):
                return False
            labels[where] = there
        self.labels[storage.name] = labels
        return True

    def labels_of(self, view: View) -> Ints | None:
        """Return the window of each position of a view; None where they are not known, or a position has several."""
        labels = self.labels.get(self.uses.storages.of[view.tensor])
        if labels is None:
            return None
        found = labels[_bytes(view)]
        same = bool((found == found[..., :1]).all()) and bool((found != NOWHERE).all())
        return found[..., 0] if same else None

    def _reaches_back(self) -> bool:
        """Return whether the call in front of the run can be cut too: the run alone reads its result."""
        place = self.first - 1
        call = self.uses[place]
        storage = self.uses.storages[call.views["output"].tensor]
        readers = self.uses.readers.get(storage.name, ())
        if not storage.is_scratch or not readers or not all(place < at < self.end for at, _ in readers):
            return False
        if not goes_by_position(call):
            return False
        windows = self.labels_of(call.views["output"])
        return windows is not None and self._take(call, windows)

    def _goes_on(self) -> bool | None:
        """Return whether the call behind the run reads another tensor of earlier calls too, with which a run ends; None where the
        call can't be cut."""
        call = self.uses[self.end]
        if not goes_by_position(call):
            return None
        reads = [view for name, view in call.views.items() if call.reads(name)]
        own = [view for view in reads if self.uses.storages[view.tensor].constant is None]
        written = {self.uses.storages.of[self.uses[at].views["output"].tensor] for at in range(self.first, self.end)}
        ours = [view for view in own if self.uses.storages.of[view.tensor] in written]
        windows = self.labels_of(ours[0]) if ours else None
        return len(ours) < len(own) if windows is not None and self._take(call, windows) else None

    def _take(self, call: KernelCall, windows: Ints) -> bool:
        """Record the windows of all positions of a call; return whether the call can be cut so."""
        if any(not _is_box(windows, number) for number in range(self.windows)):
            return False
        shape = windows.shape
        kept = dict(self.labels)
        for name, view in call.views.items():
            if call.is_scratch(name):
                continue
            if view.extents[:3] != shape or not self._label(view, windows):
                self.labels = kept
                return False
        return True

    def _inner(self) -> Iterator[str]:
        uses = self.uses
        for name, labels in self.labels.items():
            touched = [*uses.writers.get(name, ()), *(place for place, _ in uses.readers.get(name, ()))]
            inside = all(self.first <= place < self.end for place in touched) and bool(uses.writers.get(name))
            if uses.storages.storages[name].is_scratch and inside and bool((labels != NOWHERE).all()):
                yield name


def _box(windows: Ints, number: int) -> Box | None:
    """Return the smallest box with all positions of a window; None where the window has no position."""
    found = np.nonzero(windows == number)
    if not len(found[0]):
        return None
    batch, row, col = (slice(int(axis.min()), int(axis.max()) + 1) for axis in found)
    return batch, row, col


def _is_box(windows: Ints, number: int) -> bool:
    """Return whether the positions of a window are a box, or there are no positions."""
    box = _box(windows, number)
    return box is None or bool((windows[box] == number).all())


@dataclass(slots=True)
class _Windows:
    """The calls of a run, window by window."""

    run: _Cut
    ranks: dict[str, Ints] = field(default_factory=dict)
    """By inner storage the place of each byte among those of its window."""

    def __post_init__(self) -> None:
        for name in self.run.inner:
            labels = self.run.labels[name]
            ranks = np.zeros(labels.size, np.int64)
            for number in range(self.run.windows):
                own = labels == number
                ranks[own] = np.arange(int(own.sum()))
            self.ranks[name] = ranks

    def calls(self) -> Iterator[list[KernelCall]]:
        """Yield the calls of each window."""
        for number in range(self.run.windows):
            renamed: dict[str, str] = {}
            made: list[KernelCall] = []
            for place in range(self.run.first, self.run.end):
                call = self._cut(self.run.uses[place], number, renamed)
                if call is None:
                    continue
                if _changes_nothing(call) and self._is_only_writer(place):
                    gone = call.views["output"].tensor
                    del self.run.made[gone]
                    renamed[gone] = call.views["input"].tensor
                else:
                    made.append(call)
            yield made

    def _is_only_writer(self, place: int) -> bool:
        output = self.run.uses[place].views["output"].tensor
        return self.run.uses.storages.of[output] in self.run.inner and self.run.uses.writer(output) == place

    def _cut(self, call: KernelCall, number: int, renamed: Mapping[str, str]) -> KernelCall | None:
        """Return the call for one window, or None where it computes nothing of the window. ``renamed``: tensors of this window that are
        others, by name."""
        windows = self.run.labels_of(call.views["output"])
        assert windows is not None, f"{call.name} can't be cut"
        box = _box(windows, number)
        if box is None:
            return None
        views = {}
        for name, view in call.views.items():
            if call.is_scratch(name):
                views[name] = view
            elif call.traits.columns_apart:
                # Keys have other rows than queries.
                views[name] = self._moved(_inside(view, (box[0], slice(0, view.extents[1]), slice(0, view.extents[2]))))
            else:
                views[name] = self._moved(_inside(view, box))
            tensor = views[name].tensor
            views[name] = replace(views[name], tensor=renamed.get(tensor, tensor))
        return replace(call, name=f"{call.name}/{number}", views=views)

    def _moved(self, view: View) -> View:
        """Return a view of one window in the storage of this window; views of other storages stay as they are."""
        name = self.run.uses.storages.of[view.tensor]
        if name not in self.run.inner:
            return view
        first = _bytes(view)
        ranks = self.ranks[name][first]
        start = int(ranks[0, 0, 0, 0])
        ahead = (ranks[1:2, 0, 0, 0], ranks[0, 1:2, 0, 0], ranks[0, 0, 1:2, 0], ranks[0, 0, 0, 1:2])
        pitches = four([int(each[0]) - start if each.size else 0 for each in ahead])
        number = int(self.run.labels[name][first[0, 0, 0, 0]])
        piece = f"{name}/{number}"
        while piece in self.run.uses.storages.of or piece in self.run.uses.storages.storages:
            piece += "'"
        self.run.made.setdefault(piece, Storage(piece, int((self.run.labels[name] == number).sum())))
        pitches = _of_one_element(pitches, view)
        moved = View(piece, view.extents, pitches, start, view.element_bytes)
        assert bool((_bytes(moved) == ranks).all()), f"{view} is no view of one window"
        return moved


def _inside(view: View, box: Box) -> View:
    """Return the part of a view in a box of its positions."""
    batch, row, col = box
    offset = view.offset + sum(each.start * pitch for each, pitch in zip(box, view.pitches[:3], strict=True))
    extents = (batch.stop - batch.start, row.stop - row.start, col.stop - col.start, view.extents[3])
    return replace(view, extents=extents, offset=offset)


def _of_one_element(pitches: Extents, view: View) -> Extents:
    """Return the pitches with those of axes of one element as they are in a dense view of these extents, so that views compare."""
    batch, row, col, channel = pitches
    channel = channel if view.extents[3] > 1 else view.element_bytes
    col = col if view.extents[2] > 1 else channel * view.extents[3]
    row = row if view.extents[1] > 1 else col * view.extents[2]
    batch = batch if view.extents[0] > 1 else row * view.extents[1]
    return batch, row, col, channel


def _changes_nothing(call: KernelCall) -> bool:
    """Return whether the call copies bytes to the same places of another tensor."""
    if call.traits.function is not Function.IDENTITY:
        return False
    return call.views["input"].place == call.views["output"].place
