# SPDX-License-Identifier: BSD-3-Clause
"""Fit the constants of i.MX 95 to published latencies, by least squares of relative errors.

Two constants are fitted: the width of the port of the NPU's memory, and the time in which the host core decodes the boxes of YOLOv8, which
is no constant of the target. The schedules of the published runs are not published. Their layers are taken to run one after the other, each
with whole tensors, and the data mover to work beside the kernels. Each figure is also predicted by a fit without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from bench.published import IMX95, SUBSYSTEM_FIGURES, Figure, subsystem_networks
from openneutron import targets
from openneutron.compiler.cost.cycles import call_cost, fetch_cycles
from openneutron.compiler.cost.host import HostKind, HostOperator, host_cycles
from openneutron.compiler.driver import prepared
from openneutron.compiler.select.calls import KernelCall
from openneutron.targets import Target

PORTS = tuple(range(24, 161, 2))
"""The widths of the port that the fit tries, in bytes in a cycle."""

EQUAL = 0.02
"""Fits whose root mean square error is at most this much above the best one's count as equally good."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Constants that are tried: of the port in bytes in a cycle, the dispatch in cycles, and the rate of the data mover."""

    port: float
    dispatch: float
    rate: float

    def of(self, target: Target) -> Target:
        """Return the target with these constants."""
        arena, engine, costs = target.arena_memory, target.copy_engine, target.costs
        wide = replace(arena, bandwidth=replace(arena.bandwidth, value=self.port))
        return replace(
            target,
            memories=tuple(wide if memory is arena else memory for memory in target.memories),
            copy_engines=(replace(engine, rate=replace(engine.rate, value=self.rate)),),
            costs=replace(costs, issue_cycles=replace(costs.issue_cycles, value=self.dispatch)),
        )


def constants_in_file() -> Shape:
    """Return the constants of the target's file."""
    target = targets.get(IMX95)
    return Shape(target.arena_memory.bandwidth.value, target.costs.issue_cycles.value, target.copy_engine.rate.value)


@cache
def _calls_of(network: str) -> tuple[KernelCall, ...]:
    """Return the kernel calls of a network with whole tensors, but for SOFTMAX."""
    _, calls = prepared(subsystem_networks()[network]).tasks.selected[0]
    return tuple(call for call in calls if call.kernel != "softmax_s8")


@cache
def _cycles_of(network: str, shape: Shape) -> int:
    """Return the cycles of a network on the NPU: for each layer those of its kernel, or of its copies where they take longer."""
    target = shape.of(targets.get(IMX95))
    return sum(
        max(call_cost(call, target).cycles, fetch_cycles(_copied(call, target), target)) for call in _calls_of(network)
    )


def _copied(call: KernelCall, target: Target) -> int:
    """Return the bytes that a layer copies: its constants, and its tensors where they exceed the memory of the NPU together."""
    tensors = sum(view.distinct_bytes for name, view in call.views.items() if not call.is_scratch(name))
    kept = tensors <= target.sram.value * 1024
    return sum(call.packed_bytes().values()) + (0 if kept else tensors)


def _fixed(figure: Figure, shape: Shape) -> float:
    """Return the modelled microseconds of a figure but for its tail."""
    target = targets.get(IMX95)
    softmax = [HostOperator(HostKind.SOFTMAX, figure.softmax)] if figure.softmax else []
    return (_cycles_of(figure.network, shape) + host_cycles(softmax, target)) / target.clock.value


@dataclass(frozen=True, slots=True)
class Fit:
    """Constants, the microseconds of the tail, and the root mean square of the figures' relative errors."""

    shape: Shape
    tail: float
    error: float

    def relative(self, figure: Figure) -> float:
        """Return the relative error of a figure."""
        return (_fixed(figure, self.shape) + figure.tail * self.tail) / figure.microseconds - 1


def at_shape(figures: Sequence[Figure], shape: Shape) -> Fit:
    """Return the best tail beside these constants."""
    share = np.array([figure.tail / figure.microseconds for figure in figures])
    left = np.array([1 - _fixed(figure, shape) / figure.microseconds for figure in figures])
    tail = max(0.0, float(share @ left / (share @ share)))
    fit = Fit(shape, tail, 0.0)
    return replace(fit, error=float(np.sqrt(np.mean([fit.relative(figure) ** 2 for figure in figures]))))


def fitted(figures: Sequence[Figure] = SUBSYSTEM_FIGURES, kept: Shape | None = None) -> Fit:
    """Return the best port and tail for these figures."""
    kept = kept or constants_in_file()
    return min((at_shape(figures, replace(kept, port=port)) for port in PORTS), key=lambda fit: fit.error)


def left_out() -> list[float]:
    """Return the relative error of each figure in a fit that has not seen it."""
    without = ([other for other in SUBSYSTEM_FIGURES if other != figure] for figure in SUBSYSTEM_FIGURES)
    return [fitted(seen).relative(figure) for figure, seen in zip(SUBSYSTEM_FIGURES, without, strict=True)]


DISPATCHES = (0, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)
"""The cycles of a dispatch that are tried."""

RATES = (1, 2, 3, 4, 6, 8, 12, 16, 24)
"""The rates of the data mover that are tried, in bytes in a cycle."""


def _ranges(best: Fit) -> dict[str, tuple[float, float]]:
    """Return the range of each constant over fits that are as good as the best one, the others fitted again or kept."""
    kept = best.shape
    ports = [at_shape(SUBSYSTEM_FIGURES, replace(kept, port=port)) for port in PORTS]
    others = [fitted(kept=replace(kept, dispatch=value)) for value in DISPATCHES]
    others += [fitted(kept=replace(kept, rate=value)) for value in RATES]
    good = [fit for fit in (*ports, *others) if fit.error <= best.error + EQUAL]
    values = {
        "bytes in a cycle of the port of the memory of the NPU": [fit.shape.port for fit in good],
        "dispatch cycles of a call, imx95": [fit.shape.dispatch for fit in good],
        "bytes in a cycle of the data mover": [fit.shape.rate for fit in good],
        "microseconds in which the host decodes the boxes of YOLOv8 640": [fit.tail for fit in good],
    }
    return {name: (min(each), max(each)) for name, each in values.items()}


def measure() -> dict[str, Any]:
    """Return the constants, their ranges, and for each figure the model's value with its errors."""
    best, errors = fitted(), left_out()
    ranges = _ranges(best)
    values = (best.shape.port, best.shape.dispatch, best.shape.rate, best.tail)
    return {
        "constants": {
            name: {"value": round(value, 3), "least": round(least, 3), "most": round(most, 3)}
            for (name, (least, most)), value in zip(ranges.items(), values, strict=True)
        },
        "band": round(max(map(abs, errors)), 4),
        "figures": [
            figure.compared(best.relative(figure), error)
            for figure, error in zip(SUBSYSTEM_FIGURES, errors, strict=True)
        ],
    }
