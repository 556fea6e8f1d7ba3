# SPDX-License-Identifier: BSD-3-Clause
"""Copies and pickles of compiled models."""

from __future__ import annotations

import dataclasses
import io
import pickle
from types import MappingProxyType
from typing import Any, Self


class Copied:
    """A frozen dataclass that can be copied and pickled. A copy has a state of its own, as before the first run."""

    def as_fields(self) -> dict[str, Any]:
        """Return the fields for a pickle, by name."""
        assert dataclasses.is_dataclass(self)
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}

    def __copy__(self) -> Self:
        assert dataclasses.is_dataclass(self)
        return dataclasses.replace(self)

    def __deepcopy__(self, _memo: object) -> Self:
        return self.__copy__()  # nothing in it changes

    def __reduce__(self) -> tuple[Any, ...]:
        data = io.BytesIO()
        _Pickler(data, pickle.HIGHEST_PROTOCOL).dump(self.as_fields())
        return _unpickled, (type(self), data.getvalue())


def _unpickled(kind: type[Any], data: bytes) -> Any:
    return kind(**pickle.loads(data))


def _read_only(found: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(found)  # its class has no name that a pickle can hold


class _Pickler(pickle.Pickler):
    """A pickler that accepts the read-only mappings of graphs and programs."""

    def reducer_override(self, item: object) -> Any:
        """Return what a read-only mapping is made of again."""
        return (_read_only, (dict(item),)) if isinstance(item, MappingProxyType) else NotImplemented
