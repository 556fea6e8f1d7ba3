# SPDX-License-Identifier: BSD-3-Clause
"""Divide calls by batches, windows of an image or attention heads, and reorder the layers around attention.

Most kernels compute each batch by itself. So a run of calls can be finished for one batch before the next batch begins, and the tensors
between the calls hold one batch at a time. The cost is one dispatch of each call for each batch. The pieces have one batch, so that they
can be part of cascades.

Swin divides an image into windows and computes attention in each window. In memory a window is several pieces of the image's rows, so a
copy in front of the layers gathers the windows, and a copy behind the layers scatters them. These copies commute with a normalization, a
linear layer and a sum. So every call of the block can be cut into calls of one window, which read the window out of the image and add
their result to the image in place. The tensors between these calls hold one window, and the copies are no longer needed.

Each byte of a tensor in such a run belongs to one window. The windows of the attention's operands are its batches; the calls around it
lead from the windows of one tensor to those of the next. A call can be cut where the positions of a window are a box of its output.

The keys and values of attention are in memory whole while rows of queries are computed. So the layers of keys and values come first, and
the layer of queries last: one cascade then computes some queries, their attention, and the calls after it. A layer that computes queries,
keys and values together is divided into three. Heads can also be computed one after the other: only the keys and values of one group of
heads are then in memory, together with the attention's input and its result. Each layer is divided by output channels, so that no work is
repeated.

In groups of heads, the queries, keys and values of a group are one linear layer. One layer for all heads takes the fewest calls, but its
result is three times as large as its input. Group by group, only the result of one group is in memory at a time. The call before the
layers, such as a normalization, is repeated for each group, so that a chained kernel can include it. Without groups, the layers of keys
and values become one layer, and the layer of queries follows.

Attention of several batches and its layers can also be one call. Its kernel computes batch by batch, with scratch for the layers' result
of one batch. Example: the layers' result of 4 series of 6 tokens with 32 channels has 2,304 bytes, and the scratch has 576.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from openneutron.compiler.rewrite.call_list import Cause, Edit
from openneutron.compiler.rewrite.join import CHAINED, macs_of_channel, side_by_side
from openneutron.compiler.rewrite.shapes import goes_by_position
from openneutron.compiler.select.calls import Extents, KernelCall, Storages, View, dense_pitches, four, written_in_place
from openneutron.compiler.select.needs import Span, columns_of, some_channels, takes_channels
from openneutron.isa import rows
from openneutron.isa.kernels.row import Function, Row, SameRow
from openneutron.isa.rows import LANES

MOST_CALLS = 512
"""The largest number of calls into which a network is divided. The search of more calls would take too long."""


def batch_by_batch(edit: Edit, groups: int = 0) -> None:
    """Compute each run of neighbouring calls batch by batch: all its calls for one batch, then all for the next. No cascade continues
    from one batch into the next, or from one run into the next.

    With ``groups``, compute that many groups of batches one after the other, in runs whose number of batches is a multiple of it.

    The list stays as it is if this divides no tensor between calls, or if there would be more than ``MOST_CALLS`` calls.
    """
    runs = _runs(edit)
    counts = [run.count if len(run.calls) > 1 and (not groups or run.count % groups == 0) else 1 for run in runs]
    counts = [min(count, groups) if groups else count for count in counts]
    if sum(count * len(run.calls) for count, run in zip(counts, runs, strict=True)) > MOST_CALLS:
        edit.skip(Cause.TOO_MANY_CALLS)
        return
    parts = _parts(edit, [(count, run.calls) for count, run in zip(counts, runs, strict=True)])
    if not parts:
        edit.skip(Cause.DIVISION)
        return
    changes: dict[int, Sequence[KernelCall]] = {}
    place = 0
    for count, run in zip(counts, runs, strict=True):
        edit.cut(place, range(0, count * len(run.calls), len(run.calls)))
        if count > 1:
            changes |= dict.fromkeys(range(place, place + len(run.calls)), ())
            changes[place] = [
                _some_batches(edit, call, batch, count, run.count, parts)
                for batch in range(count)
                for call in run.calls
            ]
        place += len(run.calls)
    edit.replace(changes)


def batches_apart(call: KernelCall) -> int:
    """Return the number of batches that the call computes independently; 1 if the kernel can't divide them, or if the tensors have
    different numbers of batches."""
    counts = {view.extents[0] for name, view in call.views.items() if not call.is_scratch(name)}
    return counts.pop() if len(counts) == 1 and call.traits.batches_apart else 1


@dataclass(slots=True)
class _Neighbours:
    """Neighbouring calls that can be computed batch by batch, with ``count`` batches each.

    ``apart`` states for each storage that they access whether each batch has its own part of it, which is the same part in every call.
    ``written`` are the storages that they write.
    """

    count: int
    storages: Storages
    calls: list[KernelCall] = field(default_factory=list)
    apart: dict[str, bool] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)

    def takes(self, call: KernelCall) -> bool:
        """Return whether the call can be computed batch by batch together with these calls. It must have the same number of batches. Each
        batch must have its own part of every storage that both the call and these calls access, unless all of them only read it."""
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


def _runs(edit: Edit) -> list[_Neighbours]:
    runs: list[_Neighbours] = []
    for call in edit.given.calls:
        if not runs or not runs[-1].takes(call):
            runs.append(_Neighbours(batches_apart(call), edit.storages))
        runs[-1].add(call)
    return runs


def _parts(edit: Edit, runs: Sequence[tuple[int, Sequence[KernelCall]]]) -> dict[str, tuple[str, ...]]:
    """Divide scratch storages into one piece for each group of batches. Return the names of the pieces by the storage's name.

    ``runs`` has the number of groups and the calls of each run. A run computes one group of batches at a time. A storage is divided if
    every call accesses it batch by batch, and all runs divide it into the same number of pieces. Scratch that holds a single batch at a
    time is not divided: each group gets a piece of its full size.
    """
    counts: dict[str, int] = {}
    of_batch: set[str] = set()  # scratch of a single batch: each piece has its full size
    for count, run in runs:
        for call in run:
            for name, view in call.views.items():
                storage = edit.storages[view.tensor]
                batches = view.extents[0]
                divided = count > 1 and batches % count == 0 and storage.is_scratch
                if divided and call.is_scratch(name) and not view.pitches[0]:
                    of_batch.add(storage.name)
                fits = divided and (storage.name in of_batch or has_batches_apart(view, storage.size_bytes, batches))
                here = count if fits else 1
                counts[storage.name] = here if counts.get(storage.name, here) == here else 1
    parts: dict[str, tuple[str, ...]] = {}
    for name, count in counts.items():
        if count > 1:
            size = edit.storages.storages[name].size_bytes // (1 if name in of_batch else count)
            parts[name] = tuple([edit.store(f"{name}/{batch}", size) for batch in range(count)])
    return parts


def has_batches_apart(view: View, size_bytes: int, count: int) -> bool:
    """Return whether the batches of the view are in ``count`` equal and disjoint parts of a storage of ``size_bytes``, one part each."""
    end = view.offset + view.reach(1)
    return size_bytes % count == 0 and view.pitches[0] == size_bytes // count and end <= view.pitches[0]


def _some_batches(
    edit: Edit, call: KernelCall, part: int, count: int, batches: int, parts: Mapping[str, tuple[str, ...]]
) -> KernelCall:
    """Return the call for one group of its ``batches`` batches. The batches form ``count`` groups of equal size, and ``part`` is the
    index of this one. ``parts`` has the names of the pieces of each divided storage."""
    views = {}
    here = batches // count
    for name, view in call.views.items():
        if view.extents[0] == batches:
            pieces = parts.get(edit.storages.of[view.tensor])
            view = replace(view, extents=(here, *view.extents[1:]))
            if pieces is None:
                view = replace(view, offset=view.offset + part * here * view.pitches[0])
            else:
                view = replace(view, tensor=pieces[part])
        views[name] = view
    return replace(call, name=f"{call.name}/{part}", views=views)


Ints = npt.NDArray[np.int64]
Box = tuple[slice, slice, slice]
"""A range of batches, of rows and of columns of a call's output."""

