# SPDX-License-Identifier: BSD-3-Clause
"""Build segments whose tensors are copied from and to external memory, in compact form, while kernels compute.

A segment with streams is the cascade of its calls, with a transfer before the calls for each tensor that the segment loads, and a transfer
after the calls for each tensor that it stores. Rows, rolling buffers and memory therefore follow from the rules of cascades. Loads run one
iteration before the kernels, stores one iteration after them, and each iteration waits for its transfers (double buffering). A rolling
buffer therefore has the rows of two iterations. Example, with three stripes of one call::

    iteration  0  1  2  3  4
    load       a  b  c
    kernel        a  b  c
    store            a  b  c

Where a kernel needs a whole tensor at once, the tensor is loaded before the first iteration. Where a kernel defines a tensor out of the
order of its rows, the tensor is stored after the last iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add, sub

from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.schedule.schedule import Rows, Step, Wait, Whole
from openneutron.compiler.search.cascade.network import (
    AFTER,
    CallRows,
    Network,
    Piece,
    Segment,
    call_rows,
    in_row,
    network,
    segment,
)
from openneutron.compiler.search.cascade.stripes import Pacing, Stripes, compressed, evaluated, rounds
from openneutron.compiler.select.calls import Extents, KernelCall, Storage, Storages, View, four
from openneutron.isa import aligned
from openneutron.isa.kernels import KERNELS
from openneutron.targets import Target

LOADS, STORES = 15, 14
"""The channels of copies to the memory of the NPU, and of copies from it. Constants have the channels below these."""

_MOVE = next(row.name for row in KERNELS if row.is_transfer)


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy, in the memory of the NPU, of the bytes of a view (a part of a tensor that a kernel accesses).

    A transfer copies between ``outer``, the view in external memory, and ``inner``, the view in the copy. The kernel
    uses ``view``, another view of the copy. ``by_rows`` states whether row r of ``view`` is row r of the copy.
    """

    outer: View
    inner: View
    view: View
    by_rows: bool

    @property
    def size_bytes(self) -> int:
        """Return the size of the copy, in bytes."""
        return self.inner.size_bytes


def compact(view: View, tensor: str) -> Copied:
    """Return the ``Copied`` of a compact copy of a view's bytes. The copy is a tensor named ``tensor``.

    The copy has only the bytes that the kernel accesses, batch by batch, and row by row in a batch. A row of a planar
    image consists of one line of each plane. If the pitches of the view do not permit such a copy, the copy has all
    bytes from the view's first to its last.
    """
    size = view.element_bytes
    moved = [axis for axis in range(4) if view.pitches[axis] and view.extents[axis] > 1]
    moved.sort(key=lambda axis: (view.pitches[axis], axis))
    # Axes must not share bytes, as those of windows that slide over a tensor do.
    end, is_plain = size, True
    for axis in moved:
        is_plain = is_plain and view.pitches[axis] >= end
        end = (view.extents[axis] - 1) * view.pitches[axis] + end
    inside = [axis for axis in moved if axis > 1]
    if not is_plain or (inside and view.pitches[inside[0]] != size):
        return _covered(view, tensor)
    length = view.extents[inside[0]] * size if inside else size
    count, apart = (view.extents[inside[1]], view.pitches[inside[1]]) if len(inside) > 1 else (1, length)
    batches, rows = (view.extents[axis] if axis in moved else 1 for axis in (0, 1))
    row = count * length
    steps = view.pitches[0] if 0 in moved else rows * row, view.pitches[1] if 1 in moved else row
    pitches = [
        0 if extent > 1 else alone for extent, alone in zip(view.extents, (rows * row, row, row, size), strict=True)
    ]
    for axis, pitch in [
        *zip(inside, (size, length), strict=False),
        *((a, (rows * row, row)[a]) for a in moved if a < 2),
    ]:
        pitches[axis] = pitch
    extents: Extents = (batches, rows, count, length)
    return Copied(
        View(view.tensor, extents, (*steps, apart, 1), view.offset),
        View(tensor, extents, (rows * row, row, length, 1)),
        replace(view, tensor=tensor, offset=0, pitches=four(pitches)),
        batches == 1 and rows == view.extents[1],
    )


def _covered(view: View, tensor: str) -> Copied:
    size = view.reach(0)
    flat: Extents = (1, 1, 1, size)
    return Copied(
        View(view.tensor, flat, (0, 0, size, 1), view.offset),
        View(tensor, flat, (0, 0, size, 1)),
        replace(view, tensor=tensor, offset=0),
        False,
    )


