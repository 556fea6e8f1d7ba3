# SPDX-License-Identifier: BSD-3-Clause
"""Model the time of a decoder on Cortex-A55 cores and NXP's NPU of i.MX 95, and choose what the NPU multiplies.

The model is that of ``bench/language_models.py``, whose constants ``python -m bench.estimates`` fits to the published runs of Qwen3-1.7B. A product
takes the longer of its multiplications and the transfer of its weights; on the NPU also the dispatch of a job, and the cores' work for each value
that the job reads or writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import exp, log, sqrt

from openneutron.language.decoder import Decoder, Layer, Matrix
from openneutron.targets import Target


@dataclass(frozen=True, slots=True)
class Speeds:
    """What the cores and the NPU of i.MX 95 do in a second. The source of each but the first two is ``python -m bench.estimates``.

    * ``cores`` and ``hertz``: the Cortex-A55 cores and their clock (docs/targets.md).
    * ``products``: products of a core in a cycle, in a prompt. ``read``: bytes of weights that the cores read in a second.
    * ``dispatch``: seconds of a job's dispatch. ``npu_read``: bytes of weights that the NPU reads in a second.
    * ``value``: cycles of a core for a value that a job reads or writes. ``npu_products``: products of the NPU in a second.
    """

    cores: int = 6
    hertz: float = 1.8e9
    products: float = 3.556
    read: float = 4.907e9
    dispatch: float = 1.189e-4
    npu_read: float = 4.297e9
    value: float = 27.45
    npu_products: float = 0.08087 * 1024e9

    @property
    def all_hertz(self) -> float:
        return self.cores * self.hertz


DEVIATIONS = {
    "products": 0.098,
    "read": 0.098,
    "dispatch": 0.972,
    "npu_read": 0.174,
    "value": 0.987,
    "npu_products": 0.199,
}
"""The standard deviation of the logarithm of each constant (bench/estimates.json)."""

SCATTER, WIDTH = 0.0719, 1.862
"""The scatter of figures about the model, and the standard deviations of a range (bench/estimates.json)."""

NEVER = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a phase: a kind of calls in all layers, its seconds, its bytes of weights and cache, and the processor that takes most of it."""

    name: str
    seconds: float
    size_bytes: float
    products: float
    on_npu: bool


@dataclass(frozen=True, slots=True)
class Phase:
    """The modelled time of a run: ``seconds`` with the range ``low`` to ``high``, and a lower ``bound`` that no order of work falls below.

    The bound is the longer of the transfer of all bytes once and of all products on cores and NPU together, at the model's speeds.
    """

    tokens: int
    parts: tuple[Part, ...]
    seconds: float
    low: float
    high: float
    bound: float

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


def weight_bytes(matrix: Matrix) -> float:
    """Return the bytes of a matrix: its weights, and of int4 weights 3 bytes of decode scale and bias for each group."""
    each = 1.0 if matrix.int4 is None else 0.5 + 3 / matrix.group
    return matrix.rows * matrix.columns * each


def on_cpu(matrix_bytes: float, products: float, tokens: int, of: Speeds) -> float:
    """Return the seconds of a product of so many tokens on the cores."""
    return max(tokens * products / of.products / of.all_hertz, matrix_bytes / of.read)


def on_npu(matrix_bytes: float, products: float, values: float, tokens: int, of: Speeds) -> float:
    """Return the seconds of a product as jobs; ``values`` are those that it reads and writes for each token."""
    longest = max(tokens * products / of.npu_products, matrix_bytes / of.npu_read)
    return of.dispatch + longest + tokens * values * of.value / of.all_hertz


