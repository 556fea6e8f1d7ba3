# SPDX-License-Identifier: BSD-3-Clause
"""A list of kernel calls with its storages and cuts, and the edit that changes such a list.

A pass gets an ``Edit``, asks which calls write and read a storage, and replaces calls. The index of writers and readers
is current after each change. A change costs time in proportion to the calls and storages that it touches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Concatenate, ParamSpec

from openneutron.compiler.select.calls import KernelCall, Storage, Storages, View, in_order
from openneutron.options import ARENA, ON_CPU
from openneutron.targets import Target

Use = tuple[int, str]
"""A read of a storage: the place of the reading call (its index in the given list), and the name of its operand."""

Parameters = ParamSpec("Parameters")


@dataclass(frozen=True, slots=True)
class CallList:
    """A list of kernel calls in execution order, with the storages (blocks of memory) of their tensors. ``cuts`` are
    indices of calls. No cascade (neighbouring calls that are computed some rows at a time) has both such a call and
    the call before it."""

    calls: tuple[KernelCall, ...]
    storages: Storages
    cuts: frozenset[int] = frozenset()


class Cause(Enum):
    """A reason why a pass leaves calls unchanged. The value is the reason in words."""

    NO_CALLS = "there is no call of this kind"
    SWITCHED_OFF = "the pass is switched off"
    NOT_TRIED = "no list asks for it"
    UNCHANGED = "every call is so already"
    READ_BY_OTHERS = "the result in between is an output, or another call reads or writes it"
    OVER_IMAGE = "the calls are over an image or in strides, so that cascades can divide them"
    NO_PARTNER = "no call that one kernel runs with it is beside it"
    LAYOUT = "the operands have layouts that the one call can't have"
    STATE = "a call would read the old value of a state too late"
    DIVISION = "heads, channels or batches can't be divided so"
    TOO_MANY_CALLS = "the list would have too many calls"
    LEFT_TO_OTHERS = "another list has the calls joined, and is divided"
    NOT_FASTER = "the calls would take no fewer cycles"


@dataclass(frozen=True, slots=True)
class Skipped:
    """Calls that a pass leaves unchanged, by name, and the cause. Without names, the cause holds for the whole
    list."""

    cause: Cause
    calls: tuple[str, ...] = ()


@dataclass(slots=True)
class Edit:
    """A list of calls that a pass is changing. A place is an index of ``given``, the list before the changes. The
    pass may leave no call, one call or several calls at a place.

    ``target`` is the chip. ``io`` states whether inputs and outputs are in the arena or in the caller's buffers.
    ``rescale`` states whether the CPU or the NPU rescales the results of jobs (products that the NPU computes).
    ``skipped`` has the calls that the pass could have changed but did not, each with the reason.
    """

    given: CallList
    target: Target | None = None
    io: str = ARENA
    rescale: str = ON_CPU
    storages: Storages = field(init=False)
    skipped: list[Skipped] = field(init=False, default_factory=list)
    _pieces: dict[str, Storage] = field(init=False)
    _of: dict[str, str] = field(init=False)
    _changed: dict[int, tuple[KernelCall, ...]] = field(init=False, default_factory=dict)
    _cuts: dict[int, tuple[int, ...]] = field(init=False)
    _index: tuple[dict[str, set[int]], dict[str, dict[int, tuple[str, ...]]]] | None = field(init=False, default=None)
    _has_states: bool = field(init=False)

    def __post_init__(self) -> None:
        self._pieces, self._of = dict(self.given.storages.storages), dict(self.given.storages.of)
        self.storages = Storages(self._pieces, self._of)
        self._cuts = dict.fromkeys(self.given.cuts, (0,))
        self._has_states = any(storage.state is not None for storage in self._pieces.values())

    @property
    def _uses(self) -> tuple[dict[str, set[int]], dict[str, dict[int, tuple[str, ...]]]]:
        """Return two indexes: for each storage the places of the calls that write it, and for each storage and place
        the operands that read it. Both are built at the first access."""
        if self._index is None:
            self._index = {}, {}
            for place in range(len(self)):
                for call in self.at(place):
                    self._enter(place, call)
        return self._index

    # -- the calls -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.given.calls)

    def at(self, place: int) -> tuple[KernelCall, ...]:
        """Return the calls at a place."""
        changed = self._changed.get(place)
        return (self.given.calls[place],) if changed is None else changed

    def find(self, place: int) -> KernelCall | None:
        """Return the only call at a place; None if there is no call, or several."""
        here = self.at(place)
        return here[0] if len(here) == 1 else None

    def __getitem__(self, place: int) -> KernelCall:
        """Return the only call at a place that has exactly one."""
        (call,) = self.at(place)
        return call

    @property
    def chip(self) -> Target:
        """Return the target. A pass that compares cycles needs one, so it must not be None."""
        assert self.target is not None
        return self.target

    @property
    def is_changed(self) -> bool:
        return bool(self._changed)

    @property
    def left(self) -> list[KernelCall]:
        """Return all calls that the edited list has so far, in order."""
        return [call for place in range(len(self)) for call in self.at(place)]

    # -- the index -----------------------------------------------------------------------------------------------------

    def is_flat(self, view: View) -> bool:
        """Return whether the view covers its whole storage without gaps, in the order of its axes."""
        pitch = view.element_bytes
        for extent, own in zip(reversed(view.extents), reversed(view.pitches), strict=True):
            if extent > 1 and own != pitch:
                return False
            pitch *= extent
        return not view.offset and pitch == self.storages[view.tensor].size_bytes

    def writers(self, storage: str) -> list[int]:
        """Return the places of the calls that write a storage, ascending."""
        return sorted(self._uses[0].get(storage, ()))

    def readers(self, storage: str) -> list[Use]:
        """Return the operands that read a storage, by ascending places."""
        return [(place, name) for place, names in sorted(self._uses[1].get(storage, {}).items()) for name in names]

    def writer(self, tensor: str) -> int | None:
        """Return the place of the only call that writes a tensor's storage. Return None if no call or several calls
        write it, or if the storage is not scratch."""
        storage = self.storages[tensor]
        writers = self._uses[0].get(storage.name, ())
        return next(iter(writers)) if storage.is_scratch and len(writers) == 1 else None

    def readers_of_result(self, place: int) -> list[Use]:
        """Return the operands that read a call's output. The list is empty if another call writes the output's
        storage too, or if the storage is not scratch."""
        tensor = self[place].views["output"].tensor
        return self.readers(self.storages.of[tensor]) if self.writer(tensor) == place else []

    def only_reader(self, place: int) -> Use | None:
        """Return the only operand that reads a call's output, or None."""
        readers = self.readers_of_result(place)
        return readers[0] if len(readers) == 1 else None

    def reader(self, place: int, kernel: str, operand: str = "") -> int | None:
        """Return the place of the only call of ``kernel`` that reads a call's output. Return None if there is no such
        call, if there are several, or if one call reads the output by several operands.

        With ``operand``, only reads by the operand of this name count.
        """
        found = [
            at for at, name in self.readers_of_result(place) if self[at].kernel == kernel and operand in ("", name)
        ]
        return found[0] if len(found) == 1 else None

    # -- changes -------------------------------------------------------------------------------------------------------

    def replace(self, changes: Mapping[int, KernelCall | Sequence[KernelCall] | None]) -> bool:
        """Replace the calls at some places: by no call (None), one call, or a sequence of calls. Return whether the
        calls were replaced.

        Nothing changes if a call would then read the old value of a state after another call has overwritten it.
        """
        before = {place: self.at(place) for place in changes}
        for place, calls in changes.items():
            self._put(place, () if calls is None else (calls,) if isinstance(calls, KernelCall) else tuple(calls))
        if not self._has_states or in_order(self.storages, self.left):
            return True
        for place, calls in before.items():
            self._put(place, calls)
            if calls == (self.given.calls[place],):
                del self._changed[place]
        return self.skip(Cause.STATE, *(call for calls in before.values() for call in calls))

    def restate(self, calls: Sequence[KernelCall]) -> None:
        """Put one call at each place: the given calls in an equivalent form, or in another order."""
        pairs = zip(self.given.calls, calls, strict=True)
        self._changed = {place: (call,) for place, (own, call) in enumerate(pairs) if call is not own}
        self._index = None

    def skip(self, cause: Cause, *calls: KernelCall) -> bool:
        """Record calls that the pass leaves as they are; return False."""
        self.skipped.append(Skipped(cause, tuple(call.name for call in calls)))
        return False

    def rename(self, use: Use, tensor: str) -> None:
        """Give an operand another tensor of the same layout."""
        place, name = use
        call = self[place]
        self.replace({place: replace(call, views={**call.views, name: replace(call.views[name], tensor=tensor)})})

    def cut(self, place: int, offsets: Iterable[int] = (0,)) -> None:
        """Mark calls at ``place`` that must not be in the same cascade as the call before them. ``offsets`` are the
        indices of these calls among the calls at the place."""
        self._cuts[place] = (*self._cuts.get(place, ()), *offsets)

    def unused(self, name: str) -> str:
        """Return ``name``, with primes appended until no tensor and no storage has this name."""
        while name in self._of or name in self._pieces:
            name += "'"
        return name

    def store(self, wanted: str, size_bytes: int) -> str:
        """Add a scratch storage of ``size_bytes``, and a tensor of the same name in it. Return the name: ``wanted``,
        with primes appended if it is taken."""
        name = self.unused(wanted)
        self._pieces[name], self._of[name] = Storage(name, size_bytes), name
        return name

    def resize(self, tensor: str, size_bytes: int) -> None:
        """Change the size of the storage of a tensor to ``size_bytes``."""
        storage = self.storages[tensor]
        self._pieces[storage.name] = replace(storage, size_bytes=size_bytes)

    def share(self, storage: str, other: str) -> None:
        """Move all tensors of a storage to the storage ``other``. The calls that accessed the storage then access
        ``other``."""
        writers, readers = self._uses
        self._of |= {tensor: other for tensor, there in self._of.items() if there == storage}
        writers.setdefault(other, set()).update(writers.pop(storage, ()))
        for place, names in readers.pop(storage, {}).items():
            here = readers.setdefault(other, {})
            here[place] = (*here.get(place, ()), *names)

    def remove_unread(self) -> None:
        """Remove each call whose only result is scratch that no call reads. Places with several calls are left as
        they are."""
        for place in reversed(range(len(self))):
            call = self.find(place)
            if call is not None and len(call.results) == 1:
                storage = self.storages[call.views["output"].tensor]
                if storage.is_scratch and not self._uses[1].get(storage.name):
                    self.replace({place: None})

    def finished(self) -> CallList:
        """Return the list with all changes. If no call is changed, return the given list itself.

        Scratch that no call accesses is removed. After ``restate`` alone all storages are kept, since the calls
        access the same ones as before.
        """
        if not self._changed:
            return self.given
        calls: list[KernelCall] = []
        cuts: set[int] = set()
        for place in range(len(self)):
            cuts |= {len(calls) + offset for offset in self._cuts.get(place, ())}
            calls += self.at(place)
        cuts |= {len(calls) for place in self._cuts if place == len(self)}
        if self._index is None:
            return CallList(tuple(calls), self.given.storages, frozenset(cuts))
        writers, readers = self._index
        kept = {
            name: storage
            for name, storage in self._pieces.items()
            if not storage.is_scratch or writers.get(name) or readers.get(name)
        }
        of = {tensor: name for tensor, name in self._of.items() if name in kept}
        return CallList(tuple(calls), Storages(kept, of), frozenset(cuts))

    def _put(self, place: int, calls: tuple[KernelCall, ...]) -> None:
        writers, readers = self._uses
        for call in self.at(place):
            for view in call.views.values():
                storage = self._of[view.tensor]
                writers.get(storage, set()).discard(place)
                readers.get(storage, {}).pop(place, None)
        self._changed[place] = calls
        for call in calls:
            self._enter(place, call)

    def _enter(self, place: int, call: KernelCall) -> None:
        assert self._index is not None
        (writers, readers), results = self._index, call.results
        for name, view in call.views.items():
            storage = self._of[view.tensor]
            if name in results:
                writers.setdefault(storage, set()).add(place)
            if call.reads(name):
                here = readers.setdefault(storage, {})
                here[place] = (*here.get(place, ()), name)


def edited(
    given: CallList,
    edit: Callable[Concatenate[Edit, Parameters], None],
    *args: Parameters.args,
    **kwargs: Parameters.kwargs,
) -> CallList | None:
    """Run a pass on ``given`` and return the new list; None if the pass changes no call."""
    made = Edit(given)
    edit(made, *args, **kwargs)
    return made.finished() if made.is_changed else None