NOWHERE = -1
"""The label of a byte that belongs to no window."""


def windows_apart(edit: Edit) -> None:
    """Divide the calls around each attention of several batches, its windows of an image. Each new call computes one window.

    The storages are those before ``in_place``, so that no output shares the storage of an operand.
    """
    runs: list[_Cut] = []
    for place, call in enumerate(edit.given.calls):
        if call.traits.columns_apart and call.views["output"].extents[0] > 1:
            run = _Cut.around(edit, place, runs[-1].end if runs else 0)
            if run is None:
                edit.skip(Cause.DIVISION, call)
            else:
                runs.append(run)
    if len(edit) + sum(run.windows * (run.end - run.first) for run in runs) > MOST_CALLS:
        edit.skip(Cause.TOO_MANY_CALLS)
        return
    windows = [list(_Windows(run).calls()) for run in runs]
    for run, of_run in zip(runs, windows, strict=True):
        made: list[KernelCall] = []
        for window in of_run:
            attention = next(n for n, call in enumerate(window) if call.traits.columns_apart)
            edit.cut(run.first, (len(made), len(made) + attention))
            made += window
        edit.cut(run.end)
        _continue_in_place(run)
        edit.replace({**dict.fromkeys(range(run.first, run.end), ()), run.first: made})


def _continue_in_place(run: _Cut) -> None:
    """Let the last call of each window write its result over one of its inputs: both are then one storage.

    The input must be scratch of the same size, written before the run and read only in it, window by window.
    """
    last, edit = run.edit[run.end - 1], run.edit
    result = edit.storages[last.views["output"].tensor]
    for name, view in last.views.items():
        source = edit.storages[view.tensor]
        if (
            name != "output"
            and written_in_place(last, name, edit.storages.of)
            and source.is_scratch
            and result.is_scratch
            and not {source.name, result.name} & run.inner
            and source.size_bytes == result.size_bytes
            and edit.writers(result.name) == [run.end - 1]
            and all(run.first <= place < run.end for place, _ in edit.readers(source.name))
            and all(place < run.first for place in edit.writers(source.name))
        ):
            edit.share(result.name, source.name)
            return


