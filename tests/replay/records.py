# SPDX-License-Identifier: BSD-3-Clause
"""Cases, their records, and files of records."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from openneutron.errors import OpenNeutronError

HASH_DIGITS = 16
ERROR_LENGTH = 100


@dataclass(frozen=True, slots=True)
class Case:
    """A named compile; ``compiled`` returns the text that stands for the result, or raises an OpenNeutronError."""

    name: str
    compiled: Callable[[], str]

    def record(self) -> str:
        """Return the text of the result, or the start of the error's message."""
        try:
            return self.compiled()
        except OpenNeutronError as error:
            return f"{type(error).__name__}: {' '.join(str(error).split())}"[:ERROR_LENGTH].rstrip()


def digest(data: bytes) -> str:
    """Return the first hexadecimal digits of the SHA-256 of the bytes."""
    return hashlib.sha256(data).hexdigest()[:HASH_DIGITS]


def read(path: Path) -> dict[str, str]:
    """Return the records of a file by their cases' names: a name without blanks, a blank and the record in each line."""
    return dict(line.split(" ", 1) for line in path.read_text().splitlines())


def write(path: Path, records: Mapping[str, str]) -> None:
    path.write_text("".join(f"{name} {record}\n" for name, record in records.items()))


def differences(cases: Iterable[Case], recorded: Mapping[str, str]) -> list[str]:
    """Return a line for each case whose record differs from the recorded one."""
    found = ((case.name, recorded.get(case.name, "absent"), case.record()) for case in cases)
    return [f"{name}: recorded {before}, now {now}" for name, before, now in found if before != now]
