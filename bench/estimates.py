# SPDX-License-Identifier: BSD-3-Clause
"""Fit the estimates of latencies to published ones, and test their ranges on figures that a fit has not seen.

The cycles of the cost model are divided into terms (``openneutron.compiler.cost.estimate``). A fit multiplies each term by a factor. The
factors have start values, with uncertainties that come from what is known of such arrays, and bounds. A fit minimizes the squared
logarithms of the ratios of modelled and published time, and the squared distances from the start values. The covariance of the factors
and the scatter of what remains make a range.

Each figure is also predicted by a fit without it, without its family of networks, and without its chip. The width of the ranges is such
that they hold 80% of these figures.

``python -m bench.estimates`` writes bench/estimates.json, which docs/targets.md shows, and the factors that the compiler's summaries use.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bench import language_models
from bench.published import HOST_SHARE, IMX95, LATENCIES, PREDICTIONS, Figure, Use, networks, subsystem_networks
from openneutron import targets
from openneutron.compiler import compile_graph
from openneutron.compiler.cost.cycles import call_cost, fetch_cycles, product_of
from openneutron.compiler.cost.estimate import TERMS, Term, Work, total, work, work_of_call, work_of_host, work_of_start
from openneutron.compiler.cost.host import HostKind, HostOperator
from openneutron.compiler.driver import prepared
from openneutron.compiler.select.calls import KernelCall
from openneutron.targets import Target

TITLE = "Estimates of latencies, and their ranges, beside the published ones"
LEFT = ("target", "what it contains")

NOISE = 0.1
"""The standard deviation of the logarithm of a published latency that the fit assumes: releases of NXP's software differ by so much."""

HOLD = 0.8
"""The share of the left out figures that the ranges hold."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A factor of the fit: its start value, the standard deviation of the start value's logarithm, and its bounds."""

    name: str
    start: float
    deviation: float
    least: float
    most: float


def _factor(term: Term, deviation: float, least: float, most: float, start: float = 1.0) -> Parameter:
    return Parameter(term.value, start, deviation, least, most)


FACTORS = (
    _factor(Term.DISPATCH, 1.0, 0.1, 5.0),
    _factor(Term.PRODUCTS, 0.1, 0.9, 1.5),
    _factor(Term.FILL, 0.7, 0.1, 5.0),
    _factor(Term.DRAIN, 1.0, 0.1, 16.0),
    _factor(Term.DEPTHWISE, 0.4, 0.5, 2.2),
    _factor(Term.OTHERS, 0.5, 0.2, 5.0),
    _factor(Term.WEIGHTS, 0.3, 0.5, 2.0),
    _factor(Term.TENSORS, 0.3, 0.5, 2.0),
    _factor(Term.OPERATORS, 0.5, 0.2, 5.0),
    _factor(Term.SOFTMAX, 0.5, 0.2, 5.0),
    _factor(Term.CONVERSIONS, 0.5, 0.2, 5.0),
    _factor(Term.START, 1.0, 5.0, 500.0, 50.0),
    _factor(Term.CORE, 0.25, 0.3, 3.0),
)
"""The factors of the terms. What bounds them: multipliers compute no more than one product in a cycle (0.9: NXP's programs may leave out
products of the padding). A depthwise convolution uses 1 to 4 multipliers of a pipeline, the cost model 2. NXP's programs for a Neutron-S
compress weights of int8 (nxp-imx/onnxruntime-imx), at best to a half, and a copy has at most twice the assumed rate. A result leaves a
pipeline in 16 cycles at most, its accumulators one after the other."""

RELEASE = Parameter("the dispatch of a call, in a release before 2025", 20_000, 1.5, 500, 200_000)
"""The cycles of a dispatch of old releases. It takes the place of that of today's."""

TAIL = Parameter("the decoding of YOLOv8's boxes on the host", HOST_SHARE * 32_080, 0.15, 10_000, 30_000)
"""Microseconds at 640 x 640. They are published for YOLOv8n: a host core works for 61% of 32,080 us."""

PARAMETERS = (*FACTORS, RELEASE, TAIL)


@dataclass(frozen=True, slots=True)
class Spent:
    """What a figure contains: the work of the terms in cycles, calls in an old release, decodings, and microseconds that are known."""

    work: Work
    old_calls: int
    tails: float
    known: float
    clock: float
    layers: tuple[float, ...] = ()
    candidates: tuple[float, ...] = ()

    @property
    def row(self) -> np.ndarray:
        """Return the microseconds that each parameter multiplies: float64 [parameters]."""
        return np.array([*np.divide(self.work, self.clock), self.old_calls / self.clock, self.tails])


