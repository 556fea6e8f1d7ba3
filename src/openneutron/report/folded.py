# SPDX-License-Identifier: BSD-3-Clause
"""Rows for operators on the CPU: operators at the same place in the model with the same reason share a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from openneutron.diagnostics import OnCpu

SHOWN_KINDS = 3
"""The number of kinds of operators that a row names."""


@dataclass(frozen=True, slots=True)
class CpuRow:
    """The operators of one module, or of one call of the user's, that stay on the CPU for the same reason; at least
    one."""

    items: tuple[OnCpu, ...]

    @property
    def title(self) -> str:
        """Return the operator. For several operators return their call, or their kinds, with the count: ``aten.sort (2
        operators)``."""
        first, count = self.items[0], len(self.items)
        if count == 1:
            return first.operator
        kinds = Counter(item.operator for item in self.items)
        if first.call and len({item.call for item in self.items}) == 1:
            words = first.written
        else:
            words = ", ".join(kind for kind, _ in kinds.most_common(SHOWN_KINDS))
            words += ", ..." if len(kinds) > SHOWN_KINDS else ""
        return f"{words} ({count} operators)"

    def to_dict(self) -> dict[str, Any]:
        """Return the row as data for ``--json``."""
        first = self.items[0]
        return {
            "operator": self.title,
            "name": first.name,
            "reason": first.reason,
            "way_out": first.way_out,
            "count": len(self.items),
        }


def folded(operators: Iterable[OnCpu]) -> list[CpuRow]:
    """Return the operators in rows, each row at the position of its first operator.

    Operators share a row where reason, suggestion and name (the module's path) are equal, or where they are pieces of
    one call of the user's.
    """
    rows: dict[tuple[str, ...], list[OnCpu]] = {}
    row_of: dict[tuple[str, ...], tuple[str, ...]] = {}
    for item in operators:
        words = (item.reason, item.way_out)
        keys = [("name", item.name, *words), *([("call", item.call, *words)] if item.call else [])]
        key = next((row_of[each] for each in keys if each in row_of), keys[0])
        row_of |= dict.fromkeys(keys, key)
        rows.setdefault(key, []).append(item)
    return [CpuRow(tuple(items)) for items in rows.values()]
