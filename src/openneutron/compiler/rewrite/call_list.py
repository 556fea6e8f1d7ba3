# SPDX-License-Identifier: BSD-3-Clause
"""Find the calls that write and read each storage of a list of kernel calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from openneutron.compiler.select.calls import KernelCall, Storage, Storages, View

Use = tuple[int, str]
"""The index of a call in the list, and the name of its operand."""


@dataclass(frozen=True, slots=True)
class CallList:
    """Calls in their order, and their storages, those of ``in_place``. ``cuts``: no cascade continues from before such a call into it."""

    calls: tuple[KernelCall, ...]
    storages: Storages
    cuts: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Uses:
    """Calls (None for a removed call), and for each storage the calls that write it and the operands that read it."""

    storages: Storages
    calls: Sequence[KernelCall | None]
    writers: Mapping[str, Sequence[int]]
    readers: Mapping[str, Sequence[Use]]

    @staticmethod
    def of(storages: Storages, calls: Sequence[KernelCall | None]) -> Uses:
        """Return the uses of these calls."""
        writers: dict[str, list[int]] = {}
        readers: dict[str, list[Use]] = {}
        for place, call in enumerate(calls):
            for storage, name, is_written, is_read in _accesses(storages, call):
                if is_written:
                    writers.setdefault(storage, []).append(place)
                if is_read:
                    readers.setdefault(storage, []).append((place, name))
        return Uses(storages, tuple(calls), writers, readers)

    def replaced(self, changes: Mapping[int, KernelCall | None], more: Sequence[Storage] = ()) -> Uses:
        """Return the uses with other calls, or None, at some indices, and with further storages. The index is copied, and the operands of the
        changed calls alone are looked at."""
        storages = self.storages.with_more(more) if more else self.storages
        calls, writers, readers = list(self.calls), dict(self.writers), dict(self.readers)
        for place, call in changes.items():
            for storage in {storage for storage, *_ in _accesses(storages, calls[place])}:
                writers[storage] = [at for at in writers.get(storage, ()) if at != place]
                readers[storage] = [use for use in readers.get(storage, ()) if use[0] != place]
            for storage, name, is_written, is_read in _accesses(storages, call):
                if is_written:
                    writers[storage] = sorted([*writers.get(storage, ()), place])
                if is_read:
                    readers[storage] = sorted([*readers.get(storage, ()), (place, name)], key=itemgetter(0))
            calls[place] = call
        return Uses(storages, tuple(calls), writers, readers)

    @property
    def left(self) -> list[KernelCall]:
        """Return the calls that are not removed."""
        return [call for call in self.calls if call is not None]

    def __getitem__(self, place: int) -> KernelCall:
        """Return the call at an index, which must not be removed."""
        call = self.calls[place]
        assert call is not None
        return call

    def is_flat(self, view: View) -> bool:
        """Return whether the view covers its storage, byte after byte in the order of its axes."""
        pitch = view.element_bytes
        for extent, own in zip(reversed(view.extents), reversed(view.pitches), strict=True):
            if extent > 1 and own != pitch:
                return False
            pitch *= extent
        return not view.offset and pitch == self.storages[view.tensor].size_bytes

    def writer(self, tensor: str) -> int | None:
        """Return the only call that writes a tensor's storage; None for several calls, or a storage that is not scratch."""
        storage = self.storages[tensor]
        writers = self.writers.get(storage.name, ())
        return writers[0] if storage.is_scratch and len(writers) == 1 else None

    def readers_of_result(self, place: int) -> Sequence[Use]:
        """Return the operands that read a call's output; none where another call writes it too, or where the storage is not scratch."""
        tensor = self[place].views["output"].tensor
        return self.readers.get(self.storages.of[tensor], ()) if self.writer(tensor) == place else ()

    def only_reader(self, place: int) -> Use | None:
        """Return the only operand that reads a call's output, or None."""
        readers = self.readers_of_result(place)
        return readers[0] if len(readers) == 1 else None

    def reader(self, place: int, kernel: str, operand: str = "") -> int | None:
        """Return the one call of a kernel that reads a call's output, as this operand."""
        found = [
            at for at, name in self.readers_of_result(place) if self[at].kernel == kernel and operand in ("", name)
        ]
        return found[0] if len(found) == 1 else None

    def unused(self, name: str) -> str:
        """Return a name that no tensor and no storage has."""
        while name in self.storages.of or name in self.storages.storages:
            name += "'"
        return name

    def without_unread(self) -> Uses:
        """Return the uses without the calls whose only result has no reader any more."""
        left = self
        for place in reversed(range(len(self.calls))):
            call = left.calls[place]
            if call is not None and left._is_unread(call):
                left = left.replaced({place: None})
        return left

    def _is_unread(self, call: KernelCall) -> bool:
        storage = self.storages[call.views["output"].tensor]
        return len(call.results) == 1 and storage.is_scratch and not self.readers.get(storage.name)


def _accesses(storages: Storages, call: KernelCall | None) -> Iterator[tuple[str, str, bool, bool]]:
    """Yield the storage of each operand of a call, the operand's name, and whether the call writes and reads it."""
    for name, view in call.views.items() if call is not None else ():
        assert call is not None
        yield storages.of[view.tensor], name, call.writes(name), call.reads(name)