def _offsets(view: View) -> Ints:
    """Return the offset of the first byte of each position of a view: an array [batch, row, column]."""
    extents, pitches = view.extents[:3], view.pitches[:3]
    axes = (np.arange(extent) * pitch for extent, pitch in zip(extents, pitches, strict=True))
    batches, rows, cols = np.ix_(*axes)
    offsets: Ints = view.offset + batches + rows + cols
    return offsets


def _bytes(view: View) -> Ints:
    """Return the offset of the first byte of each element of a view: an array [batch, row, column, channel]."""
    return _offsets(view)[..., None] + np.arange(view.extents[3]) * view.pitches[3]


@dataclass(slots=True)
class _Cut:
    """The calls [first, end) around an attention, which are divided into windows of an image. The attention has ``windows`` batches, one
    for each window. ``labels`` has for each storage the window to which each byte belongs.

    ``inner`` are the storages that only these calls access. Each inner storage is replaced by one storage for each window. ``pieces`` has
    the name of the new storage, by the inner storage and the window.
    """

    edit: Edit
    windows: int
    first: int
    end: int
    labels: dict[str, Ints] = field(default_factory=dict)
    inner: frozenset[str] = frozenset()
    pieces: dict[tuple[str, int], str] = field(default_factory=dict)

    @classmethod
    def around(cls, edit: Edit, place: int, earliest: int) -> _Cut | None:
        """Return the longest run of calls around the attention at ``place`` that can be divided into windows. It begins at ``earliest``
        or later. It ends at the latest with the first call that also reads a tensor from outside the run. Return None if the attention
        itself can't be divided, or if fewer than two storages are accessed by the run alone."""
        call = edit[place]
        windows = call.views["output"].extents[0]
        run = cls(edit, windows, place, place + 1)
        batches = np.arange(windows)[:, None, None]
        for name, view in call.views.items():
            if call.is_scratch(name):
                continue
            if view.extents[0] != windows or not run._label(view, np.broadcast_to(batches, view.extents[:3])):
                return None
        while run.first > earliest and run._reaches_back():
            run.first -= 1
        while run.end < len(edit):
            shares = run._goes_on()
            if shares is None:
                break
            run.end += 1
            if shares:
                break
        run.inner = frozenset(run._inner())
        return run if len(run.inner) > 1 else None

    def _label(self, view: View, windows: Ints) -> bool:
        """Record the window of each byte of a view. Return whether these windows agree with those recorded before; if not, nothing is
        recorded. Constants have no windows, so that the result is True for them."""
        storage = self.edit.storages[view.tensor]
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
        """Return the window to which each position of a view belongs, as an array [batch, row, column]. Return None if the bytes of a
        position belong to different windows, or if a byte belongs to none."""
        labels = self.labels.get(self.edit.storages.of[view.tensor])
        if labels is None:
            return None
        found = labels[_bytes(view)]
        same = bool((found == found[..., :1]).all()) and bool((found != NOWHERE).all())
        return found[..., 0] if same else None

    def _reaches_back(self) -> bool:
        """Return whether the call before the run can be divided too, and only calls of the run read its result. If so, record its
        windows."""
        place = self.first - 1
        call = self.edit[place]
        storage = self.edit.storages[call.views["output"].tensor]
        readers = self.edit.readers(storage.name)
        if not storage.is_scratch or not readers or not all(place < at < self.end for at, _ in readers):
            return False
        if not goes_by_position(call):
            return False
        windows = self.labels_of(call.views["output"])
        return windows is not None and self._take(call, windows)

    def _goes_on(self) -> bool | None:
        """Record the windows of the call after the run. Return whether that call also reads a tensor that the run did not write; the run then ends with that call. Return None if the call can't be cut."""
        call = self.edit[self.end]
        if not goes_by_position(call):
            return None
        reads = [view for name, view in call.views.items() if call.reads(name)]
        own = [view for view in reads if self.edit.storages[view.tensor].constant is None]
        written = {self.edit.storages.of[self.edit[at].views["output"].tensor] for at in range(self.first, self.end)}
        ours = [view for view in own if self.edit.storages.of[view.tensor] in written]
        windows = self.labels_of(ours[0]) if ours else None
        return len(ours) < len(own) if windows is not None and self._take(call, windows) else None

    def _take(self, call: KernelCall, windows: Ints) -> bool:
        """Record the windows of all positions of a call; return whether the call can be cut into these windows. If not, nothing is recorded."""
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
        edit = self.edit
        for name, labels in self.labels.items():
            touched = [*edit.writers(name), *(place for place, _ in edit.readers(name))]
            inside = all(self.first <= place < self.end for place in touched) and bool(edit.writers(name))
            if edit.storages.storages[name].is_scratch and inside and bool((labels != NOWHERE).all()):
                yield name