def chooser(target: Target, rows: int, of: Speeds = Speeds()) -> Callable[[int, int, int], int]:
    """Return ``job_from`` of a plan: the least tokens from which on a matrix's jobs take less time than the cores; 0 where there are none.

    A target without an NPU that takes jobs has no jobs.
    """
    if target.jobs is None:
        return lambda _rows, _columns, _bits: NEVER

    def job_from(outputs: int, inputs: int, bits: int) -> int:
        size, products = outputs * inputs * bits / 8, float(outputs * inputs)
        found = NEVER
        for tokens in range(rows, 0, -1):
            if on_npu(size, products, outputs + inputs, tokens, of) >= on_cpu(size, products, tokens, of):
                break
            found = tokens
        return found

    return job_from


def phase(
    decoder: Decoder,
    tokens: int,
    position: int,
    rows: int,
    job_from: Callable[[int, int, int], int],
    of: Speeds = Speeds(),
) -> Phase:
    """Return the modelled time of ``tokens`` tokens from ``position`` on, in runs of at most ``rows`` tokens."""
    parts = _parts(decoder, tokens, position, rows, job_from, of)
    seconds = sum(part.seconds for part in parts)
    variance = SCATTER**2
    for field in fields(of):
        deviation = DEVIATIONS.get(field.name)
        if deviation is not None:
            more = replace(of, **{field.name: getattr(of, field.name) * 1.01})
            slope = log(
                sum(part.seconds for part in _parts(decoder, tokens, position, rows, job_from, more)) / seconds
            ) / log(1.01)
            variance += (slope * deviation) ** 2
    width = exp(WIDTH * sqrt(variance))
    moved, products = sum(part.size_bytes for part in parts), sum(part.products for part in parts)
    peak = of.products * of.all_hertz + (of.npu_products if any(part.on_npu for part in parts) else 0)
    bound = max(moved / max(of.read, of.npu_read), products / peak)
    return Phase(tokens, parts, seconds, seconds / width, seconds * width, bound)


def _parts(
    decoder: Decoder, tokens: int, position: int, rows: int, job_from: Callable[[int, int, int], int], of: Speeds
) -> tuple[Part, ...]:
    runs = [min(rows, tokens - first) for first in range(0, tokens, rows)]
    found: dict[str, list[Part]] = {}
    for layer in decoder.layers:
        for name, matrix in (("qkv", layer.qkv), ("output", layer.output), ("up", layer.up), ("down", layer.down)):
            found.setdefault(name, []).append(
                _product(name, matrix, runs, job_from(matrix.rows, matrix.columns, matrix.bits), of)
            )
        found.setdefault("attention", []).append(_attention(decoder, layer, tokens, position, of))
    head = _product("head", decoder.head, [1] * len(runs), NEVER, of)
    found["head"] = [head]
    return tuple(
        Part(
            name,
            sum(each.seconds for each in parts),
            sum(each.size_bytes for each in parts),
            sum(each.products for each in parts),
            any(each.on_npu for each in parts),
        )
        for name, parts in found.items()
    )


def _product(name: str, matrix: Matrix, runs: list[int], job_from: int, of: Speeds) -> Part:
    size, products, values = weight_bytes(matrix), float(matrix.rows * matrix.columns), matrix.rows + matrix.columns
    seconds, most = 0.0, False
    for tokens in runs:
        is_job = 0 < job_from <= tokens
        most |= is_job
        seconds += on_npu(size, products, values, tokens, of) if is_job else on_cpu(size, products, tokens, of)
    return Part(name, seconds, size * len(runs), products * sum(runs), most)


def _attention(decoder: Decoder, layer: Layer, tokens: int, position: int, of: Speeds) -> Part:
    """Return the products of queries with keys and of scores with values, on the cores."""
    seen = [position + i + 1 for i in (0, tokens - 1)]
    mean = sum(min(each, layer.window) if layer.window else each for each in seen) / 2
    products = 2.0 * tokens * mean * decoder.heads * decoder.head_size
    size = 2.0 * mean * decoder.groups * (decoder.head_size + 4) * (1 if tokens == 1 else tokens / 16)
    return Part("attention", max(products / of.products / of.all_hertz, size / of.read), size, products, False)
