# SPDX-License-Identifier: BSD-3-Clause
"""Model the time of a decoder on Cortex-A55 cores and NXP's NPU of i.MX 95, and choose what the NPU multiplies.

The model is that of ``bench/language_models.py``, whose constants ``python -m bench.estimates`` fits to the published runs of Qwen3-1.7B. A product
takes the longer of its multiplications and the transfer of its weights; on the NPU also the dispatch of a job, and the cores' work for each value
that the job reads or writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, log, sqrt

from openneutron.isa.microcode import Microcode
from openneutron.targets import Target


@dataclass(frozen=True, slots=True)
class Speeds:
    """The speeds of the cores and the NPU of i.MX 95. Each but the first two is fitted by ``python -m bench.estimates``.

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
class Product:
    """A linear layer of a program: a matrix of ``bits`` in groups of ``group`` columns (0: none).

    ``job_from`` is the least number of tokens for which the NPU multiplies; 0: never. ``is_last``: of the run's last token alone.
    ``source``: the rows of a source, which a text's first run alone multiplies; 0: the rows are tokens.
    """

    name: str
    rows: int
    columns: int
    bits: int
    group: int
    job_from: int = NEVER
    is_last: bool = False
    source: int = 0

    @property
    def size_bytes(self) -> float:
        """Return the bytes of the weights, and of int4 weights 3 bytes of decode scale and bias for each group."""
        return self.rows * self.columns * (1.0 if self.bits == 8 else 0.5 + 3 / self.group)


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention of a layer to its cache; ``window``: the positions that a token sees, 0: all before it; ``source``: those of a source, or 0."""

    name: str
    heads: int
    groups: int
    size: int
    window: int
    source: int = 0


Work = tuple[Product | Attention, ...]


def work_of(microcode: Microcode) -> Work:
    """Return the products and the attention of a decoder's program, in the order of its calls; empty for another program."""
    found: list[Product | Attention] = []
    names = microcode.names or ("",) * len(microcode.operators)
    for name, call in zip(names, microcode.operators, strict=True):
        if call.row.name == "dynamic_linear_f32":
            output, of_source = microcode.buffers[call["output"]], call["span"] != microcode.operators[0]["span"]
            form = call["inputs"], call["bits"], call["group"], call["job_from"], bool(call["last"])
            found.append(Product(name, output["channels"], *form, output["rows"] if of_source else 0))
        elif call.row.name == "cached_attention_f32":
            source = call["positions"] if call["cross"] else 0
            found.append(Attention(name, call["heads"], call["groups"], call["size"], call["window"], source))
    return tuple(found)


def with_jobs_from(work: Work, tokens: int) -> Work:
    """Return the same work with every product of several tokens on the NPU from so many tokens on; 0: never."""
    return tuple(
        replace(each, job_from=NEVER if each.is_last else tokens) if isinstance(each, Product) else each
        for each in work
    )


@dataclass(frozen=True, slots=True)
class Part:
    """A kind of calls in all layers: its seconds, the bytes of weights and cache that it moves, its products, and whether the NPU has some."""

    name: str
    seconds: float
    size_bytes: float
    products: float
    on_npu: bool


@dataclass(frozen=True, slots=True)
class Phase:
    """The modelled time of ``tokens`` tokens: ``seconds`` with the range ``low`` to ``high``, and a lower ``bound``.

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


def phase(work: Work, tokens: int, position: int, rows: int, of: Speeds = Speeds()) -> Phase:
    """Return the modelled time of ``tokens`` tokens from ``position`` on, in runs of at most ``rows`` tokens."""
    parts = _parts(work, tokens, position, rows, of)
    seconds = sum(part.seconds for part in parts)
    variance = SCATTER**2
    for name, deviation in DEVIATIONS.items():
        more = replace(of, **{name: getattr(of, name) * _STEP})
        changed = sum(part.seconds for part in _parts(work, tokens, position, rows, more))
        variance += (log(changed / seconds) / log(_STEP) * deviation) ** 2
    width = exp(WIDTH * sqrt(variance))
    # A part's bytes count once for each run: no memory near the cores holds the weights of a layer until the next run.
    moved, products = sum(part.size_bytes for part in parts), sum(part.products for part in parts)
    peak = of.products * of.all_hertz + (of.npu_products if any(part.on_npu for part in parts) else 0)
    bound = max(moved / max(of.read, of.npu_read), products / peak)
    return Phase(tokens, parts, seconds, seconds / width, seconds * width, bound)


_STEP = 1.01
"""The relative step by which the slope of a time over a constant is found."""


def _parts(work: Work, tokens: int, position: int, rows: int, of: Speeds) -> tuple[Part, ...]:
    """Return the parts by the last word of their calls' names."""
    runs = [min(rows, tokens - first) for first in range(0, tokens, rows)]
    found: dict[str, list[Part]] = {}
    for each in work:
        made = (
            _product(each, runs, position, of) if isinstance(each, Product) else _attention(each, tokens, position, of)
        )
        found.setdefault(each.name.rpartition(".")[2], []).append(made)
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


def _product(of: Product, runs: list[int], position: int, speeds: Speeds) -> Part:
    if of.source:
        runs = [] if position else [of.source]
    size, products, values = of.size_bytes, float(of.rows * of.columns), of.rows + of.columns
    seconds, has_jobs = 0.0, False
    counts = [1 for _ in runs] if of.is_last else runs
    for tokens in counts:
        if 0 < of.job_from <= tokens:
            has_jobs = True
            seconds += on_npu(size, products, values, tokens, speeds)
        else:
            seconds += on_cpu(size, products, tokens, speeds)
    return Part(of.name, seconds, size * len(runs), products * sum(counts), has_jobs)


TOKENS_TOGETHER = 16
"""The tokens of a prompt that share one reading of the cache, assumed for the bound of its transfer."""


def _attention(of: Attention, tokens: int, position: int, speeds: Speeds) -> Part:
    """Return the products of queries with keys and of scores with values, on the cores."""
    seen = (
        [of.source, of.source]
        if of.source
        else [min(each, of.window) if of.window else each for each in (position + 1, position + tokens)]
    )
    mean = sum(seen) / 2
    products = 2.0 * tokens * mean * of.heads * of.size
    size = 2.0 * mean * of.groups * (of.size + 4) * max(1.0, tokens / TOKENS_TOGETHER)
    seconds = max(products / speeds.products / speeds.all_hertz, size / speeds.read)
    return Part(of.name, seconds, size, products, False)
