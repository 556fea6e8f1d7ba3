# SPDX-License-Identifier: BSD-3-Clause
"""Fit the constants of the cost model to published latencies.

Least squares of relative errors, with bounds, and a weak pull towards values that do not come from the figures. The result is the same
in each run. Each figure is also predicted by a fit without it: its error is the one that a new network may expect.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bench import fit_subsystem
from bench.published import FIGURES, FOMO_BEYOND_ESTIMATE, SOFTMAX_12_MICROSECONDS, Figure, networks
from openneutron import targets
from openneutron.compiler import compile_graph
from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.select.calls import KernelCall
from openneutron.targets import Target

TITLE = "The cost model, fitted to published latencies"
LEFT = ("target", "what it contains")

SOFTMAX_12_CYCLES = SOFTMAX_12_MICROSECONDS * 324
"""The host's cycles for a SOFTMAX over 12 values, which is published alone. Half of them are assumed to be those of any operator."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A constant of the fit, with its bounds and the value that it is pulled to; 0: it is not pulled."""

    name: str
    least: float
    most: float
    prior: float = 0.0


DISPATCH = Parameter("dispatch cycles of a call", 500, 20_000, round(FOMO_BEYOND_ESTIMATE * 150 / 31))
OLD_DISPATCH = Parameter("dispatch cycles of a call, January 2024", 500, 200_000)
CONVERSION = Parameter("host cycles of a converted value", 5, 200, 50)
"""Pulled to the cycles of a division and a rounding in float."""
COPY = Parameter("cycles of a copied byte, imxrt700", 0.81, 5, 0.81)
"""At least those of the peak of an octal flash at 200 MHz, 400 MB/s; pulled there."""
PARAMETERS = (DISPATCH, OLD_DISPATCH, CONVERSION, COPY)

FILLS = tuple(step / 25 for step in range(0, 76))
"""The cycles of fill at a tap that the fit tries."""

DEPTHWISE = (1, 2)
"""The multipliers of a pipeline in depthwise convolutions that the fit tries: the memory port of i.MX RT700 feeds no more than 2."""

COARSE_FILLS = FILLS[::3]
"""The cycles of fill that are tried together with other values of constants that the fit keeps."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The constants that are not factors of a sum: the fit tries each fill and depthwise.

    ``operand``: dispatch cycles of each operand. ``port``: the width of the SRAM port, as a multiple of the chip's assumed one.
    """

    fill: float
    depthwise: int
    operand: float = 0.0
    port: float = 1.0

    def of(self, target: Target) -> Target:
        """Return the target with these constants."""
        costs, arena = target.costs, target.arena_memory
        fill = replace(costs.fill_cycles, value=self.fill)
        depthwise = replace(costs.depthwise_macs, value=self.depthwise)
        wider = replace(arena, bandwidth=replace(arena.bandwidth, value=arena.bandwidth.value * self.port))
        memories = tuple(wider if memory is arena else memory for memory in target.memories)
        return replace(target, memories=memories, costs=replace(costs, fill_cycles=fill, depthwise_macs=depthwise))


KEPT = Shape(0.0, 0)
"""The values of the constants that the fit keeps."""

PULL = 0.05
"""The weight of a parameter's distance from its prior, relative to the prior; that of a figure's relative error is 1."""

EQUAL = 0.02
"""Fits whose root mean square error is at most this much above the best one's count as equally good."""


@cache
def calls_of(network: str, target: str) -> tuple[KernelCall, ...]:
    """Return the kernel calls of a network with whole tensors."""
    return tuple(compile_graph(networks()[network], targets.get(target)).schedule.calls)


@cache
def npu_cycles(network: str, target: str, shape: Shape) -> tuple[int, float, int]:
    """Return the number of kernel calls but for SOFTMAX, their cycles without the dispatch of a call, and the bytes of their constants."""
    chip = shape.of(targets.get(target))
    calls = [call for call in calls_of(network, target) if call.kernel != "softmax_s8"]
    compute = sum(call_cost(call, chip).compute_cycles for call in calls)
    operands = sum(len(call.views) + len(call.constants) for call in calls)
    return len(calls), compute + shape.operand * operands, sum(sum(call.packed_bytes().values()) for call in calls)


def host_cycles(figure: Figure) -> float:
    """Return the host's cycles in a figure but for those of converted values."""
    return SOFTMAX_12_CYCLES / 2 * (figure.operators + figure.softmax / 12)


def row_of(figure: Figure, shape: Shape) -> tuple[float, list[float]]:
    """Return the cycles of a figure that no parameter scales, and what each parameter multiplies."""
    calls, compute, constants = npu_cycles(figure.network, figure.target, shape)
    factors = {
        OLD_DISPATCH if figure.is_old else DISPATCH: calls,
        CONVERSION: figure.converted,
        COPY: constants if figure.copies else 0,
    }
    return compute + host_cycles(figure), [float(factors.get(item, 0)) for item in PARAMETERS]


def published_cycles(figure: Figure) -> float:
    """Return the figure in cycles of its chip."""
    return figure.microseconds * targets.get(figure.target).clock.value


@dataclass(frozen=True, slots=True)
class Fit:
    """Constants and the root mean square of the figures' relative errors."""

    shape: Shape
    values: tuple[float, ...]
    error: float
    penalty: float

    def cycles(self, figure: Figure) -> float:
        """Return the modelled cycles of a figure."""
        fixed, factors = row_of(figure, self.shape)
        return fixed + sum(factor * value for factor, value in zip(factors, self.values, strict=True))

    def relative(self, figure: Figure) -> float:
        """Return the relative error of a figure."""
        return self.cycles(figure) / published_cycles(figure) - 1