def load(copied: Copied) -> KernelCall:
    """Return the call that copies from external memory to the memory of the NPU."""
    return KernelCall(
        _MOVE, f"load {copied.outer.tensor}", {"input": copied.outer, "output": copied.inner}, {"channel": LOADS}
    )


def store(copied: Copied) -> KernelCall:
    """Return the call that copies from the memory of the NPU to external memory."""
    return KernelCall(
        _MOVE, f"store {copied.outer.tensor}", {"input": copied.inner, "output": copied.outer}, {"channel": STORES}
    )


def storage_of(copied: Copied) -> Storage:
    """Return the storage in the memory of the NPU that holds a copy."""
    return Storage(copied.inner.tensor, copied.size_bytes)


@dataclass(frozen=True, slots=True)
class Streamed:
    """The calls of a segment (consecutive calls that run together, some rows at a time) with their transfers from and
    to external memory.

    ``calls`` has in this order: ``loads`` transfers that load tensors by rows, the kernels, and ``stores`` transfers
    that store tensors by rows. The transfers ``before`` and ``behind`` copy whole tensors before the first and after
    the last iteration. ``copies`` has, by name, the storages in the memory of the NPU that hold copies of external
    storages or of parts of them.
    """

    segment: Segment
    loads: int
    stores: int
    before: tuple[KernelCall, ...]
    behind: tuple[KernelCall, ...]
    copies: Mapping[str, Storage]
    whole_cycles: int
    """The modelled cycles of the transfers ``before`` and ``behind``."""

    @property
    def calls(self) -> tuple[CallRows, ...]:
        return self.segment.network.calls

    @property
    def pace(self) -> int:
        """Return the position of the last kernel."""
        return len(self.calls) - self.stores - 1


@dataclass(frozen=True, slots=True)
class Tiled:
    """A segment in stripes. ``done`` has the progress of its calls: the rows that are done after each iteration."""

    streamed: Streamed
    stripes: Stripes
    done: Mapping[int, Sequence[int]]

    @property
    def peak_bytes(self) -> int:
        return self.stripes.peak_bytes

    def cycles(self) -> tuple[int, int]:
        """Return the modelled cycles of the segment with transfers in parallel to kernels, and the cycles of its
        transfers alone."""
        found = self.streamed.segment
        count = len(next(iter(self.done.values())))
        computing, moved = [0] * count, [0] * count
        for position in found.positions:
            call, rows = found.network.calls[position], [*map(sub, self.done[position], (0, *self.done[position]))]
            known = {each: call.cycles(0, each, found.network.target) if each else 0 for each in set(rows)}
            spent = [known[each] for each in rows]
            if call.call.is_transfer:
                moved = [*map(add, moved, spent)]
            else:
                computing = [*map(add, computing, spent)]
        whole = self.streamed.whole_cycles
        return whole + sum(map(max, computing, moved)), sum(moved) + whole


