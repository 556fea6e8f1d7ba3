# SPDX-License-Identifier: BSD-3-Clause
"""The accuracy of the results of a quantized model and of parts of these results, as data and in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from openneutron.features.report.table import plural

ENOUGH_DB = 15.0
"""A warning names results and parts whose signal-to-noise ratio is lower than this, in dB."""

CHANNELS = "channels"
"""The name of a part that consists of neighbouring channels with one range."""

SHOWN = 4
"""The number of results that a text names, and of parts of each result."""


@dataclass(frozen=True, slots=True)
class PartAccuracy:
    """The accuracy of a part of a result. The part is an operand of the concatenation that computes the result, or a
    group of neighbouring channels.

    ``place`` is the index of the part in the result (``[:, 4:9]``). It is empty if the part is no rectangular slice.
    ``db`` is the ratio of signal to noise against the float model, in dB; None if there is no noise, or no signal.
    ``is_constant`` states that all values of the part are equal, although they vary in the float model.
    """

    name: str
    place: str
    db: float | None
    is_constant: bool = False

    @property
    def is_lost(self) -> bool:
        """Return whether the part is useless: it is constant, or its ratio is below ``ENOUGH_DB``."""
        return self.is_constant or (self.db is not None and self.db < ENOUGH_DB)

    def __str__(self) -> str:
        name = f"{self.name} {self.place}".strip()
        return f"{name} is constant" if self.is_constant else f"{name} {db_text(self.db)}"


@dataclass(frozen=True, slots=True)
class OutputAccuracy:
    """The accuracy of result ``index`` of a quantized model against the float model, measured on ``samples``
    calibration samples in PyTorch's arithmetic.

    ``db`` and ``is_constant`` are defined as in ``PartAccuracy``. ``parts`` is empty for a result that is not divided.
    """

    index: int
    samples: int
    db: float | None
    is_constant: bool = False
    parts: tuple[PartAccuracy, ...] = field(default=())

    @property
    def lost(self) -> tuple[PartAccuracy, ...]:
        """Return the parts for which ``is_lost`` is true. If there are none, return the result itself as a part,
        provided that it is lost."""
        whole = PartAccuracy("", "", self.db, self.is_constant)
        found = tuple(part for part in self.parts if part.is_lost)
        return found or ((whole,) if whole.is_lost else ())

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as data for JSON."""
        return {**asdict(self), "parts": [asdict(part) for part in self.parts]}


def db_text(value: float | None) -> str:
    """Return a ratio in words, in whole dB, since the last digit of a float differs between processors. Return
    ``exact`` for None.

    >>> db_text(41.27)
    '41 dB'
    """
    return "exact" if value is None else f"{math.floor(value + 0.5):d} dB"


def output_lines(outputs: Sequence[OutputAccuracy]) -> list[str]:
    """Return a line for each result, in the order of the model, with at most ``SHOWN`` results. Results with lost
    parts are chosen first, then those with the lowest ratios. If results are omitted, one more line has their number.
    """
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
    """Return a warning that names results and parts that are too far from the float model; None if there are none.

    ``io_dtype`` is the type of the model's outputs if they are not float; it determines the hint at the end of the
    warning.
    """
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
