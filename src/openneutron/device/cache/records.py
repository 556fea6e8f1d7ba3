# SPDX-License-Identifier: BSD-3-Clause
"""Dataclasses from the JSON of an entry, with every type checked: an entry of a wrong form counts as absent."""

from __future__ import annotations

import struct
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

UNREADABLE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,  # also RecursionError, of deeply nested JSON
    StopIteration,
    struct.error,
    TypeError,
    ValueError,
)
"""The exceptions of code that reads an entry whose content has another form."""

Record = TypeVar("Record")


def record(kind: type[Record], facts: Any) -> Record:
    """Return the dataclass of these fields, with tuples for JSON's lists.

    Raises TypeError where a field is unknown, missing, or of another type than the dataclass states.
    """
    key: Any = kind
    wanted = _types(key)
    if not isinstance(facts, dict) or not facts.keys() <= wanted.keys():
        raise TypeError(f"{kind.__name__}: it has other fields")
    return kind(**{name: _value(wanted[name], value) for name, value in facts.items()})


@cache
def _types(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {item.name: hints[item.name] for item in fields(kind)}


def _value(wanted: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        return _value(next(kind for kind in arguments if kind is not type(None)), value)
    if origin is tuple:
        if not isinstance(value, list) or (arguments[-1] is not ... and len(value) != len(arguments)):
            raise TypeError(f"{value!r:.40} is no {wanted}")
        kinds = [arguments[0]] * len(value) if arguments[-1] is ... else arguments
        return tuple(_value(kind, item) for kind, item in zip(kinds, value, strict=True))
    if origin is Mapping:
        if not isinstance(value, dict):
            raise TypeError(f"{value!r:.40} is no {wanted}")
        return {key: _value(arguments[1], item) for key, item in value.items()}
    if is_dataclass(wanted) and isinstance(wanted, type):
        return record(wanted, value)
    accepted = (float, int) if wanted is float else (wanted,)
    if type(value) not in accepted:
        raise TypeError(f"{value!r:.40} is no {wanted}")
    return value