@dataclass(slots=True)
class Streams:
    """The segments with transfers of a list of calls. ``storages`` are those before ``in_place``, since any tensor may
    be external."""

    calls: Sequence[KernelCall]
    storages: Storages
    target: Target
    base: Network = field(init=False)
    _rows: dict[tuple[object, ...], tuple[KernelCall, CallRows]] = field(default_factory=dict)
    _copies: dict[tuple[object, ...], tuple[Copied, KernelCall, CallRows]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.base = network(self.calls, self.storages, self.target, True, True)

    def streamed(self, first: int, end: int, external: frozenset[str], whole: bool = False) -> Streamed | None:
        """Return calls [first, end) as a segment, with the transfers that it needs if the storages ``external`` are
        in external memory.

        Return None if the calls can't run by rows, or if they need a tensor of which some parts are in external
        memory and others in the NPU's. ``whole`` is for a single call: all its transfers then copy whole tensors,
        before or after the call.
        """
        return _Builder(self, first, end, external).streamed(whole)

    def rows_of(self, position: int, views: Mapping[str, View], pieces: Mapping[str, Piece]) -> CallRows:
        """Return the rows of the call at ``position``, with some of its views replaced by ``views``."""
        if not views:
            return self.base.calls[position]
        key = position, *sorted((name, view.tensor, view.place) for name, view in views.items())
        found = self._rows.get(key)
        if found is None:
            call = replace(self.calls[position], views={**self.calls[position].views, **views})
            found = self._rows[key] = call, call_rows(call, self._with(views.values()), pieces, self.target, True)
        return found[1]

    def transfer(self, copied: Copied, is_load: bool, pieces: Mapping[str, Piece]) -> tuple[KernelCall, CallRows]:
        """Return the call that loads or stores a copy, and the rows of this call."""
        key = is_load, copied.outer, copied.inner
        found = self._copies.get(key)
        if found is None:
            call = load(copied) if is_load else store(copied)
            made = call_rows(call, self._with([copied.inner]), pieces, self.target, True)
            found = self._copies[key] = copied, call, made
        return found[1], found[2]

    def _with(self, views: Iterable[View]) -> Storages:
        names = [view.tensor for view in views]
        own = {name: Storage(name, 0) for name in names}
        return Storages({**self.storages.storages, **own}, {**self.storages.of, **{name: name for name in names}})


def _nowhere(name: str) -> Piece:
    """Return the ``Piece`` by which the search for cascades knows a storage in external memory. It takes 0 bytes of
    the NPU's memory, and is live before and after the segment."""
    return Piece(name, 0, -1, AFTER, (), (), 0, 0, False)


@dataclass(slots=True)
class _Builder:
    streams: Streams
    first: int
    end: int
    external: frozenset[str]
    pieces: dict[str, Piece] = field(default_factory=dict)
    copies: dict[str, Storage] = field(default_factory=dict)
    views: dict[int, dict[str, View]] = field(default_factory=dict)
    loads: list[Copied] = field(default_factory=list)
    stores: list[Copied] = field(default_factory=list)
    _numbers: dict[tuple[object, ...], View] = field(default_factory=dict)

    def streamed(self, alone: bool) -> Streamed | None:
        base = self.streams.base
        for position in range(self.first, self.end):
            for name, view in self.streams.calls[position].views.items():
                storage = self.streams.storages[view.tensor]
                is_external = storage.constant is None and storage.name in self.external
                if is_external and not self._copy(position, name, view, storage.name):
                    return None
        for name in self.external:
            self.pieces[name] = _nowhere(name)
        known = {**base.pieces, **self.pieces}
        kernels = [self.streams.rows_of(p, self.views.get(p, {}), known) for p in range(self.first, self.end)]
        loads = [(copied, *self.streams.transfer(copied, True, known)) for copied in self.loads]
        stores = [(copied, *self.streams.transfer(copied, False, known)) for copied in self.stores]
        ahead = [each for each in loads if not alone and self._streams_in(each, kernels)]
        late = [each for each in stores if not alone and self._streams_out(each, kernels)]
        rows = (*(each[2] for each in ahead), *kernels, *(each[2] for each in late))
        before = tuple(each[1] for each in loads if each not in ahead)
        behind = tuple(each[1] for each in stores if each not in late)
        made = Network(rows, self._placed(rows, before, behind), base.target, base.issue_cycles)
        found = segment(made, 0, len(rows))
        if found is None:
            return None
        whole = sum(call_cost(each, base.target).cycles for each in (*before, *behind))
        return Streamed(found, len(ahead), len(late), before, behind, self.copies, whole)

    def _copy(self, position: int, name: str, view: View, storage: str) -> bool:
        """Let the call at ``position`` use a copy in the memory of the NPU in place of the external storage of its
        operand ``name``. Return False if some parts of the storage would be in the copy and others only in external
        memory."""
        base, call = self.streams.base.pieces[storage], self.streams.calls[position]
        written = [p for p in base.writers if self.first <= p < self.end]
        read = [p for p in base.readers if self.first <= p < self.end]
        if not written:
            return self._copied(position, name, view, self.loads, f"{storage}<")
        if not read:
            return self._copied(position, name, view, self.stores, f"{storage}>", len(base.writers) > 1)
        if base.first < self.first:
            return written == read == [position] and self._updated(position, name, view, storage)
        self.views.setdefault(position, {})[name] = replace(view, tensor=f"{storage}>")
        complete = len(written) == len(base.writers)
        if f"{storage}>" not in self.copies:
            self._whole(storage, base, complete)
        return complete or not call.writes(name) or self._store_part(view, storage)

    def _updated(self, position: int, name: str, view: View, storage: str) -> bool:
        """Replace an operand by a copy of its whole storage, which the call updates in place. Return False if the
        operand is only a part of its storage.

        Example: in a graph with states as inputs and outputs, a recurrent layer updates a state in an output.
        """
        copy, size = f"{storage}>", self.streams.storages.storages[storage].size_bytes
        if view.distinct_bytes != size:
            return False  # the other bytes of the storage may not be written yet
        self.views.setdefault(position, {})[name] = replace(view, tensor=copy)
        if copy not in self.copies:
            self._add(copy, size, 0, False)
            outer = View(storage, (1, 1, 1, size), (size, size, size, 1))
            inner = replace(outer, tensor=copy)
            moved = Copied(outer, inner, inner, False)
            self.loads.append(moved)
            self.stores.append(moved)
        return True

    def _copied(
        self, position: int, name: str, view: View, side: list[Copied], stem: str, partly: bool = False
    ) -> bool:
        key = stem, view.place
        if key not in self._numbers:
            copied = compact(view, f"{stem}{len(side)}")
            if partly and copied.size_bytes != view.size_bytes:
                return False  # between the bytes of this call are bytes that other calls write
            side.append(copied)
            self._numbers[key] = copied.view
            self._add(copied.inner.tensor, copied.size_bytes, copied.inner.pitches[1], copied.by_rows)
        self.views.setdefault(position, {})[name] = self._numbers[key]
        return True

    def _add(self, name: str, size: int, pitch: int, rolls: bool) -> None:
        self.copies[name] = Storage(name, size)
        rows = size // pitch if pitch else 0
        rolls = rolls and rows > 1
        self.pieces[name] = Piece(
            name, max(aligned(size), aligned(1)), 0, 0, (), (), pitch if rolls else 0, rows, rolls
        )

    def _whole(self, storage: str, base: Piece, complete: bool) -> None:
        """Add a copy, in the memory of the NPU, of a whole storage that the segment both writes and reads. If
        ``complete`` and a later call uses the storage, add a transfer that stores the copy.

        ``complete`` states that the segment writes all parts of the storage.
        """
        name, size = f"{storage}>", self.streams.storages.storages[storage].size_bytes
        rolls = base.row_pitch > 0 and base.rows > 1 and base.rows * base.row_pitch == size and self._in_rows(base)
        self.copies[name] = Storage(name, size)
        self.pieces[name] = Piece(name, max(aligned(size), aligned(1)), 0, 0, (), (), base.row_pitch, base.rows, rolls)
        if complete and base.last >= self.end:
            rows, pitch = (base.rows, base.row_pitch) if rolls else (1, size)
            outer = View(storage, (1, rows, 1, pitch), (size, pitch, pitch, 1))
            inner = replace(outer, tensor=name)
            self.stores.append(Copied(outer, inner, inner, rolls))

    def _in_rows(self, base: Piece) -> bool:
        """Return whether each call of the segment that uses a storage has a view of all of its rows, in their order."""
        for position in {*base.writers, *base.readers}:
            for view in self.streams.calls[position].views.values() if self.first <= position < self.end else ():
                if self.streams.storages.of.get(view.tensor) == base.name:
                    offset, fits = in_row(view, base.row_pitch)
                    if not fits or offset or view.extents[1] != base.rows:
                        return False
        return True

    def _store_part(self, view: View, storage: str) -> bool:
        """Add a transfer that stores a view that the segment also reads. Return False if other calls write bytes
        between those of the view."""
        copied = compact(view, f"{storage}>")
        if copied.size_bytes != view.size_bytes:
            return False
        inner = replace(copied.outer, tensor=f"{storage}>")
        made = Copied(copied.outer, inner, inner, copied.by_rows and self.pieces[f"{storage}>"].can_roll)
        if made not in self.stores:
            self.stores.append(made)
        return True

    def _streams_in(self, made: tuple[Copied, KernelCall, CallRows], kernels: Sequence[CallRows]) -> bool:
        copied, _, rows = made
        readers = [kernel.reads[rows.output] for kernel in kernels if rows.output in kernel.reads]
        return copied.by_rows and rows.by_rows and all(needs is not None for needs in readers)

    def _streams_out(self, made: tuple[Copied, KernelCall, CallRows], kernels: Sequence[CallRows]) -> bool:
        copied, _, rows = made
        (name,) = rows.reads
        writers = [kernel for kernel in kernels if kernel.output == name]
        return copied.by_rows and rows.by_rows and rows.reads[name] is not None and all(w.in_rows for w in writers)

    def _placed(
        self, rows: Sequence[CallRows], before: Sequence[KernelCall], behind: Sequence[KernelCall]
    ) -> dict[str, Piece]:
        """Return the storages of the segment by name, each with the positions of the calls that use it. A position is an index of ``rows``."""
        writers: dict[str, list[int]] = {}
        readers: dict[str, list[int]] = {}
        for position, call in enumerate(rows):
            for name in dict.fromkeys((call.output, *self._other_results(call))):
                writers.setdefault(name, []).append(position)
            for name in call.reads:
                readers.setdefault(name, []).append(position)
        loaded = {call.views["output"].tensor for call in before}
        stored = {call.views["input"].tensor for call in behind}
        base, pieces = self.streams.base.pieces, {}
        for name in {**writers, **readers}:
            if name in self.external:
                pieces[name] = self.pieces[name]
                continue
            own = self.pieces.get(name) or base[name]
            touched = [*writers.get(name, ()), *readers.get(name, ())]
            is_before = name in loaded if name in self.copies else own.first < self.first
            is_behind = name in stored if name in self.copies else own.last >= self.end
            first, last = -1 if is_before else min(touched), AFTER if is_behind else max(touched)
            users = tuple(writers.get(name, ())), tuple(readers.get(name, ()))
            # A call of ``dataclasses.replace`` would take three times as long, for each tensor of each segment.
            pieces[name] = Piece(
                name, own.size, first, last, *users, own.row_pitch, own.rows, own.can_roll, own.block_rows
            )
        return pieces

    def _other_results(self, call: CallRows) -> list[str]:
        of, results = self.streams.storages.of, call.call.results
        if len(results) == 1:
            return []
        return [of[call.call.views[name].tensor] for name in results if call.call.views[name].tensor in of]


def tiled(streamed: Streamed, height: int) -> Tiled:
    """Return a segment in stripes of ``height`` rows of its last kernel."""
    pacing = Pacing(streamed.pace, height, False)
    done = lagged(rounds(streamed.segment, *pacing), streamed)
    return Tiled(streamed, evaluated(streamed.segment, pacing, done, 0), done)


def lagged(done: Mapping[int, Sequence[int]], streamed: Streamed) -> dict[int, list[int]]:
    """Return the progress of all calls, shifted so that loads run one iteration before the kernels and stores one
    iteration after them."""
    ahead, behind = int(streamed.loads > 0), int(streamed.stores > 0)
    count = len(streamed.calls)
    made = {}
    for position, progress in done.items():
        start = 0 if position < streamed.loads else ahead + (behind if position >= count - streamed.stores else 0)
        end = ahead + behind - start
        made[position] = [0] * start + [*progress] + [progress[-1]] * end
    return made


def steps_of(made: Tiled, numbers: Mapping[int, int], before: Sequence[int], behind: Sequence[int]) -> list[Step]:
    """Return the steps of a segment: transfers of whole tensors, the iterations, and transfers of whole tensors
    again.

    ``before`` and ``behind`` are the numbers in the schedule of the transfers of whole tensors. ``numbers`` has the
    number of each other call, by its position in the segment.
    """
    streamed = made.streamed
    steps: list[Step] = [*(Whole(number) for number in before), *([Wait(LOADS)] if before else [])]
    count = len(streamed.calls)
    kernels = range(streamed.loads, count - streamed.stores)
    if made.stripes.is_whole and not streamed.loads and not streamed.stores:
        steps.append(Whole(numbers[made.stripes.pace]))
    else:
        passed = dict.fromkeys(range(count), 0)
        order = [*range(streamed.loads), *range(count - streamed.stores, count), *kernels]
        every = []
        for index in range(len(made.done[made.stripes.pace])):
            parts: list[Rows | Wait] = []
            waits: dict[int, Wait] = {}
            for position in order:
                row = made.done[position][index]
                if row > passed[position]:
                    parts.append(Rows(numbers[position], passed[position], row))
                    passed[position] = row
                    if position not in kernels:
                        channel = LOADS if position < streamed.loads else STORES
                        waits[channel] = Wait(channel)
            every.append((*parts, *waits.values()))
        steps += compressed(every)
    return [*steps, *(Whole(number) for number in behind), *([Wait(STORES)] if behind else [])]
