# SPDX-License-Identifier: BSD-3-Clause
"""Compiles of a model with other options: memory against latency, and the options that make it faster or smaller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from openneutron.compiler.search.pareto import front, thinned
from openneutron.errors import BudgetError
from openneutron.features.report.latency import CPU_CALLS, modelled_text
from openneutron.features.report.summary import Summary
from openneutron.features.report.table import Column, Table, range_text, right, size_text
from openneutron.options import ARENA, CALLER, CompileOptions

BAR_WIDTH = 24


@dataclass(frozen=True, slots=True)
class BudgetPoint:
    """The figures of a compile with a budget of ``sram_budget_kib``.

    ``cycles`` is the modelled latency of one inference: the sum of ``npu_cycles``, ``copy_cycles``, ``host_cycles``
    and ``cpu_call_cycles``. It is a lower bound if ``host_operators_not_modelled`` is not 0. ``milliseconds`` is the estimate of the
    latency, and ``expected_milliseconds`` its range.
    """

    sram_budget_kib: int
    sram_bytes: int
    total_sram_bytes: int
    cycles: int
    npu_cycles: int
    copy_cycles: int
    host_cycles: int
    milliseconds: float
    host_operators_not_modelled: int = 0
    cpu_call_cycles: int = 0
    expected_milliseconds: tuple[float, ...] = (0.0, 0.0)

    @classmethod
    def of(cls, kib: int, made: Summary) -> BudgetPoint:
        """Return the figures of a compile with this budget."""
        parts = made.cycles, made.npu_cycles, made.copy_cycles, made.host_cycles
        memory = made.sram_bytes, made.total_sram_bytes
        others = made.host_operators_not_modelled, made.cpu_call_cycles
        return cls(kib, *memory, *parts, made.milliseconds, *others, made.band)


def worthwhile(points: Sequence[BudgetPoint]) -> tuple[BudgetPoint, ...]:
    """Return the Pareto-optimal points, by growing memory. A point less than 2% faster than the point before it is
    omitted, except the fastest."""
    return tuple(thinned(front(points)))


def pareto_table(points: Sequence[BudgetPoint]) -> Table:
    """Return a table with a row for each point: the budget, the SRAM of a run, the latency with its parts, and a bar.
    The bar's length is proportional to the latency. Memory is rounded up, so that no point seems to fit a budget
    that it exceeds."""
    with_weights = any(point.total_sram_bytes != point.sram_bytes for point in points)
    cycles = {
        "NPU": "npu_cycles",
        CPU_CALLS: "cpu_call_cycles",
        "copies": "copy_cycles",
        "host": "host_cycles",
    }
    parts = {name: [getattr(point, key) for point in points] for name, key in cycles.items()}
    used = sum(map(any, parts.values()))
    slowest, fastest = max(point.cycles for point in points), min(point.cycles for point in points)

    def of(name: str) -> list[Any]:
        return [getattr(point, name) for point in points]

    def shown(name: str) -> list[str]:
        shares = zip(points, parts[name], strict=True)
        return [f"{100 * part / point.cycles:.0f} %" if part else "" for point, part in shares]

    latencies = [
        modelled_text(point.milliseconds, point.host_operators_not_modelled, point.expected_milliseconds)
        for point in points
    ]
    return Table(
        (
            right("--sram-budget", of("sram_budget_kib"), key="sram_budget_kib", text=str),
            right("SRAM", of("sram_bytes"), key="sram_bytes", text=_rounded_up),
            right(
                "with weights", of("total_sram_bytes"), key="total_sram_bytes", text=_rounded_up, is_shown=with_weights
            ),
            right("latency", latencies),
            *(right(name, shown(name), is_shown=used > 1 and any(part)) for name, part in parts.items()),
            right("times the fastest", [point.cycles / fastest for point in points], text="{:.2f}".format),
            Column("", ["#" * max(1, round(BAR_WIDTH * point.cycles / slowest)) for point in points]),
            Column("cycles", of("cycles"), key="modelled_cycles", is_shown=False),
            *(Column(name, part, key=cycles[name], is_shown=False) for name, part in parts.items()),
            Column("ms", of("milliseconds"), key="modelled_ms", is_shown=False),
            Column("", of("expected_milliseconds"), key="expected_ms", is_shown=False),
            Column("", of("host_operators_not_modelled"), key="host_operators_not_modelled", is_shown=False),
        )
    )


def _rounded_up(size: int) -> str:
    """Return a size whose last digit is rounded up: a tenth of a KiB, or a hundredth of a MiB. Bytes are exact."""
    if size < 1024:
        return size_text(size)
    parts, unit = (10, 1 << 10) if size < 1 << 20 else (100, 1 << 20)
    return size_text(-(-size * parts // unit) * unit // parts)


WORTH = 0.02
"""Advice about latency is given if it saves at least this share of the latency."""

HOST_SHARE = 0.1
"""Advice against the host's conversions comes first if it saves more than this share of the latency."""

