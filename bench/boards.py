# SPDX-License-Identifier: BSD-3-Clause
"""Published latencies of Cortex-M boards, and the cycles of an instruction that follow from them.

The figures are those of MLPerf Tiny v1.0 (github.com/mlcommons/tiny_results_v1.0, the performance results of each submission). Those
with CMSIS-NN are divided by the instructions of CMSIS-NN's kernels for the same networks, which ``python -m bench cortex_m`` counts in
QEMU. The quotient is the number of cycles of an instruction, with the wait states of the board's flash. X-CUBE-AI has no instructions
that are known; its figures relate one core to another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

TITLE = "Published latencies of Cortex-M boards, and the model beside them"
LEFT = ("board", "network", "runtime")

NETWORKS = {
    "AD": "mlperf_tiny_ad01_int8",
    "IC": "mlperf_tiny_resnet8_int8",
    "KWS": "mlperf_tiny_kws_int8",
    "VWW": "mlperf_tiny_vww96_int8",
}
"""The file of each network of the benchmark."""

CMSIS_NN = {"AD": 582_400, "IC": 29_854_650, "KWS": 7_564_100, "VWW": 23_733_950}
"""Instructions of CMSIS-NN's kernels on a Cortex-M33, gcc 12.2 -O2: ``python -m bench cortex_m --cmsis-nn FOLDER``. A Cortex-M4 executes
the same ones."""

TVM, CUBE, PLUMERAI = "microTVM with CMSIS-NN", "X-CUBE-AI", "Plumerai"


@dataclass(frozen=True, slots=True)
class Board:
    """A board of the published results: its core as a target, and its clock in MHz."""

    name: str
    core: str
    mhz: float


NRF5340 = Board("nRF5340 DK", "cortex-m33", 128)
L4R5 = Board("NUCLEO-L4R5ZI", "cortex-m4", 120)
U575 = Board("NUCLEO-U575ZI-Q", "cortex-m33", 160)
H7A3 = Board("NUCLEO-H7A3ZI-Q", "cortex-m7", 280)

RATES: dict[tuple[Board, str], dict[str, float]] = {
    (NRF5340, TVM): {"AD": 159.579, "IC": 3.163, "KWS": 13.140, "VWW": 4.310},
    (L4R5, TVM): {"AD": 116.212, "IC": 2.567, "KWS": 10.018, "VWW": 3.320},
    (L4R5, CUBE): {"AD": 131.950, "IC": 4.407, "KWS": 13.323, "VWW": 4.339},
    (U575, CUBE): {"AD": 206.211, "IC": 7.158, "KWS": 22.608, "VWW": 7.496},
    (H7A3, CUBE): {"AD": 547.707, "IC": 18.401, "KWS": 59.667, "VWW": 19.722},
    (L4R5, PLUMERAI): {"AD": 179.450, "IC": 5.775, "KWS": 13.955, "VWW": 4.795},
}
"""Inferences in a second, by board and runtime."""


def cycles(board: Board, runtime: str, network: str) -> float:
    """Return the cycles of an inference."""
    return board.mhz * 1e6 / RATES[board, runtime][network]


def _mean(values: Iterable[float]) -> float:
    """Return the geometric mean."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms))


def instruction_cycles() -> dict[str, float]:
    """Return the cycles of an instruction, by core.

    The Cortex-M7 has no figure with CMSIS-NN: it is the Cortex-M4's, times the mean ratio of the two cores' cycles with X-CUBE-AI.
    """
    found = {
        board.core: _mean(cycles(board, TVM, network) / count for network, count in CMSIS_NN.items())
        for board in (NRF5340, L4R5)
    }
    found["cortex-m7"] = found["cortex-m4"] * _mean(cycles(H7A3, CUBE, n) / cycles(L4R5, CUBE, n) for n in CMSIS_NN)
    return found


def left_out() -> dict[tuple[str, str], float]:
    """Return for each figure with CMSIS-NN the relative error of the time that the other networks on its board predict for it."""
    found = {}
    for board in (NRF5340, L4R5):
        each = {network: cycles(board, TVM, network) / count for network, count in CMSIS_NN.items()}
        for network, value in each.items():
            others = _mean(other for name, other in each.items() if name != network)
            found[board.name, network] = others / value - 1
    return found


def measure() -> dict[str, Any]:
    """Return the published and the modelled milliseconds of each network on each board, in a list."""
    from openneutron import litert, targets
    from openneutron.compiler import compile_graph
    from tests.support.made_networks import models_folder

    figures = []
    for (board, runtime), rates in RATES.items():
        target = targets.get(board.core)
        for network, rate in rates.items():
            graph = litert.read(models_folder() / f"{NETWORKS[network]}.tflite").graph
            ours = compile_graph(graph, target).report.cycles / board.mhz / 1e3
            peer = CMSIS_NN[network] * instruction_cycles()[board.core] / board.mhz / 1e3 if runtime == TVM else None
            figures.append(
                {
                    "board": board.name,
                    "network": network,
                    "runtime": runtime,
                    "published": 1e3 / rate,
                    "modelled": peer,
                    "ours": ours,
                }
            )
    return {"figures": figures, "left_out": [[*key, error] for key, error in left_out().items()]}


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the heads and lines of the printed table."""
    heads = (
        "board",
        "network",
        "runtime",
        "published ms",
        "the same, modelled",
        "left out",
        "OpenNeutron, modelled ms",
    )
    errors = {(board, network): error for board, network, error in results["left_out"]}
    lines = []
    for each in results["figures"]:
        modelled, error = each["modelled"], errors.get((each["board"], each["network"]))
        is_known = modelled is not None and error is not None
        cells = (f"{modelled:.1f}", f"{error:+.0%}") if is_known else ("", "")
        lines.append(
            (each["board"], each["network"], each["runtime"], f"{each['published']:.1f}", *cells, f"{each['ours']:.1f}")
        )
    return heads, lines
