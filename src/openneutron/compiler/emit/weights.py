# SPDX-License-Identifier: BSD-3-Clause
"""The weights blob of a program: constants one behind the other, among them the first values of states."""

from __future__ import annotations

from dataclasses import dataclass, field

from openneutron.compiler.select.calls import Storages
from openneutron.ir import State
from openneutron.isa import Record, aligned, record
from openneutron.isa.rows import NO_SOURCE, STATE


@dataclass(slots=True)
class Weights:
    """Constants one behind the other, equal ones once."""

    blob: bytearray = field(default_factory=bytearray)
    known: dict[bytes, int] = field(default_factory=dict)

    def add(self, content: bytes) -> int:
        if content not in self.known:
            self.known[content] = len(self.blob)
            self.blob += content
            self.blob += bytes(aligned(len(content)) - len(content))
        return self.known[content]


def state_record(state: State, storages: Storages, weights: Weights) -> Record:
    """Return the place of a state and its first value: one byte, or bytes among the constants."""
    storage = storages.storages[state.tensor]
    first = bytes(storage.size_bytes) if state.initial is None else state.initial.tobytes()
    fill = first[0] if first else 0
    is_filled = first.count(fill) == len(first)
    source = NO_SOURCE if is_filled else weights.add(first)
    return record(
        STATE, offset=storage.state or 0, size=storage.size_bytes, source=source, fill=fill if is_filled else 0
    )
