# SPDX-License-Identifier: BSD-3-Clause
"""The accuracy of a quantized model's results, and of their parts, as data and in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from openneutron.features.report.units import plural

ENOUGH_DB = 15.0
"""A result or part with a lower ratio is warned of."""

CHANNELS = "channels"
"""The name of parts that are neighbouring channels of one range."""

SHOWN = 4
"""Results, and parts of one, that a text names."""


@dataclass(frozen=True, slots=True)
class PartAccuracy:
    """The accuracy of a part of a result: an operand of the concatenation that the result is, or neighbouring channels.

    ``place`` is the part's place in the result as an index (``[:, 4:9]``), empty for a part that is no box. ``db`` is the ratio of
    signal to noise against float, in dB; None without noise, or without a signal. ``is_constant``: the part has one value, although
    it varies in float.
    """

    name: str
    place: str
    db: float | None
    is_constant: bool = False

    @property
    def is_lost(self) -> bool:
        """Return whether the part is too far from float to be of use."""
        return self.is_constant or (self.db is not None and self.db < ENOUGH_DB)

    def __str__(self) -> str:
        name = f"{self.name} {self.place}".strip()
        return f"{name} is constant" if self.is_constant else f"{name} {db_text(self.db)}"


@dataclass(frozen=True, slots=True)
class OutputAccuracy:
    """The accuracy of result ``index`` of a quantized model in PyTorch's arithmetic, on some calibration samples, against float.

    The fields are those of ``PartAccuracy``. ``parts`` is empty for a result without parts.
    """

    index: int
    samples: int
    db: float | None
    is_constant: bool = False
    parts: tuple[PartAccuracy, ...] = field(default=())

    @property
    def lost(self) -> tuple[PartAccuracy, ...]:
        """Return the parts that are too far from float to be of use; the result itself, if it is and has no parts."""
        whole = PartAccuracy("", "", self.db, self.is_constant)
        found = tuple(part for part in self.parts if part.is_lost)
        return found or ((whole,) if whole.is_lost else ())

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as data for JSON."""
        return {**asdict(self), "parts": [asdict(part) for part in self.parts]}


def db_text(value: float | None) -> str:
    """Return a ratio in words, in whole dB: the last digit of float differs between processors.

    >>> db_text(41.27)
    '41 dB'
    """
    return "exact" if value is None else f"{math.floor(value + 0.5):d} dB"


def output_lines(outputs: Sequence[OutputAccuracy]) -> list[str]:
    """Return a line for each result, lost results first. The last line counts the results that are left out."""
    order = sorted(outputs, key=lambda item: (not item.lost, math.inf if item.db is None else item.db))
    shown = sorted(order[:SHOWN], key=lambda item: item.index)
    lines = []
    for item in shown:
        name = f"result {item.index}: " if len(outputs) > 1 else ""
        said = "constant" if item.is_constant else db_text(item.db)
        lines.append(f"{name}{said} against float{_parts_text(item.parts)}")
    if len(outputs) > len(shown):
        lines.append(f"and {plural(len(outputs) - len(shown), 'result')} with more; --json has all of them")
    return lines


def _parts_text(parts: Sequence[PartAccuracy]) -> str:
    if not parts:
        return ""
    order = sorted(parts, key=lambda item: (not item.is_lost, math.inf if item.db is None else item.db))
    shown = [part for part in parts if part in order[:SHOWN]]
    more = f", and {len(parts) - len(shown)} more parts" if len(parts) > len(shown) else ""
    return f": {', '.join(map(str, shown))}{more}"


def accuracy_warning(model: str, outputs: Iterable[OutputAccuracy], io_dtype: str | None = None) -> str | None:
    """Return what a compile warns of: results and parts that are too far from float. ``io_dtype``: the type of outputs that are
    not float."""
    lost = [(item, part) for item in outputs for part in item.lost]
    if not lost:
        return None
    said = []
    for item, part in lost[:SHOWN]:
        name = " ".join(filter(None, (f"result {item.index}", f"part {part.name}" * bool(part.name), part.place)))
        said.append(f"{name} is constant" if part.is_constant else f"{name} has {db_text(part.db)}")
    more = f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else ""
    samples = plural(lost[0][0].samples, "calibration sample")
    hint = "`openneutron accuracy` names the layers that lose it."
    if any(part.name == CHANNELS for _, part in lost):
        hint = "One layer computes channels of different ranges with one scale. Compute them with a layer for each range, and concatenate."
    elif io_dtype is not None and any(part.name for _, part in lost):
        hint = (
            f"A result of io_dtype='{io_dtype}' has one scale for all of its parts. Return the parts as results of their own, or leave "
            "io_dtype out."
        )
    return f"'{model}': {', '.join(said)}{more}, against float on {samples}. {hint}"