def _box(windows: Ints, number: int) -> Box | None:
    """Return the smallest box that holds all positions of window ``number``; None if the window has no position."""
    found = np.nonzero(windows == number)
    if not len(found[0]):
        return None
    batch, row, col = (slice(int(axis.min()), int(axis.max()) + 1) for axis in found)
    return batch, row, col


def _is_box(windows: Ints, number: int) -> bool:
    """Return whether the positions of a window fill a box, or the window has no positions."""
    box = _box(windows, number)
    return box is None or bool((windows[box] == number).all())


@dataclass(slots=True)
class _Windows:
    """This class makes the calls of each window from the calls of a run."""

    run: _Cut
    ranks: dict[str, Ints] = field(default_factory=dict)
    """For each inner storage, the index of each byte among the bytes of its window."""

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
                call = self._cut(self.run.edit[place], number, renamed)
                if call is None:
                    continue
                if _changes_nothing(call) and self._is_only_writer(place):
                    renamed[call.views["output"].tensor] = call.views["input"].tensor
                else:
                    made.append(call)
            yield made

    def _is_only_writer(self, place: int) -> bool:
        output = self.run.edit[place].views["output"].tensor
        return self.run.edit.storages.of[output] in self.run.inner and self.run.edit.writer(output) == place

    def _cut(self, call: KernelCall, number: int, renamed: Mapping[str, str]) -> KernelCall | None:
        """Return the part of a call that computes window ``number``; None if no part of its output belongs to the window.

        If a copy in this window is left out because it changes nothing, ``renamed`` maps its result to its source. The call then accesses
        the source instead.
        """
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
        """Return a view of one window, restated for the storage of that window. A view of a storage that is not inner is returned
        unchanged."""
        name = self.run.edit.storages.of[view.tensor]
        if name not in self.run.inner:
            return view
        first = _bytes(view)
        ranks = self.ranks[name][first]
        start = int(ranks[0, 0, 0, 0])
        ahead = (ranks[1:2, 0, 0, 0], ranks[0, 1:2, 0, 0], ranks[0, 0, 1:2, 0], ranks[0, 0, 0, 1:2])
        pitches = four([int(each[0]) - start if each.size else 0 for each in ahead])
        number = int(self.run.labels[name][first[0, 0, 0, 0]])
        piece = self.run.pieces.get((name, number))
        if piece is None:
            piece = self.run.edit.store(f"{name}/{number}", int((self.run.labels[name] == number).sum()))
            self.run.pieces[name, number] = piece
        pitches = _of_one_element(pitches, view)
        moved = View(piece, view.extents, pitches, start, view.element_bytes)
        assert bool((_bytes(moved) == ranks).all()), f"{view} is no view of one window"
        return moved


