# SPDX-License-Identifier: BSD-3-Clause
"""Compute attention window by window: a run of calls around it becomes as many runs as the attention has batches.

Swin divides an image into windows and computes attention in each. In memory a window is several pieces of the image's rows, so a copy in
front of the layers gathers the windows, and a copy behind the layers takes them apart again. These copies commute with a normalization,
a linear layer and a sum. So every call of the block can be cut into calls of one window, which read the window out of the image and add
their result to the image in place. The tensors between these calls hold one window, and the copies are no longer needed.

Each byte of a tensor in the run belongs to one window. The windows of the attention's operands are its batches; the calls around it
lead from the windows of one tensor to those of the next. A call can be cut where the positions of a window are a box of its output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from openneutron.compiler.schedule.batches import MOST_CALLS, CallList
from openneutron.compiler.schedule.positions import goes_by_position
from openneutron.compiler.select.calls import Extents, KernelCall, Storage, Storages, View, four, written_in_place
from openneutron.compiler.select.uses import Uses
from openneutron.isa.kernels.row import Function

Ints = npt.NDArray[np.int64]
Box = tuple[slice, slice, slice]
"""Batches, rows and columns of a call's output."""

NOWHERE = -1
"""The window of a byte that no window has."""


def windows_apart(calls: Sequence[KernelCall], storages: Storages) -> CallList | None:
    """Return the calls with each run around an attention of several batches cut into windows; None where there is no such run, or
    there would be too many calls. ``storages`` are those before ``in_place``, with tensors of equal layout apart."""
    uses = Uses.of(storages, calls)
    runs: list[_Run] = []
    for place, call in enumerate(calls):
        if call.traits.columns_apart and call.views["output"].extents[0] > 1:
            run = _Run.around(uses, place, runs[-1].end if runs else 0)
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


def _continue_in_place(run: _Run, pieces: dict[str, Storage], of: dict[str, str]) -> None:
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
class _Run:
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
    def around(cls, uses: Uses, place: int, earliest: int) -> _Run | None:
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

    run: _Run
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