WORTH_BYTES = 0.1
"""Advice about memory is given if it saves at least this share of the SRAM of a run."""

MOST_TIME = 0.1
"""Advice about memory is given if it raises the latency by at most this share."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The estimated latency of an inference with its range, and the SRAM of a run."""

    milliseconds: float
    sram_bytes: int
    expected_milliseconds: tuple[float, ...] = (0.0, 0.0)

    @classmethod
    def of(cls, summary: Summary) -> Cost:
        """Return the costs of a compile."""
        return cls(summary.milliseconds, summary.sram_bytes, summary.band)

    @property
    def time_text(self) -> str:
        """Return the latency with its range, in words."""
        return range_text(self.milliseconds, *self.expected_milliseconds)


@dataclass(frozen=True, slots=True)
class Advice:
    """A suggested change of the options, with the costs of the model before and after the change.

    ``options`` are words of the command line, such as ``--sram-budget 268``. ``keywords`` are the same options in
    Python: fields of CompileOptions, or of QuantizationOptions for ``io_dtype``.
    """

    title: str
    reason: str
    options: str
    keywords: str
    before: Cost
    after: Cost

    @property
    def text(self) -> str:
        """Return the gain and the reason as one sentence."""
        return f"{_gain_text(self.before, self.after)}; {self.reason}"

    @property
    def saved_milliseconds(self) -> float:
        """Return the latency that the change saves, in milliseconds; negative if the change costs time."""
        return self.before.milliseconds - self.after.milliseconds

    @property
    def saved_bytes(self) -> int:
        """Return the SRAM that the change saves, in bytes; negative if the change costs memory."""
        return self.before.sram_bytes - self.after.sram_bytes


class Compiled(Protocol):
    """A compiled model; see ``openneutron.api.result.CompiledResult``."""

    @property
    def report(self) -> Summary: ...
    @property
    def compile_options(self) -> CompileOptions: ...
    def figures(self, **changes: Any) -> Summary: ...


def quick_advice(model: Compiled) -> tuple[Advice, ...]:
    """Return the advice that is found without a search, at most two items. One is against the host's conversions of
    inputs and outputs, if they take more than ``HOST_SHARE`` of the latency. The other is to fetch weights that do
    not fit the SRAM, if this makes the model at least ``WORTH`` faster; the model is compiled once more to find out.
    The tuple is empty where nothing is on the NPU, or most of the model is on the CPU."""
    now = model.report
    if not now.partitions or now.is_on_cpu:
        return ()
    found = [item for item in _io_type(now) if item.saved_milliseconds > HOST_SHARE * now.milliseconds]
    return (*found, *_prefetch(model, now))


def advice(model: Compiled, points: Sequence[BudgetPoint] = ()) -> tuple[Advice, ...]:
    """Return all advice that saves enough latency or memory (``_is_worth``), sorted by the latency that is saved and
    then by the memory. Advice against the host's conversions of inputs and outputs comes first if it saves more than
    ``HOST_SHARE`` of the latency. The tuple is empty where nothing is on the NPU, or most of the model is on the CPU.

    ``points`` are compiles of the model with other budgets.
    """
    now = model.report
    if not now.partitions or now.is_on_cpu:
        return ()
    found = [*_io_type(now), *_prefetch(model, now), *_io_place(model, now), *_budgets(model, now, points)]
    found = [item for item in found if _is_worth(item)]

    def rank(item: Advice) -> tuple[bool, float, float]:
        is_host = "io_dtype" in item.keywords and item.saved_milliseconds > HOST_SHARE * now.milliseconds
        return not is_host, -max(item.saved_milliseconds, 0.0), -item.saved_bytes

    return tuple(sorted(found, key=rank))


def advice_text(found: Sequence[Advice]) -> str:
    """Return advice in one line."""
    return ". ".join(f"{item.options}: {item.text}" for item in found)


def _is_worth(item: Advice) -> bool:
    faster = item.saved_milliseconds >= WORTH * item.before.milliseconds
    smaller = item.saved_bytes >= WORTH_BYTES * item.before.sram_bytes
    return faster or (smaller and -item.saved_milliseconds <= MOST_TIME * item.before.milliseconds)


def _gain_text(before: Cost, after: Cost) -> str:
    time = after.time_text
    time = f"{time} as now" if time == before.time_text else f"{time} instead of {before.time_text}"
    size = size_text(after.sram_bytes)
    if size != size_text(before.sram_bytes):
        return f"{time}, {size} of SRAM instead of {size_text(before.sram_bytes)}"
    return f"{time}, the same SRAM"