def _inside(view: View, box: Box) -> View:
    """Return the part of a view that a box covers."""
    batch, row, col = box
    offset = view.offset + sum(each.start * pitch for each, pitch in zip(box, view.pitches[:3], strict=True))
    extents = (batch.stop - batch.start, row.stop - row.start, col.stop - col.start, view.extents[3])
    return replace(view, extents=extents, offset=offset)


def _of_one_element(pitches: Extents, view: View) -> Extents:
    """Return the pitches, with those of a dense view for axes of one element, so that equal views compare equal."""
    batch, row, col, channel = pitches
    channel = channel if view.extents[3] > 1 else view.element_bytes
    col = col if view.extents[2] > 1 else channel * view.extents[3]
    row = row if view.extents[1] > 1 else col * view.extents[2]
    batch = batch if view.extents[0] > 1 else row * view.extents[1]
    return batch, row, col, channel


def _changes_nothing(call: KernelCall) -> bool:
    """Return whether the call copies each byte to the same place of another tensor."""
    if call.traits.function is not Function.IDENTITY:
        return False
    return call.views["input"].place == call.views["output"].place


@dataclass(frozen=True, slots=True)
class Source:
    """An operand of attention that one layer computes. ``layer`` is the index of the layer's call.

    The operand has ``heads`` heads of ``channels`` channels each. Head h begins at output channel ``first`` + h * ``pitch`` of the layer.
    """

    name: str
    layer: int
    heads: int
    first: int
    pitch: int
    channels: int

    def span(self, part: int, parts: int) -> Span:
        """Return the range of the layer's output channels for part ``part`` of the heads, which are divided into ``parts`` equal parts."""
        heads = self.heads // parts
        first = self.first + part * heads * self.pitch
        return first, first + (heads - 1) * self.pitch + self.channels


def heads_apart(edit: Edit, all_heads: bool) -> None:
    """Move the layers that compute the operands of each attention directly before it: first the layers of keys and values, then the layer
    of the queries. With ``all_heads``, compute one head after the other, if the channels of each head begin at a multiple of 8.

    An attention is left alone if it has several batches. It is also left alone if an operand has no layer that computes it for this
    attention alone and can be moved, or if the operand does not begin at a multiple of 8 channels of that layer.
    """
    changes: dict[int, list[KernelCall] | None] = {}
    for place, call in enumerate(edit.given.calls):
        sources = sources_of(edit, place) if call.traits.columns_apart else None
        if not sources or any(source.first % LANES for source in sources):
            if call.traits.columns_apart:
                edit.skip(Cause.DIVISION, call)
            continue
        parts = min(source.heads for source in sources) if all_heads else 1
        if any(source.span(part, parts)[0] % LANES for source in sources for part in range(parts)):
            parts = 1
        changes |= dict.fromkeys(source.layer for source in sources)
        changes[place] = [one for part in range(parts) for one in _part(edit, place, sources, part, parts)]
    edit.replace(changes)


