# SPDX-License-Identifier: BSD-3-Clause
"""Read ONNX files that are cut or changed: each gives a program, or an error of this project.

    python -m tests.fuzz.onnx_files 0 20000

The files are three: a float network, one with quantized values and a function, and one with a loop and a branch. Each file has 20 CPU-s and
1 GiB of memory. Prints a line for each raw exception, and the counts.
"""

from __future__ import annotations

import collections
import random
import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from openneutron.device.forms import ONNX
from openneutron.errors import OpenNeutronError

SECONDS = 20
"""The CPU time that a file may take."""

BYTES = 1 << 30
"""The memory that all files may take beside the libraries: constants of 128 MiB and four times the file are allowed, and torch.export copies."""


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


def wholes() -> list[bytes]:
    """Return the files that are changed."""
    import numpy as np
    import onnx
    from onnx import helper

    from tests.onnx_models.made import model, random, small_network

    node = helper.make_node
    quantized = model(
        [
            node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            node("DequantizeLinear", ["q", "s", "z"], ["a"]),
            node("DequantizeLinear", ["w", "ws", "wz"], ["b"], axis=1),
            node("MatMul", ["a", "b"], ["c"]),
            node("Twice", ["c"], ["y"], domain="own"),
        ],
        {"x": [2, 4]},
        ["y"],
        {
            "s": np.float32(0.1), "z": np.uint8(120), "w": np.arange(12, dtype=np.int8).reshape(4, 3), "ws": np.ones(3, np.float32),
            "wz": np.zeros(3, np.int8),
        },
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 20)]
    quantized.functions.append(
        helper.make_function(
            "own", "Twice", ["x"], ["y"], [node("Add", ["x", "x"], ["t"]), node("Relu", ["t"], ["y"])], opsets
        )
    )
    quantized.opset_import.append(helper.make_opsetid("own", 1))

    def body(nodes: list[Any], inputs: dict[str, int], outputs: dict[str, int]) -> onnx.GraphProto:
        return helper.make_graph(
            nodes,
            "body",
            [helper.make_tensor_value_info(name, kind, None) for name, kind in inputs.items()],
            [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        )

    step = body(
        [node("Identity", ["go"], ["on"]), node("Mul", ["state", "x"], ["more"]), node("Relu", ["more"], ["row"])],
        {"i": 7, "go": 9, "state": 1},
        {"on": 9, "more": 1, "row": 1},
    )
    branches = {
        f"{name}_branch": body([node(operator, ["end"], [name])], {}, {name: 1})
        for name, operator in (("then", "Neg"), ("else", "Abs"))
    }
    looped = model(
        [node("Loop", ["three", "true", "x"], ["end", "rows"], body=step), node("If", ["true"], ["y"], **branches)],
        {"x": [2, 3]},
        ["y", "rows"],
        {"three": np.array(3), "true": np.array(True), "unused": random(4)},
    )
    return [made.SerializeToString() for made in (small_network(), quantized, looped)]


class TooSlow(Exception):
    """Raised in a file that takes more than ``SECONDS``."""


def _stop(*_: object) -> None:
    raise TooSlow


def main(first: int, last: int) -> int:
    """Read the files of these seeds. Return the number of raw exceptions."""
    files = wholes()
    counts: collections.Counter[str] = collections.Counter()
    signal.signal(signal.SIGVTALRM, _stop)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        for whole in files:
            path.write_bytes(whole)
            ONNX.read(path)  # imports what reading takes, before memory is bounded
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))
        for seed in range(first, last):
            path.write_bytes(mutated(files[seed % len(files)], seed))
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
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
                    flush=True,
                )
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    print(dict(counts))
    return counts["raw"]


if __name__ == "__main__":
    sys.exit(1 if main(*map(int, sys.argv[1:3])) else 0)
