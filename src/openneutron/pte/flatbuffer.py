# SPDX-License-Identifier: BSD-3-Clause
"""A flatbuffer's tables, read without a schema compiler: fields by their position, every read inside the buffer."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Table:
    """A table. Reading past the buffer raises struct.error or IndexError, never more."""

    data: bytes = field(repr=False)
    at: int

    @classmethod
    def root(cls, data: bytes) -> Table:
        return cls(data, struct.unpack_from("<I", data, 0)[0])

    def _field(self, index: int) -> int | None:
        """Return the position of a field's value; None where the table leaves it out."""
        vtable = self.at - self._read("<i", self.at)
        if 4 + 2 * index >= self._read("<H", vtable):
            return None
        offset = self._read("<H", vtable + 4 + 2 * index)
        return self.at + offset if offset else None

    def _read(self, kind: str, at: int) -> int:
        if at < 0:
            raise IndexError(at)
        return int(struct.unpack_from(kind, self.data, at)[0])

    def _target(self, at: int) -> int:
        return at + self._read("<I", at)

    def number(self, index: int, kind: str) -> int:
        place = self._field(index)
        return 0 if place is None else self._read(kind, place)

    def table(self, index: int) -> Table:
        place = self._field(index)
        if place is None:
            raise IndexError(index)
        return Table(self.data, self._target(place))

    def _vector(self, index: int) -> tuple[int, int]:
        """Return the position of a vector's first element and the number of elements; 0 where the table leaves it out."""
        place = self._field(index)
        if place is None:
            return 0, 0
        start = self._target(place)
        return start + 4, self._read("<I", start)

    def tables(self, index: int) -> list[Table]:
        start, count = self._vector(index)
        if start + 4 * count > len(self.data):
            raise IndexError(count)
        return [Table(self.data, self._target(start + 4 * i)) for i in range(count)]

    def content(self, index: int) -> bytes:
        """Return a string's or byte vector's bytes; none where it is left out."""
        return self.slice(*self._vector(index))

    def slice(self, start: int, size: int) -> bytes:
        if start + size > len(self.data):
            raise IndexError(start + size)
        return self.data[start : start + size]

    def numbers(self, index: int, kind: str) -> tuple[int, ...]:
        """Return a vector of numbers; none where it is left out."""
        start, count = self._vector(index)
        data = self.slice(start, count * struct.calcsize(kind))
        return tuple(int(value) for (value,) in struct.iter_unpack(kind, data))

    def real(self, index: int) -> float:
        """Return a double."""
        place = self._field(index)
        return 0.0 if place is None else float(struct.unpack_from("<d", self.data, place)[0])