def at_shape(figures: Sequence[Figure], shape: Shape) -> Fit:
    """Return the best other constants beside these."""
    # Imported on use: the other sections of the bench do without.
    from scipy.optimize import lsq_linear

    rows = [row_of(figure, shape) for figure in figures]
    wanted = [published_cycles(figure) for figure in figures]
    matrix = [np.array(factors) / there for (_, factors), there in zip(rows, wanted, strict=True)]
    right = [1 - fixed / there for (fixed, _), there in zip(rows, wanted, strict=True)]
    pulls = np.diag([PULL / item.prior if item.prior else 0.0 for item in PARAMETERS])
    found = lsq_linear(
        np.vstack([*matrix, pulls]),
        np.array([*right, *(PULL if item.prior else 0.0 for item in PARAMETERS)]),
        bounds=([item.least for item in PARAMETERS], [item.most for item in PARAMETERS]),
        method="bvls",
    )
    fit = Fit(shape, tuple(float(value) for value in found.x), 0.0, float(found.cost))
    errors = [fit.relative(figure) for figure in figures]
    return replace(fit, error=float(np.sqrt(np.mean(np.square(errors)))))


def fitted(depthwise: int, figures: Sequence[Figure] = FIGURES, kept: Shape = KEPT) -> Fit:
    """Return the best constants for these figures with so many multipliers in depthwise convolutions."""
    fills = FILLS if kept == KEPT else COARSE_FILLS
    tried = (at_shape(figures, replace(kept, fill=fill, depthwise=depthwise)) for fill in fills)
    return min(tried, key=lambda fit: (fit.penalty, fit.shape.fill))


def left_out(depthwise: int, kept: Shape = KEPT) -> list[float]:
    """Return the relative error of each figure in a fit that has not seen it."""
    without = ([other for other in FIGURES if other != figure] for figure in FIGURES)
    return [fitted(depthwise, seen, kept).relative(figure) for figure, seen in zip(FIGURES, without, strict=True)]


def chosen() -> tuple[Fit, list[float]]:
    """Return the fit whose largest error on a figure that it has not seen is the smallest, and these errors."""
    errors = {depthwise: left_out(depthwise) for depthwise in DEPTHWISE}
    best = min(DEPTHWISE, key=lambda depthwise: max(map(abs, errors[depthwise])))
    return fitted(best), errors[best]


def constants_of(fit: Fit) -> dict[str, float]:
    """Return the constants by name."""
    shape = {"cycles of fill at a tap": fit.shape.fill, "multipliers in depthwise convolutions": fit.shape.depthwise}
    return {**shape, **{item.name: value for item, value in zip(PARAMETERS, fit.values, strict=True)}}


def equally_good(best: Fit) -> dict[str, tuple[float, float]]:
    """Return the range of each constant over all fits that are as good as the best one."""
    tried = (at_shape(FIGURES, Shape(fill, depthwise)) for depthwise in DEPTHWISE for fill in FILLS)
    good = [constants_of(fit) for fit in tried if fit.error <= best.error + EQUAL]
    return {name: (min(each[name] for each in good), max(each[name] for each in good)) for name in constants_of(best)}


OPERANDS = (0, 100, 200, 300, 400, 600, 800, 1000, 1500)
"""The dispatch cycles of each operand that are tried."""

PORTS = (0.5, 0.75, 1, 1.25, 1.5, 2, 4)
"""The widths of the SRAM port that are tried, as multiples of each chip's assumed one."""


def alternatives(best: Fit) -> dict[str, list[dict[str, float]]]:
    """Return fits with other values of the constants that the fit keeps: root mean square errors, and the largest error left out."""
    tried = {
        "operand": [replace(KEPT, operand=value) for value in OPERANDS],
        "port": [replace(KEPT, port=value) for value in PORTS],
    }
    found: dict[str, list[dict[str, float]]] = {}
    for name, shapes in tried.items():
        for kept in shapes:
            fit = fitted(best.shape.depthwise, FIGURES, kept)
            entry = {
                "value": getattr(kept, name),
                "error": round(fit.error, 4),
                "left_out": round(max(map(abs, left_out(best.shape.depthwise, kept))), 4),
            }
            found.setdefault(name, []).append(entry)
    return found


def measure() -> dict[str, Any]:
    """Return the constants, their ranges, and for each figure the model's value with its errors."""
    best, errors = chosen()
    ranges = equally_good(best)
    return {
        "constants": {
            name: {"value": round(value, 3), "least": round(ranges[name][0], 3), "most": round(ranges[name][1], 3)}
            for name, value in constants_of(best).items()
        },
        "band": round(max(map(abs, errors)), 4),
        "figures": [
            figure.compared(best.relative(figure), error) for figure, error in zip(FIGURES, errors, strict=True)
        ],
        "alternatives": alternatives(best),
        "subsystem": fit_subsystem.measure(),
    }


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and lines of the printed table."""
    lines = [
        (
            each["network"],
            each["target"],
            each["contents"],
            f"{each['published']:,.0f}",
            f"{each['modelled']:,.0f}",
            f"{each['error']:+.1%}",
            f"{each['left_out']:+.1%}",
        )
        for each in (*results["figures"], *results["subsystem"]["figures"])
    ]
    lines += [
        (name, "", "equally good fits", "", f"{each['value']:,.2f}", f"{each['least']:,.2f}", f"{each['most']:,.2f}")
        for part in (results, results["subsystem"])
        for name, each in part["constants"].items()
    ]
    return ("network", "target", "what it contains", "published us", "modelled", "error", "left out"), lines


FILE = Path(__file__).parent / "fitted.json"
"""The results that docs/targets.md shows; ``python -m bench.fit_cost`` writes them."""

if __name__ == "__main__":
    FILE.write_text(json.dumps(measure(), indent=2, sort_keys=True) + "\n")
