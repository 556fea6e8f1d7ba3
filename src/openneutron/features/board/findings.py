# SPDX-License-Identifier: BSD-3-Clause
"""Read the JSON that board_check wrote on a board, and conclude how the board's NPU computes matrix products."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openneutron.device import neutron_jobs as jobs
from openneutron.device.files import content
from openneutron.errors import InvalidOptionError
from openneutron.features.board.cases import PACKED, PACKED_SIGNED, PLAIN, PLAIN_SIGNED, VERSION, WITHOUT, Case, Rescale

ROUNDINGS = ("half_up", "half_even", "half_away", "truncate", "toward_zero")
ZERO_POINTS = ("ignored", "added")
SATURATIONS = ("saturate", "wrap")

KIND_NAMES = {
    PACKED_SIGNED: "packed, A signed",
    PACKED: "packed, A unsigned",
    PLAIN_SIGNED: "not packed, A signed",
    PLAIN: "not packed, A unsigned",
    WITHOUT: "without a kind",
}


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a product on the board. ``wrong`` is the number of wrong values, and ``error`` the driver's error code."""

    case: Case
    error: int
    wrong: int

    @property
    def is_right(self) -> bool:
        """Return whether the job ran and every result was exact."""
        return self.error == 0 and self.wrong == 0


@dataclass(frozen=True, slots=True)
class Rescaling:
    """How the NPU makes results of one size from int32 sums. ``rounding``, ``zero_point`` and ``saturation`` name the
    hypothesis that fits all of the board's results. All three are None if no hypothesis fits all.

    ``nearest`` is the rounding of the hypothesis that the fewest results contradict. ``differences`` has the number
    of results for each difference from this hypothesis. Differences beyond -2 and 2 count as -2 and 2.
    """

    rounding: str | None
    zero_point: str | None
    saturation: str | None
    nearest: str
    differences: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Times:
    """The time of jobs: the overhead of a job, and the highest rates above it. A rate is None if the jobs do not show it."""

    overhead_us: float
    bytes_per_ns: float | None
    products_per_ns: float | None


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of a board's check.

    ``form`` names the release of NXP's driver whose kind of jobs gave right results with int8 weights, and
    ``int4_form`` with int4 weights. It is None if no kind did. ``rescaled`` has the findings about rounding for
    results of 1 byte and of 4 bytes.
    """

    kernel: str
    system: str
    library: str
    memory_mib: int
    form: str | None
    int4_form: str | None
    results: tuple[Result, ...]
    rescaled: Mapping[int, Rescaling]
    times: Times | None
    is_cut: bool = False
    """The program did not reach its end: a job did not return."""

    def of(self, kinds: Iterable[int], group: int = 0) -> list[Result]:
        """Return the results of products of certain kinds: with int8 weights, or with int4 weights in groups of ``group`` columns."""
        wanted = set(kinds)
        return [result for result in self.results if result.case.kind in wanted and result.case.group == group]

    def wrong_k(self, kinds: Iterable[int], group: int = 0) -> list[int]:
        """Return in ascending order the values of K for which a product gave an error or a wrong result."""
        return sorted({result.case.k for result in self.of(kinds, group) if not result.is_right})


def read_findings(path: Path) -> Findings:
    """Return the findings in the JSON file that a board's check wrote. If a job did not return and the file is
    therefore incomplete, the findings are those of the jobs before it.

    Raises InvalidOptionError if the file is no such file, or of another version.
    """
    text = content(path).decode(errors="replace")
    given, is_cut = _parsed(text)
    if given is None or not {"openneutron_board", "kernel", "system", "library"} <= given.keys():
        raise InvalidOptionError(
            f"{path}: it is no file of board_check. Run the program of `openneutron board make` on the board, and give the file "
            "that it writes."
        )
    if given["openneutron_board"] != VERSION:
        raise InvalidOptionError(
            f"{path}: board_check of version {given['openneutron_board']} wrote it; this package reads version {VERSION}. Make the "
            "program again."
        )
    return replace(findings_of(given), is_cut=is_cut)


def _parsed(text: str) -> tuple[dict[str, Any] | None, bool]:
    """Return the JSON object of a file, or None; and whether the file is incomplete. Each row of the file is on a line of its own."""
    lines = text.splitlines()
    for end in ("", "}", "]}"):
        for kept in {len(lines), len(lines) - (1 if end else 0)}:
            try:
                found = json.loads("\n".join(lines[:kept]).rstrip().rstrip(",") + end)
            except ValueError:
                continue
            return (found if isinstance(found, dict) else None), bool(end)
    return None, True


def findings_of(given: Mapping[str, Any]) -> Findings:
    """Return the findings in the JSON object of a check."""
    forms, results = _results(given.get("forms", ())), _results(given.get("cases", ()))
    int8 = [result for result in forms if not result.case.group]
    int4 = [result for result in forms if result.case.group]
    form = _form(int8, "first")
    int4_form = _form(int4, "second")
    if form == "first" and int4_form == "second":
        form = "second"
    return Findings(
        kernel=given["kernel"],
        system=given["system"].strip('"'),
        library=given["library"]["path"],
        memory_mib=given.get("memory", {}).get("largest_mib", 0),
        form=form,
        int4_form=int4_form,
        results=(*forms, *results),
        rescaled=_rescaled(given.get("rescaled", ())),
        times=_times(given.get("times", ())),
    )


def _form(tried: Iterable[Result], without_kind: str) -> str | None:
    right = [result.case.kind for result in tried if result.is_right]
    if any(kind != WITHOUT for kind in right):
        return "third"
    return without_kind if right else None


def _results(rows: Iterable[Sequence[Any]]) -> tuple[Result, ...]:
    """Return the results in rows of ``kind, M, K, N, group, error, wrong results``. Products that are too large for the buffer are left out."""
    return tuple(Result(Case(*row[:5]), row[5], row[6]) for row in rows if not isinstance(row[5], str))


def predicted(given: Rescale, rounding: str, zero_point: str, saturation: str) -> NDArray[np.int64]:
    """Return the results of a product of zeros that a hypothesis about rounding, zero point and saturation predicts."""
    products = given.biases * (given.factor & 0xFFFF)
    unit = 1 << (given.factor >> 16)
    floors, rests = products // unit, products % unit
    up = {
        "half_up": rests * 2 >= unit,
        "half_even": (rests * 2 > unit) | ((rests * 2 == unit) & (floors % 2 == 1)),
        "half_away": np.where(products < 0, rests * 2 > unit, rests * 2 >= unit),
        "truncate": np.zeros_like(rests, bool),
        "toward_zero": (products < 0) & (rests > 0),
    }[rounding]
    values = floors + up + (given.zero_point if zero_point == "added" else 0)
    bits = 8 * given.result_bytes
    is_signed = given.result_bytes == 4 or abs(given.kind) == PACKED_SIGNED
    least = -(1 << bits - 1) if is_signed else 0
    most = least + (1 << bits) - 1
    if saturation == "wrap":
        return np.asarray((values - least) % (1 << bits) + least)
    return np.asarray(np.clip(values, least, most))


def _rescaled(rows: Iterable[Mapping[str, Any]]) -> dict[int, Rescaling]:
    seen: dict[int, list[tuple[Rescale, NDArray[np.int64]]]] = {1: [], 4: []}
    for row in rows:
        if row["error"] == 0:
            asked = Rescale(*(row[name] for name in ("kind", "result_bytes", "zero_point", "factor", "first", "step")))
            seen[asked.result_bytes].append((asked, np.array(row["results"], np.int64)))
    return {size: _nearest(pairs) for size, pairs in seen.items() if pairs}


def _nearest(pairs: Sequence[tuple[Rescale, NDArray[np.int64]]]) -> Rescaling:
    """Return the hypothesis that the fewest results contradict. Each pair has a product of zeros and its results on the board."""

    def wrong(names: tuple[str, str, str]) -> int:
        return sum(int((found != predicted(asked, *names)).sum()) for asked, found in pairs)

    ranked = sorted(product(ROUNDINGS, ZERO_POINTS, SATURATIONS), key=wrong)
    best = ranked[0]
    differences = Counter(
        int(value) for asked, found in pairs for value in np.clip(found - predicted(asked, *best), -2, 2)
    )
    counted = dict(sorted(differences.items()))
    if wrong(best) == 0:
        assert wrong(ranked[1]) > 0, "the products tell any two hypotheses apart"
        return Rescaling(*best, best[0], counted)
    return Rescaling(None, None, None, best[0], counted)


def _times(rows: Iterable[Sequence[Any]]) -> Times | None:
    measured = [(Case(*row[:5]), float(row[6])) for row in rows if row[5] == 0]
    packed = [(case, ns) for case, ns in measured if not case.group]
    if not packed:
        return None
    overhead = min(ns for _, ns in packed)
    over = [(case, ns - overhead) for case, ns in packed if ns > 2 * overhead]
    rates = [case.k * case.n / ns for case, ns in over if case.m == 1]
    products = [case.m * case.k * case.n / ns for case, ns in over if case.m >= 64]
    return Times(overhead / 1000, max(rates, default=None), max(products, default=None))


def sentences(found: Findings) -> list[str]:
    """Return the findings as sentences for the terminal."""
    lines = [
        f"The board runs {found.system or 'a system without a name'}, kernel {found.kernel}, with {found.library}.",
        f"The largest buffer of contiguous memory has {found.memory_mib} MiB."
        if found.memory_mib
        else "No buffer of contiguous memory could be had, so no job ran. Reserve memory with cma= on the kernel's command line.",
    ]
    if not found.memory_mib:
        return lines
    lines.append(
        f"Jobs of int8 weights have the form of the {found.form} release."
        if found.form
        else "No published form of a job with int8 weights gave right results."
    )
    lines.append(
        f"Jobs of int4 weights have the form of the {found.int4_form} release, with raw blocks."
        if found.int4_form
        else "No published form of a job with int4 weights gave right results."
    )
    lines += _sizes(found)
    lines += [rescaling(size, rescaled) for size, rescaled in sorted(found.rescaled.items())]
    if found.times is not None:
        lines.append(_timing(found.times))
    if found.is_cut:
        case = found.results[-1].case if found.results else None
        place = f"M {case.m}, K {case.k:,}, N {case.n:,}" if case is not None else "none"
        lines.append(f"The file ends early: a job did not return. The last product that did has {place}.")
    return lines


def _sizes(found: Findings) -> list[str]:
    lines = []
    for kind, name in KIND_NAMES.items():
        results = found.of([kind])
        if results:
            lines.append(_right(f"int8 weights, {name}", results, found.wrong_k([kind])))
    for group in jobs.GROUPS:
        results = found.of(KIND_NAMES, group)
        if results:
            wrong = found.wrong_k(KIND_NAMES, group)
            lines.append(_right(f"int4 weights in groups of {group}", results, wrong))
    pairs = {(r.case.m, r.case.k, r.case.n): r.is_right for r in found.of([PACKED_SIGNED])}
    both = [
        (pairs[sizes], result.is_right)
        for result in found.of([PLAIN_SIGNED])
        if (sizes := (result.case.m, result.case.k, result.case.n)) in pairs
    ]
    if both:
        alike = sum(packed and plain for packed, plain in both)
        lines.append(
            f"Packed and not packed weights agree in {alike} of {len(both)} sizes that were run in both forms."
        )
    return lines


def _right(what: str, results: Sequence[Result], wrong: Sequence[int]) -> str:
    count = sum(result.is_right for result in results)
    if not wrong:
        return f"With {what}, all {count} sizes are exact."
    others = sorted({result.case.k for result in results} - set(wrong))
    told = f"K of {', '.join(f'{k:,}' for k in wrong)} {'is' if len(wrong) == 1 else 'are'} wrong"
    return f"With {what}, {count} of {len(results)} sizes are exact: {told}, and {len(others)} other K right."


_ROUNDING_WORDS = {
    "half_up": "rounded to the nearest, halves up",
    "half_even": "rounded to the nearest, halves to even",
    "half_away": "rounded to the nearest, halves away from zero",
    "truncate": "cut off towards minus infinity",
    "toward_zero": "cut off towards zero",
}


def rescaling(size: int, rescaled: Rescaling) -> str:
    """Return sentences about how the NPU rounds and saturates results of ``size`` bytes."""
    what = "Results of 1 byte" if size == 1 else "Results of 4 bytes"
    if rescaled.rounding is None:
        told = ", ".join(f"{difference:+d}: {count}" for difference, count in rescaled.differences.items())
        words = _ROUNDING_WORDS[rescaled.nearest]
        return f"{what} fit no hypothesis; the nearest is that they are {words}. Differences from it: {told} (2 is 2 or more)."
    saturation = "saturated" if rescaled.saturation == "saturate" else "not saturated: they wrap"
    return (
        f"{what} are {_ROUNDING_WORDS[rescaled.rounding]}, and {saturation}. "
        f"Word 10 of the header, the zero point, is {'added' if rescaled.zero_point == 'added' else 'not added'}."
    )


def _timing(times: Times) -> str:
    text = f"A small job takes {times.overhead_us:,.1f} us."
    if times.bytes_per_ns is not None:
        text += f" Weights arrive at up to {times.bytes_per_ns:,.2f} bytes per ns."
    if times.products_per_ns is not None:
        text += f" The NPU computes up to {times.products_per_ns:,.1f} products per ns."
    return text