def sources_of(edit: Edit, place: int, batches: bool = False) -> list[Source] | None:
    """Return the operands of an attention, each with the layer that computes it. Operands of which each row of the result needs all rows
    (keys and values) come first. Constants and scratch are left out, and so is an operand with the same view as an earlier one.

    Return None if an operand has no layer that computes it for this attention alone, or if that layer can't be moved to the attention.
    Unless ``batches`` is set, also return None for an attention of several batches.
    """
    call = edit[place]
    if call.views["output"].extents[0] > 1 and not batches:
        return None
    found: list[Source] = []
    operands = sorted(call.traits.operands, key=lambda each: isinstance(each.access, SameRow))
    for operand in operands:
        view = call.views[operand.name]
        if call.is_scratch(operand.name) or edit.storages[view.tensor].constant is not None:
            continue
        if any(view == call.views[source.name] for source in found):
            continue
        source = _source(edit, place, operand.name)
        if source is None:
            return None
        found.append(source)
    return found


def _source(edit: Edit, place: int, name: str) -> Source | None:
    view = edit[place].views[name]
    layer = edit.writer(view.tensor)
    if layer is None or not takes_channels(edit[layer]) or not goes_by_position(edit[layer]):
        return None
    output, channels = edit[layer].views["output"], edit[layer].traits.channels
    width = output.extents[3]
    if any(at != place for at, _ in edit.readers_of_result(layer)) or channels is None or channels.same:
        return None
    rows_only = view.extents[0] == 1 or view.pitches[0] == view.extents[1] * width
    by_rows = rows_only and view.pitches[1] == width and view.has_dense_channels and view.element_bytes == 1
    if not edit.is_flat(output) or not by_rows or _is_overtaken(edit, layer, place):
        return None
    return Source(name, layer, view.extents[2], view.offset, view.pitches[2], view.extents[3])


def _is_overtaken(edit: Edit, layer: int, place: int) -> bool:
    """Return whether a call between the layer and the attention at ``place`` overwrites an operand of the layer, so that the layer can't
    be moved behind it."""
    read = {edit.storages.of[view.tensor] for name, view in edit[layer].views.items() if edit[layer].reads(name)}
    return any(layer < at < place for name in read for at in edit.writers(name))


