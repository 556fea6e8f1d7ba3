# SPDX-License-Identifier: BSD-3-Clause
"""Read ONNX files that are cut or changed: each gives a program, or an error of this project.

    python -m tests.fuzz.onnx_files 0 20000

Prints a line for each raw exception, and the counts.
"""

from __future__ import annotations

import collections
import random
import sys
import tempfile
import traceback
from pathlib import Path

from openneutron.device.forms import ONNX
from openneutron.errors import OpenNeutronError


def mutated(whole: bytes, seed: int) -> bytes:
    """Return the bytes of a file with a few changes that ``seed`` decides: cut, or with bytes changed, removed, repeated or inserted."""
    chosen = random.Random(seed)
    data = bytearray(whole)
    for _ in range(chosen.choice((1, 1, 1, 2, 4, 16))):
        place = chosen.randrange(len(data)) if data else 0
        kind = chosen.randrange(6)
        if kind == 0:
            del data[place:]
        elif kind == 1 and data:
            data[place] = chosen.randrange(256)
        elif kind == 2 and data:
            data[place] ^= 1 << chosen.randrange(8)
        elif kind == 3:
            del data[place : place + chosen.randrange(1, 9)]
        elif kind == 4:
            data[place:place] = data[place : place + chosen.randrange(1, 65)]
        else:
            data[place:place] = bytes(chosen.randrange(256) for _ in range(chosen.randrange(1, 9)))
    return bytes(data)


def main(first: int, last: int) -> int:
    """Read the files of these seeds. Return the number of raw exceptions."""
    from tests.onnx_models.made import small_network

    whole = small_network().SerializeToString()
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        for seed in range(first, last):
            path.write_bytes(mutated(whole, seed))
            try:
                ONNX.read(path)
                counts["read"] += 1
            except OpenNeutronError:
                counts["refused"] += 1
            except Exception as error:
                counts["raw"] += 1
                print(
                    seed,
                    type(error).__name__,
                    str(error).partition("\n")[0],
                    traceback.extract_tb(error.__traceback__)[-1],
                )
    print(dict(counts))
    return counts["raw"]


if __name__ == "__main__":
    sys.exit(1 if main(*map(int, sys.argv[1:3])) else 0)
