# SPDX-License-Identifier: BSD-3-Clause
"""Compare all kernels and MLPerf Tiny's networks on every board with the portable kernels and with LiteRT.

    python -m tests.cortex_m33.every_board --boards Cortex-M4 Cortex-M55 --levels=-O2 --calls 1000

The tests run a slice of these calls. Each network's line has the instructions of an inference and the bytes of code.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import numpy as np

import openneutron
from openneutron import litert
from openneutron.isa import Program
from openneutron.isa.kernel_selection import KernelSelection, called_kernels
from openneutron.litert.interpret import interpret
from tests.cortex_m33 import link_map, random_calls, random_convolutions
from tests.cortex_m33.boards import BOARDS, Board
from tests.cortex_m33.cases import Case, run
from tests.cortex_m33.firmware import RUNNER, image, library
from tests.cortex_m33.instructions import instructions
from tests.cortex_m33.models import TINY, model
from tests.support.made_networks import models_folder


def main() -> None:
    """Run what the command line asks for. Fails at the first difference."""
    names = [board.core for board in BOARDS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boards", nargs="+", default=names, choices=names)
    parser.add_argument("--compilers", nargs="+", default=["gcc", "clang"], choices=["gcc", "clang"])
    parser.add_argument("--levels", nargs="+", default=["-Os", "-O2"])
    parser.add_argument("--calls", type=int, default=1000, help="random calls of each kernel")
    given = parser.parse_args()
    networks = {name: _network(file) for name, file in TINY.items()}
    for board in (board for board in BOARDS if board.core in given.boards):
        for compiler in given.compilers:
            for level in given.levels:
                print(board.core, compiler, level)
                for form in ("", "_16"):
                    random_convolutions.compare(form, (level,), compiler, board)
                random_calls.compare(random_calls.KERNELS, 0, given.calls, (level,), board, compiler)
                _compare_networks(networks, board, compiler, level)


def _network(file: str) -> tuple[Program, bytes, bytes]:
    """Return a network's program, an input, and LiteRT's output."""
    path = models_folder() / f"{file}.tflite"
    graph = litert.read(path).graph
    random = np.random.default_rng(0)
    inputs = [random.integers(-128, 128, graph[name].shape, np.int8) for name in graph.inputs]
    outputs = interpret(path.read_bytes(), inputs)
    (program,) = (model(name).program for name, other in TINY.items() if other == file)
    return program, b"".join(item.tobytes() for item in inputs), b"".join(item.tobytes() for item in outputs)


def _compare_networks(
    networks: Mapping[str, tuple[Program, bytes, bytes]], board: Board, compiler: str, level: str
) -> None:
    archive = library((level,), compiler, board=board)
    for name, (program, given, want) in networks.items():
        selection = KernelSelection(f"OpenNeutron {openneutron.__version__}", called_kernels([program])).text()
        firmware = image(archive, RUNNER, selection, board=board)
        (done,) = run(firmware, [Case(program, (given,))])
        assert done.runs[0].outputs == want, f"{name}: the output on {board.core} is not LiteRT's"
        sections = link_map.read(firmware.map).sections
        code = sum(size for (member, _), size in sections.items() if member.startswith(("libneutron", "kernel_sel")))
        print(f"  {name}: {instructions(program, given, firmware).total:,} instructions, {code:,} bytes of code")


if __name__ == "__main__":
    main()
