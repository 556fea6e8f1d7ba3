# SPDX-License-Identifier: BSD-3-Clause
"""The points of a sweep: all combinations of the values that options have.

Every option that is declared with a flag can have several values. This module reads the declarations and treats no
option specially.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openneutron import targets
from openneutron.errors import InvalidOptionError
from openneutron.options import CompileOptions, QuantizationOptions
from openneutron.options.flags import Flag, flags_of, read_as

YES, NO = "yes", "no"

DEFAULT = "default"
"""The text for an option's default if the default itself is None, which can't be written."""

MOST_POINTS = 100_000


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of options: values of fields of CompileOptions (``options``) and of QuantizationOptions
    (``quantization``)."""

    options: Mapping[str, Any]
    quantization: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Return the values of all options as JSON, with the defaults of those that are not given. Equal compiles have
        equal keys.

        For a chip with a file of its own, the key has the hash of that file too.
        """
        options = {name: flag.default for name, flag in flags().items()} | self.values
        target = options["target"]
        if targets.is_file(target):
            options["target_hash"] = hashlib.sha256(Path(target).read_bytes()).hexdigest()[:16]
        return json.dumps(options, sort_keys=True, default=list)

    @property
    def values(self) -> dict[str, Any]:
        """Return the values that are given, by the names of their fields."""
        return {**self.quantization, **self.options}


def flags() -> dict[str, Flag]:
    """Return the flags of the options that a sweep can vary, by the names of their fields."""
    return {**flags_of(CompileOptions), **flags_of(QuantizationOptions)}


def grid(texts: Mapping[str, str]) -> list[Point]:
    """Return all combinations of the values in ``texts``. Its keys are the names of fields, and a text is, for
    instance, ``100..1500`` or ``histogram,minmax``.

    Points with the same quantization are neighbours. Values are in the order of their text, but numbers are in
    descending order, since a compile with more memory can be compiled again with less. Raises InvalidOptionError for
    an unreadable value, and for more than 100,000 points.
    """
    known = flags()
    columns: dict[str, Sequence[Any]] = {name: values_of(known[name], text) for name, text in texts.items()}
    count = 1
    for values in columns.values():
        count *= len(values)
    if count > MOST_POINTS:
        raise InvalidOptionError(
            f"sweep: there are {count:,} points; at most {MOST_POINTS:,} are computed. Give fewer values."
        )
    quantization = [name for name in columns if name in flags_of(QuantizationOptions)]
    options = [name for name in columns if name not in quantization]
    return [Point(one, other) for other in _combined(quantization, columns) for one in _combined(options, columns)]


def _combined(names: Sequence[str], columns: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*(_ordered(columns[name]) for name in names)):
        yield dict(zip(names, values, strict=True))


def _ordered(values: Sequence[Any]) -> Sequence[Any]:
    """Return the values in the order of a sweep. Whole numbers are in descending order, after None, which stands for
    no limit. If any value has another type, the order is unchanged."""
    if not all(value is None or (isinstance(value, int) and not isinstance(value, bool)) for value in values):
        return values
    return sorted(values, key=lambda value: (value is not None, -(value or 0)))


def values_of(flag: Flag, text: str) -> tuple[Any, ...]:
    """Return the values of an option that a text lists, each once. Commas separate the values. A size can be a range,
    ``A..B`` or ``A..B..STEP``; a switch is ``yes`` or ``no``. For an option whose default is None, the word
    ``default`` stands for None. Raises InvalidOptionError, which names the flag, for a text without usable values."""
    found: list[Any] = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        found += _values(flag, item)
    for value in found:
        flag.check(value)
    if not found:
        raise InvalidOptionError(f"{flag.name}: there is no value in '{text}'. Write {flag}.")
    return tuple(dict.fromkeys(found))


def _values(flag: Flag, item: str) -> Sequence[Any]:
    if flag.is_switch:
        if item not in (YES, NO):
            raise InvalidOptionError(f"{flag.name}: '{item}' is unknown; a switch is {YES}, {NO} or {YES},{NO}.")
        return (item == YES,)
    if item == DEFAULT and flag.default is None:
        return (None,)
    if ".." in item and flag.declared.span is not None:
        found: Sequence[Any] = read_as(flag.name, flag.declared.span, item)
        return found
    return (read_as(flag.name, flag.read, item),)