CANDIDATES = ("dispatch of operands", "rows read again", "loads of weights", "products of the padding")
"""Terms that are not kept: their cycles are tried beside the others."""


def _candidates(call: KernelCall, target: Target) -> tuple[float, ...]:
    """Return the cycles of each of ``CANDIDATES`` in a call: 100 for each operand; those of the port for the rows that are under
    several rows of a kernel, and for the weights once for each group of accumulators; and those of the products of the padding."""
    cost, port = call_cost(call, target), target.arena_memory.bandwidth.value
    operands = 100.0 * (len(call.views) + len(call.constants))
    if not cost.macs or not cost.inputs:
        return operands, 0.0, 0.0, 0.0
    _, rows, cols, _ = call.views["output"].extents
    read = sum(
        view.distinct_bytes for name, view in call.views.items() if name != "output" and not call.is_scratch(name)
    )
    taps = product_of(call, call.traits.cost.taps) if call.traits.cost.taps else 1
    groups = math.ceil(rows * cols / target.npu.accumulators.value)
    extent = math.isqrt(taps)
    border = 1 - (1 - extent // 2 / max(rows, 1)) * (1 - extent // 2 / max(cols, 1)) if extent > 1 else 0.0
    loads = sum(call.packed_bytes().values()) * groups / port / target.units
    return operands, (extent - 1) * read / port, loads, border * (cost.compute_cycles - cost.stall_cycles)


@cache
def _calls(network: str, target: str) -> tuple[KernelCall, ...]:
    """Return the kernel calls of a network, but for SOFTMAX: with whole tensors, on i.MX 95 before the search for tiles."""
    if target == IMX95:
        calls = tuple(prepared(subsystem_networks()[network]).tasks.selected[0][1])
    else:
        calls = compile_graph(networks()[network], targets.get(target)).schedule.calls
    return tuple(call for call in calls if call.kernel != "softmax_s8")


def _work_of(call: KernelCall, target: Target) -> Work:
    """Return the work of a call. On i.MX 95 the copies of a layer run beside its kernel, and what exceeds the kernel counts."""
    cost = call_cost(call, target)
    found = work_of_call(call, cost, target)
    if not target.subsystem:
        return found
    tensors = sum(view.distinct_bytes for name, view in call.views.items() if not call.is_scratch(name))
    weights = sum(call.packed_bytes().values())
    copied = weights, (tensors if tensors > target.sram.value * 1024 else 0)
    more = max(0, fetch_cycles(sum(copied), target) - cost.compute_cycles)
    each = [more * size / max(1, sum(copied)) for size in copied]
    return total((found, work(weights=each[0], tensors=each[1])))


def _host(figure: Figure) -> list[HostOperator]:
    """Return the operators on the host in a figure."""
    values = [(HostKind.SOFTMAX, figure.softmax), (HostKind.CONVERSION, figure.converted)]
    found = [HostOperator(kind, count) for kind, count in values if count]
    return found + [HostOperator(HostKind.CONVERSION, 0)] * (figure.operators - len(found))


@cache
def _on_npu(network: str, target: str) -> tuple[tuple[Work, ...], tuple[float, ...], int]:
    """Return the work of each call, the candidates' cycles, and the bytes of the weights."""
    chip, calls = targets.get(target), _calls(network, target)
    candidates = tuple(map(sum, zip(*(_candidates(call, chip) for call in calls), strict=True)))
    return (
        tuple(_work_of(call, chip) for call in calls),
        candidates,
        sum(sum(call.packed_bytes().values()) for call in calls),
    )


@cache
def spent(figure: Figure) -> Spent:
    """Return what a figure contains."""
    chip = targets.get(figure.target)
    calls, candidates, weights = _on_npu(figure.network, figure.target)
    parts = [*calls, work_of_host(_host(figure), chip), work_of_start(chip)]
    if figure.copies:
        parts.append(work(weights=weights / chip.copy_engine.rate.value))
    whole = list(total(parts))
    if figure.is_old:
        whole[TERMS.index(Term.DISPATCH)] = 0.0
    layers = tuple(sum(call) for call in calls)
    old = len(calls) if figure.is_old else 0
    return Spent(tuple(whole), old, figure.tail, figure.host, chip.clock.value, layers, candidates)


Time = Callable[[Figure, np.ndarray], float]
"""The modelled microseconds of a figure with the values of a class's parameters."""


def _linear(figure: Figure, values: np.ndarray) -> float:
    found = spent(figure)
    return float(found.row @ values[: len(PARAMETERS)]) + found.known


def _matrix_products(figure: Figure, values: np.ndarray) -> float:
    return 1e6 * language_models.seconds(figure, values)


@dataclass(frozen=True, slots=True)
class Class:
    """Figures that have the same parameters."""

    name: str
    time: Time
    parameters: tuple[Parameter, ...]
    figures: tuple[Figure, ...]
    held_back: tuple[Figure, ...] = ()

    @property
    def start(self) -> np.ndarray:
        """Return the start values: float64 [parameters]."""
        return np.array([item.start for item in self.parameters])


def _of(names: Iterable[str], use: Sequence[Use], is_language: bool) -> tuple[Figure, ...]:
    return tuple(
        each
        for each in LATENCIES
        if each.use in use and each.target in names and each.network.startswith("Qwen3") == is_language
    )


FITTED = (Use.CONSTANTS, Use.ESTIMATES)
LANGUAGE = tuple(Parameter(*each, each[1] / 50, each[1] * 50) for each in language_models.PARAMETERS)
CORES = (IMX95, "cortex-a55")


def classes() -> tuple[Class, ...]:
    """Return the classes of figures."""
    small = ("imxrt700", "mcxn94x")
    return (
        Class("Neutron-C", _linear, PARAMETERS, _of(small, FITTED, False)),
        Class("Neutron-S", _linear, PARAMETERS, _of((IMX95,), FITTED, False)),
        Class(
            "matrix products of i.MX 95",
            _matrix_products,
            LANGUAGE,
            _of(CORES, FITTED, True),
            _of(CORES, (Use.HELD_BACK,), True),
        ),
    )


@dataclass(frozen=True, slots=True)
class Fit:
    """The logarithms of the factors over their start values, and their covariance."""

    of: Class
    logs: np.ndarray = field(repr=False)
    covariance: np.ndarray = field(repr=False)

    @property
    def values(self) -> np.ndarray:
        """Return the values of the parameters: float64 [parameters]."""
        values: np.ndarray = self.of.start * np.exp(self.logs)
        return values

    def microseconds(self, figure: Figure) -> float:
        """Return the estimate of a figure."""
        return self.of.time(figure, self.values)

    def error(self, figure: Figure) -> float:
        """Return the logarithm of the estimate over the published latency."""
        return math.log(self.microseconds(figure) / figure.microseconds)

    def variance(self, figure: Figure) -> float:
        """Return the variance of the logarithm of the estimate that comes from the parameters."""
        shares = _gradient(self.of, figure, self.values)
        return float(shares @ self.covariance @ shares)


def _gradient(of: Class, figure: Figure, values: np.ndarray) -> np.ndarray:
    """Return the change of the logarithm of a time by that of each parameter: float64 [parameters]."""
    step = 1e-4
    base = math.log(of.time(figure, values))
    found = []
    for index in range(len(values)):
        moved = values.copy()
        moved[index] *= math.exp(step)
        found.append((math.log(of.time(figure, moved)) - base) / step)
    return np.array(found)


def fitted(of: Class, figures: Sequence[Figure]) -> Fit:
    """Return the fit to some figures of a class."""
    # Imported on use: the other sections of the bench do without.
    from scipy.optimize import least_squares

    start, deviations = of.start, np.array([item.deviation for item in of.parameters])
    bounds = np.log([[item.least / item.start, item.most / item.start] for item in of.parameters]).T

    def distances(logs: np.ndarray) -> np.ndarray:
        values = start * np.exp(logs)
        errors = [math.log(of.time(figure, values) / figure.microseconds) / NOISE for figure in figures]
        return np.array([*errors, *(logs / deviations)])

    logs = least_squares(distances, np.zeros(len(start)), bounds=bounds).x
    values = start * np.exp(logs)
    slopes = np.array([_gradient(of, figure, values) for figure in figures]).reshape(len(figures), len(start))
    information = slopes.T @ slopes / NOISE**2 + np.diag(1 / deviations**2)
    return Fit(of, logs, np.linalg.inv(information))


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A figure in a fit without it: the logarithm of estimate over published latency, and the variance of it that is expected."""

    figure: Figure
    scheme: str
    error: float
    variance: float


SCHEMES: dict[str, Callable[[Figure], str]] = {
    "figure": lambda figure: repr(figure),
    "family": lambda figure: figure.family,
    "chip": lambda figure: figure.target,
}
"""What is left out together with a figure."""


def left_out(of: Class, scheme: str) -> list[LeftOut]:
    """Return each figure of a class in a fit without the figures that the scheme leaves out with it.

    Without the only chip or the only family of a class nothing would be left to fit.
    """
    key = SCHEMES[scheme]
    if scheme != "figure" and len({key(figure) for figure in of.figures}) < 2:
        return []
    fits: dict[str, Fit] = {}
    for figure in of.figures:
        if key(figure) not in fits:
            fits[key(figure)] = fitted(of, [other for other in of.figures if key(other) != key(figure)])
    return [
        LeftOut(figure, scheme, fits[key(figure)].error(figure), fits[key(figure)].variance(figure))
        for figure in of.figures
    ]


def _quantile(values: Sequence[float], share: float) -> float:
    """Return the least value that ``share`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[math.ceil(share * len(ordered)) - 1]


def _scatter(fits: Iterable[Fit]) -> float:
    """Return the root mean square of the errors in the fits."""
    errors = [fit.error(figure) for fit in fits for figure in fit.of.figures]
    return math.sqrt(float(np.mean(np.square(errors))))


def _layer_scatter(figures: Iterable[Figure], scatter: float) -> float:
    """Return the scatter of a layer if those of the layers of a network are independent: so much larger than that of a whole network as
    the root of the sum of the layers' squared shares is smaller than 1, in the median of the networks."""
    ratios = []
    for figure in figures:
        layers = np.array(spent(figure).layers)
        ratios.append(1 / math.sqrt(float(np.sum(np.square(layers / layers.sum())))))
    return scatter * float(np.median(ratios))


def _term_shares(figure: Figure, fit: Fit) -> list[float]:
    """Return the share of each term in the estimate of a figure."""
    times = np.multiply(spent(figure).work, fit.values[: len(TERMS)])
    return [round(float(share), 4) for share in times / times.sum()]


def _statistics(found: Sequence[LeftOut], width: float, scatter: float) -> dict[str, Any]:
    errors = [abs(math.expm1(item.error)) for item in found]
    held = [abs(item.error) <= width * math.sqrt(item.variance + scatter**2) for item in found]
    return {
        "figures": len(found),
        "median": round(float(np.median(errors)), 4),
        "largest": round(max(errors), 4),
        "held": round(sum(held) / len(held), 4),
    }


def _range(fit: Fit, figure: Figure, width: float, scatter: float) -> list[int]:
    """Return the estimate of a figure with its range, in microseconds."""
    time = fit.microseconds(figure)
    wide = math.exp(width * math.sqrt(fit.variance(figure) + scatter**2))
    return [round(time), round(time / wide), round(time * wide)]


def _tried() -> list[dict[str, Any]]:
    """Return for each candidate the median error of the left out figures with it beside the kept terms."""
    chosen = [each for each in classes() if each.time is _linear]

    def median(made: Sequence[Class], scheme: str) -> float:
        errors = [abs(math.expm1(item.error)) for of in made for item in left_out(of, scheme)]
        return round(float(np.median(errors)), 4)

    def with_term(of: Class, index: int) -> Class:
        def time(figure: Figure, values: np.ndarray) -> float:
            found = spent(figure)
            return _linear(figure, values) + float(values[-1]) * found.candidates[index] / found.clock

        # Products of the padding take time away: NXP's programs may leave them out.
        sign = -1.0 if CANDIDATES[index] == "products of the padding" else 1.0
        more = Parameter(CANDIDATES[index], 0.3, 1.0, 1e-3, 1.0 if sign < 0 else 10.0)
        signed = (lambda figure, values: time(figure, np.array([*values[:-1], -values[-1]]))) if sign < 0 else time
        return Class(of.name, signed, (*of.parameters, more), of.figures)

    rows = [{"term": "kept terms", "figure": median(chosen, "figure"), "family": median(chosen, "family")}]
    for index, name in enumerate(CANDIDATES):
        made = [with_term(of, index) for of in chosen]
        rows.append({"term": name, "figure": median(made, "figure"), "family": median(made, "family")})
    return rows


def measure() -> dict[str, Any]:
    """Return the factors of each class, the statistics of left out figures, each figure with its estimate, and the predictions."""
    made = classes()
    fits = [fitted(of, of.figures) for of in made]
    scatter = _scatter(fits)
    found = {scheme: [item for of in made for item in left_out(of, scheme)] for scheme in SCHEMES}
    width = _quantile(
        [abs(item.error) / math.sqrt(item.variance + scatter**2) for items in found.values() for item in items], HOLD
    )
    errors = {(item.figure, item.scheme): math.expm1(item.error) for items in found.values() for item in items}
    of_figure = {figure: fit for fit in fits for figure in (*fit.of.figures, *fit.of.held_back)}
    return {
        "scatter": scatter,
        "width": width,
        "left_out": {scheme: _statistics(items, width, scatter) for scheme, items in found.items()},
        "classes": {
            fit.of.name: {
                item.name: {"value": float(f"{value:.4g}"), "deviation": round(math.sqrt(variance), 3)}
                for item, value, variance in zip(fit.of.parameters, fit.values, np.diag(fit.covariance), strict=True)
            }
            for fit in fits
        },
        "figures": [_figure_entry(figure, of_figure.get(figure), errors, width, scatter) for figure in LATENCIES],
        "predictions": [
            {
                "network": figure.network,
                "target": figure.target,
                "contents": figure.contents,
                "estimate": _range(of_figure.get(figure, fits[0]), figure, width, scatter),
            }
            for figure in (*PREDICTIONS, *(each for of in made for each in of.held_back))
        ],
        "releases": [
            {
                "network": figure.network,
                "target": figure.target,
                "published": round(figure.microseconds),
                "then": _range(fit, figure, width, scatter),
                "now": _range(fit, replace(figure, is_old=False), width, scatter),
            }
            for fit in fits
            for figure in fit.of.figures
            if figure.is_old
        ],
        "tried": _tried(),
        "calibrations": {
            fit.of.name: {
                "chips": ["imxrt700", "mcxn54x", "mcxn94x"] if fit.of.name == "Neutron-C" else [IMX95],
                "factors": {
                    term.name.lower(): round(float(value), 4)
                    for term, value in zip(TERMS, fit.values[: len(TERMS)], strict=True)
                },
                "covariance": np.round(fit.covariance[: len(TERMS), : len(TERMS)], 5).tolist(),
                "scatter": round(scatter, 4),
                "layer_scatter": round(_layer_scatter(fit.of.figures, scatter), 4),
                "width": round(width, 4),
                "networks": [_term_shares(figure, fit) for figure in fit.of.figures if not figure.is_old],
            }
            for fit in fits
            if fit.of.time is _linear
        },
    }


def _figure_entry(
    figure: Figure, fit: Fit | None, errors: dict[tuple[Figure, str], float], width: float, scatter: float
) -> dict[str, Any]:
    return {
        "network": figure.network,
        "target": figure.target,
        "contents": figure.contents,
        "published": round(figure.microseconds),
        "estimate": None if fit is None else _range(fit, figure, width, scatter),
        "left_out": {scheme: round(errors[figure, scheme], 4) for scheme in SCHEMES if (figure, scheme) in errors},
        "use": figure.use.value,
        "reason": figure.reason,
        "source": figure.source,
    }


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and lines of the printed table."""
    lines = []
    for each in results["figures"]:
        known = each["estimate"]
        shown = "" if known is None else f"{known[0]:,} ({known[1]:,} to {known[2]:,})"
        errors = [f"{each['left_out'][scheme]:+.1%}" if scheme in each["left_out"] else "" for scheme in SCHEMES]
        lines.append((each["network"], each["target"], each["contents"], f"{each['published']:,}", shown, *errors))
    for scheme, each in results["left_out"].items():
        said = f"{each['figures']} figures, median {each['median']:.1%}, ranges hold {each['held']:.0%}"
        lines.append((f"without the {scheme}", "", said, "", "", "", "", ""))
    return ("network", "target", "what it contains", "published us", "estimate", "figure", "family", "chip"), lines


FILE = Path(__file__).parent / "estimates.json"
"""The results that docs/targets.md shows."""

CALIBRATIONS = Path(targets.__file__).parent / "estimates.json"
"""The factors that the compiler's summaries use."""

if __name__ == "__main__":
    results = measure()
    document = {"made by": "python -m bench.estimates", "classes": results.pop("calibrations")}
    FILE.write_text(json.dumps(results, indent=1) + "\n")
    CALIBRATIONS.write_text(json.dumps(document, indent=1) + "\n")