def _part(edit: Edit, place: int, sources: Sequence[Source], part: int, parts: int) -> Iterator[KernelCall]:
    """Yield the calls for one part of the heads: the layers that compute its operands, with new scratch as outputs, and the attention."""
    call = edit[place]
    views = dict(call.views)
    for source in sources:
        layer = edit[source.layer]
        output, span = layer.views["output"], source.span(part, parts)
        width, wide = span[1] - span[0], output.extents[3]
        name = edit.store(f"{call.name}/{source.name}/{part}", output.size_bytes // wide * width)
        batch, row, col, _ = (pitch * width // wide for pitch in output.pitches)
        made = View(name, (*output.extents[:3], width), (batch, row, col, 1))
        piece = some_channels(layer, span) if width < wide else layer
        yield replace(piece, name=f"{layer.name}/{part}/{source.name}", views={**piece.views, "output": made})
        own = call.views[source.name]
        rows, heads, channels = own.extents[1], source.heads // parts, own.extents[3]
        views[source.name] = View(
            name, (1, rows, heads, channels), (rows * width, width, source.pitch if heads > 1 else channels, 1)
        )
    made_here = {source.name for source in sources}
    for name, view in call.views.items():
        if name in made_here or call.is_scratch(name):
            continue
        same = next((each for each in made_here if call.views[each] == view), None)
        columns = view.extents[2] // parts
        views[name] = views[same] if same else columns_of(view, (part * columns, (part + 1) * columns))
    yield replace(call, name=f"{call.name}/{part}" if parts > 1 else call.name, views=views)


def head_groups(edit: Edit, parts: int | None, batches: bool = False) -> None:
    """Divide the heads of each attention into ``parts`` groups. One linear layer computes the queries, keys and values of a group. If
    ``parts`` is None, there are as many groups as the attention with the fewest heads has heads.

    Nothing is divided if an attention has fewer than ``parts`` heads (with None, fewer than 3). Attention of several batches is divided
    only with ``batches``. With a single group, the queries of an attention of one batch have a layer of their own. The calls must be on
    sequences of one row, with their storages before ``in_place``.
    """
    found: dict[int, Sequence[Source]] = {}
    for place, call in enumerate(edit.given.calls):
        sources = sources_of(edit, place, batches) if call.traits.columns_apart else None
        if sources and not any(source.first % LANES for source in sources):
            found[place] = sources
    heads = min((source.heads for sources in found.values() for source in sources), default=0)
    if heads < (parts or 3):
        # With fewer than 3 heads, a group for each head is the same as one group or two.
        edit.skip(Cause.DIVISION)
        return
    _Division(edit, parts or heads).divide(found)


@dataclass(slots=True)
class _Division:
    """The division of each attention of a list of calls into ``parts`` groups of heads."""

    edit: Edit
    parts: int

    def divide(self, found: Mapping[int, Sequence[Source]]) -> None:
        """Divide each attention in ``found`` whose heads and layers can be divided into this number of groups."""
        changes: dict[int, list[KernelCall] | None] = {}
        for place, sources in found.items():
            groups = self._groups(place, sources)
            if groups is None:
                self.edit.skip(Cause.DIVISION, self.edit[place])
                continue
            front = self._in_front(sources)
            changes |= dict.fromkeys(source.layer for source in sources)
            changes |= {} if front is None else {front: None}
            changes[place] = [*self._calls(place, groups, front)]
        self.edit.replace(changes)

    def _groups(self, place: int, sources: Sequence[Source]) -> list[list[Source]] | None:
        """Return the operands of the attention, divided into lists. For each group of heads, one layer will compute the operands of a
        list. Return None if the heads or the layers can't be divided into ``parts`` groups."""
        spans = [source.span(part, self.parts) for source in sources for part in range(self.parts)]
        aligned = all(first % LANES == 0 and end % LANES == 0 for first, end in spans)
        if not aligned or any(source.heads % self.parts for source in sources):
            return None
        # Attention of several batches is not computed by rows, but batch by batch, together with its layers.
        if self.parts > 1 or self.edit[place].views["output"].extents[0] > 1:
            return [list(sources)]
        traits = self.edit[place].traits
        apart = [[s for s in sources if isinstance(traits.access(s.name), SameRow) == rows] for rows in (False, True)]
        return apart if all(apart) else None

    def _in_front(self, sources: Sequence[Source]) -> int | None:
        """Return the place of the call that computes the input of the layers, if only the layers read its result and a chained kernel can
        run it together with each layer. Return None otherwise."""
        layers = {source.layer for source in sources}
        source = self.edit[min(layers)].views["input"]
        place = self.edit.writer(source.tensor)
        if place is None or any(at not in layers for at, _ in self.edit.readers_of_result(place)):
            return None
        kernels = {self.edit[layer].kernel for layer in layers}
        return place if all((self.edit[place].kernel, kernel) in CHAINED for kernel in kernels) else None

    def _calls(self, place: int, groups: list[list[Source]], front: int | None) -> Iterator[KernelCall]:
        call = self.edit[place]
        for part in range(self.parts):
            views = dict(call.views)
            for number, group in enumerate(groups):
                label = f"{part}" if len(groups) == 1 else f"{part}/{number}"
                given = self.edit[group[0].layer].views["input"]
                if front is not None:
                    ahead = self._copied(front, label)
                    yield ahead
                    given = replace(given, tensor=ahead.views["output"].tensor)
                yield self._layers(group, part, label, given, views, call)
            for name, view in call.views.items():
                if call.is_scratch(name):
                    # Each attention gets scratch of its own, which is then not live between two of them.
                    size = self.edit.storages[view.tensor].size_bytes
                    views[name] = replace(view, tensor=self.edit.store(f"{view.tensor}/{part}", size))
                if view is not views[name]:
                    continue
                same = next((each.name for group in groups for each in group if call.views[each.name] == view), None)
                columns = view.extents[2] // self.parts
                views[name] = views[same] if same else columns_of(view, (part * columns, (part + 1) * columns))
            yield replace(call, name=f"{call.name}/{part}" if self.parts > 1 else call.name, views=views)

    def _copied(self, front: int, label: str) -> KernelCall:
        """Return a copy of the call at ``front`` that writes its result to new scratch."""
        call = self.edit[front]
        output = call.views["output"]
        name = self.edit.store(f"{output.tensor}/{label}", self.edit.storages[output.tensor].size_bytes)
        return replace(call, name=f"{call.name}/{label}", views={**call.views, "output": replace(output, tensor=name)})

    def _layers(
        self, group: Sequence[Source], part: int, label: str, given: View, views: dict[str, View], call: KernelCall
    ) -> KernelCall:
        """Return one layer that computes the operands of a group, and put the views of these operands in its result into ``views``."""
        members = []
        for source in group:
            piece = some_channels(self.edit[source.layer], source.span(part, self.parts))
            members.append(replace(piece, views={**piece.views, "input": given}))
        own = [piece.views["output"].extents[3] for piece in members]
        extents = (*members[0].views["output"].extents[:3], sum(own))
        pitches = dense_pitches(extents)
        name = self.edit.store(f"{call.name}/layers/{label}", pitches[0])
        for at, source in enumerate(group):
            view, heads = call.views[source.name], source.heads // self.parts
            batches, rows, _, channels = view.extents
            kept = (batches, rows, heads, channels)
            own_pitches = (rows * sum(own), sum(own), source.pitch if heads > 1 else view.extents[3], 1)
            views[source.name] = View(name, kept, own_pitches, sum(own[:at]))
        return replace(side_by_side(members, own, View(name, extents, pitches)), name=f"{members[0].name}/{label}")


JOINED: Mapping[tuple[str, str], Row] = {
    (row.traits.parts[0].kernel, row.traits.parts[1].kernel): row for row in rows.KERNELS if row.traits.of_batch
}
"""The kernel that runs a linear layer and an attention batch by batch, by the names of the two kernels."""


def attention_of_layers(edit: Edit) -> None:
    """Join each attention of several batches and the call of its layers directly before it to one call, if a kernel runs both. The joined
    call computes one batch after the other. So the storage of the layers' result shrinks to one batch."""
    for place in range(1, len(edit)):
        joined = _joined(edit, place)
        if joined is not None:
            tensor = edit[place - 1].views["output"].tensor
            edit.resize(tensor, edit.storages[tensor].size_bytes // edit[place].views["output"].extents[0])
            edit.replace({place - 1: joined, place: None})


def _joined(edit: Edit, place: int) -> KernelCall | None:
    """Return one call that runs the layers and the attention at ``place`` after them; None if no kernel can."""
    layers, call = edit.find(place - 1), edit.find(place)
    if layers is None or call is None:
        return None
    row = JOINED.get((layers.kernel, call.kernel))
    batches = call.views["output"].extents[0]
    if row is None or batches == 1 or not _goes_by_batch(edit, layers, batches):
        return None
    storage = edit.storages[layers.views["output"].tensor]
    readers = edit.readers_of_result(place - 1)
    named = {name for name in row.scratch if name in call.views and call.reads(name)}
    unread = {"mask"} if not call.params["masked"] else set()
    if {at for at, _ in readers} != {place} or {name for _, name in readers} - unread != named:
        return None
    if not all(has_batches_apart(call.views[name], storage.size_bytes, batches) for name in named):
        return None
    first, _ = row.traits.parts
    result = layers.views["output"]
    views = {
        **{
            name: replace(view, pitches=(0, *view.pitches[1:])) if name in named else view
            for name, view in call.views.items()
        },
        "input": layers.views["input"],
        row.traits.of_batch: replace(result, pitches=(0, *result.pitches[1:])),
    }
    views |= dict.fromkeys(unread, layers.views["input"])
    lines, results = result.extents[1:], call.views["output"].extents[1:]
    more = macs_of_channel(layers) * lines[0] * lines[1] * lines[2]
    params = {f"{first.prefix}{name}": value for name, value in layers.params.items()} | dict(call.params)
    params["work"] += -(-more // (results[0] * results[1] * results[2]))
    constants = {f"{first.prefix}{key}": constant for key, constant in layers.constants.items()} | dict(call.constants)
    return KernelCall(row.name, layers.name, views, params, constants)


def _goes_by_batch(edit: Edit, layers: KernelCall, batches: int) -> bool:
    """Return whether the layers compute each batch of their result from the same batch of their input, and their result fills its
    storage."""
    same = all(view.extents[0] == batches for view in layers.views.values())
    return same and layers.traits.batches_apart and edit.is_flat(layers.views["output"])
