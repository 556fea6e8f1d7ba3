# SPDX-License-Identifier: BSD-3-Clause
"""Damaged exported programs: ``python -m tests.fuzz.exported_files [FIRST [END]]`` goes through mutants of a small ``.pt2``.

A mutant has another value at one place of the JSON of its program or weights, lacks a record or the end of one, or has another
word in its archive. It compiles, or ends in an OpenNeutronError of one paragraph, in bounded memory and time.
"""

from __future__ import annotations

import io
import json
import random
import signal
import struct
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import FrameType

import torch
from torch import nn

from openneutron import DelegationOptions
from openneutron import compile as compiled
from tests.fuzz.files import changed_values, fault_of, limit_memory, report

MOST_SECONDS = 60
"""The CPU time that a mutant may take. A compile of the file without damage takes one second."""
WORDS = 400
"""The number of mutants of words of the archive, most of which are in the header of a record or in its data."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.head = nn.Linear(4 * 4 * 4, 3)
        self.register_buffer("gain", torch.tensor([0.5, 1.0, 2.0]))

    def forward(self, x: torch.Tensor, where: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.conv(x))
        z = self.head(y.reshape(x.shape[0], -1)) * self.gain
        return z.masked_fill(where, 0.0), y[:, 1:3]


INPUTS = (torch.linspace(-1, 1, 64).reshape(2, 2, 4, 4), torch.tensor([[True, False, False], [False, False, True]]))


@cache
def seed() -> bytes:
    """Return a file without damage."""
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", max=8)
    program = torch.export.export(Net().eval(), INPUTS, dynamic_shapes=({0: batch}, {0: batch}))
    stream = io.BytesIO()
    torch.export.save(program, stream)
    return stream.getvalue()


def records() -> dict[str, bytes]:
    """Return the records of the archive by name."""
    with zipfile.ZipFile(io.BytesIO(seed())) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(content: dict[str, bytes]) -> bytes:
    """Return an archive of these records."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return stream.getvalue()


def mutants() -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yield functions that make a mutant, each with its description."""
    content = records()
    for name, data in content.items():
        yield f"without {name}", partial(packed, {key: value for key, value in content.items() if key != name})
        for size in dict.fromkeys((0, 1, len(data) // 2, len(data) - 1)):
            yield f"{size} bytes of {name}", partial(packed, content | {name: data[:size]})
        if name.endswith(".json"):
            for words, changed in changed_values(json.loads(data)):
                yield f"{name}: {words}", partial(_with_json, content, name, changed)
    drawn = random.Random(0)
    for _ in range(WORDS):
        place = drawn.randrange(0, len(seed()) - 4)
        value = drawn.choice((0, 1, 2**16, 2**31 - 1, 2**32 - 1))
        data = seed()[:place] + struct.pack("<I", value) + seed()[place + 4 :]
        yield f"byte {place} is {value}", partial(bytes, data)


def _with_json(content: dict[str, bytes], name: str, changed: Callable[[], object]) -> bytes:
    return packed(content | {name: json.dumps(changed()).encode()})


def use(data: bytes) -> None:
    """Compile a file. Raises OpenNeutronError for one that is refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.pt2"
        path.write_bytes(data)
        made = compiled(path, calibration=[INPUTS], delegation=DelegationOptions(must_delegate=False, any_runtime=True))
        made.summary()


def fault(data: bytes) -> str:
    """Return what is wrong with the way in which a mutant ends; empty for a good one."""

    def out_of_time(_: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"after {MOST_SECONDS} s")

    signal.signal(signal.SIGVTALRM, out_of_time)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
    try:
        return fault_of(lambda: use(data))
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def every() -> list[tuple[str, Callable[[], bytes]]]:
    """Return all mutants as ``mutants`` yields them, shuffled in an order that is always the same."""
    found = list(mutants())
    random.Random(0).shuffle(found)
    return found


def main(first: int = 0, end: int | None = None) -> int:
    """Go through these mutants; print each kind of fault once, and the counts. Return 1 where there were faults."""
    warnings.showwarning = lambda *_, **__: None
    use(seed())
    limit_memory()
    return report((words, fault(made())) for words, made in every()[first:end])


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