def _tried(model: Compiled, **changes: Any) -> Summary | None:
    """Return the figures of a compile with these changes of the options; None where the model does not fit its
    budget."""
    try:
        return model.figures(**changes)
    except BudgetError:
        return None


def _io_type(now: Summary) -> Iterator[Advice]:
    """Yield advice to leave out the host's conversions of inputs and outputs, if there are any. Nothing is compiled
    for it, since the programs of the NPU are the same without the conversions."""
    latency, then = now.latency, now.latency.without_conversions
    if latency.io_type:
        yield Advice(
            f"Take and return {latency.io_type} values",
            "the host converts no inputs and outputs",
            f"--io-dtype {latency.io_type}",
            f"io_dtype={latency.io_type!r}",
            Cost.of(now),
            Cost(then.milliseconds, now.sram_bytes, then.band),
        )


def _prefetch(model: Compiled, now: Summary) -> Iterator[Advice]:
    if now.weights_fit or model.compile_options.prefetch_constants:
        return
    then = _tried(model, prefetch_constants=True)
    if then is not None and then.milliseconds <= (1 - WORTH) * now.milliseconds:
        yield Advice(
            "Copy weights ahead of their use",
            "the program copies only the weights that a run reads, ahead of their use",
            "--prefetch-constants",
            "prefetch_constants=True",
            Cost.of(now),
            Cost.of(then),
        )


def _io_place(model: Compiled, now: Summary) -> Iterator[Advice]:
    if now.target.moves_tiles:
        return
    inside = model.compile_options.place == ARENA
    place = CALLER if inside else ARENA
    reason = (
        "a run reads inputs and writes outputs in the caller's buffers"
        if inside
        else "a run copies inputs and outputs from and to buffers of the caller, which may be in another memory"
    )
    then = _tried(model, io_place=place)
    if then is not None:
        title = (
            "Leave inputs and outputs in the caller's buffers" if inside else "Place inputs and outputs in the arena"
        )
        yield Advice(title, reason, f"--io-place {place}", f"io_place={place!r}", Cost.of(now), Cost.of(then))


def _budgets(model: Compiled, now: Summary, points: Sequence[BudgetPoint]) -> Iterator[Advice]:
    before = Cost.of(now)
    given = now.budget_bytes
    larger = [point for point in points if point.sram_budget_kib * 1024 > given]
    faster = [point for point in larger if point.milliseconds <= (1 - WORTH) * before.milliseconds]
    if faster:
        best = min(faster, key=lambda point: (point.milliseconds, point.sram_bytes))
        point = _knee(faster, best, before)
        reason = "more rows are computed at once"
        if point is not best:
            reason += (
                f", and --sram-budget {best.sram_budget_kib} gives the fastest schedule, {_cost_of(best).time_text}"
            )
        yield _of_budget("Raise", point, before, reason)
    most = (1 + MOST_TIME) * before.milliseconds
    least = (1 - WORTH_BYTES) * before.sram_bytes
    smaller = [point for point in points if point.sram_bytes <= least and point.milliseconds <= most]
    if smaller:
        point = min(smaller, key=lambda point: point.sram_bytes)
        yield _of_budget("Lower", point, before, "fewer rows are in memory at once")


def _cost_of(point: BudgetPoint) -> Cost:
    return Cost(point.milliseconds, point.sram_bytes, point.expected_milliseconds)


def _of_budget(verb: str, point: BudgetPoint, before: Cost, reason: str) -> Advice:
    kib = point.sram_budget_kib
    return Advice(
        f"{verb} the SRAM budget to {kib} KiB",
        reason,
        f"--sram-budget {kib}",
        f"sram_budget={kib * 1024}",
        before,
        _cost_of(point),
    )


def _knee(points: Sequence[BudgetPoint], best: BudgetPoint, now: Cost) -> BudgetPoint:
    """Return the point with the best balance of time and memory between this compile and the fastest one, ``best``:
    the knee of the curve. This point has the largest (share of time saved - share of memory added), where both shares
    are of the differences between this compile and ``best`` (Satopaa et al., Finding a "Kneedle" in a Haystack,
    2011). Return ``best`` if it needs no more memory than this compile."""

    def gain(point: BudgetPoint) -> float:
        time = (now.milliseconds - point.milliseconds) / (now.milliseconds - best.milliseconds)
        return time - (point.sram_bytes - now.sram_bytes) / (best.sram_bytes - now.sram_bytes)

    return max(points, key=gain) if best.sram_bytes > now.sram_bytes else best
