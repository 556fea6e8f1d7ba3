# SPDX-License-Identifier: BSD-3-Clause
"""Model the time of a decoder: on i.MX 95 by the speeds of its Cortex-A55 cores and NXP's NPU, on other cores by the instructions of each call.

The time on i.MX 95 also decides which channels of each matrix the NPU multiplies. Its model is that of ``bench/language_models.py``, whose constants ``python -m bench.estimates`` fits to the published runs of Qwen3-1.7B. A product
takes the longer of its multiplications and the transfer of its weights; on the NPU also the dispatch of a job, and the cores' work for each value
that the job reads or writes. Where both share a product, one core waits for the NPU, and the other cores multiply meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log, sqrt

from openneutron.compiler.cost.language import ATTENTION, FOUR, LanguageCall, table
from openneutron.compiler.rewrite.jobs import known_sizes
from openneutron.device.neutron_jobs import split_k
from openneutron.isa.microcode import Microcode
from openneutron.language.decoder import Matrix
from openneutron.targets import Target, with_checksum


@dataclass(frozen=True, slots=True)
class Speeds:
    """The speeds of the cores and the NPU of i.MX 95. Each but the first two and the last is fitted by ``python -m bench.estimates``.

    * ``cores`` and ``hertz``: the Cortex-A55 cores and their clock (docs/targets.md).
    * ``products``: products of a core in a cycle, in a prompt. ``read``: bytes of weights that the cores read in a second.
    * ``dispatch``: seconds of a job's dispatch. ``npu_read``: bytes of weights that the NPU reads in a second.
    * ``value``: cycles of a core for a value that a job reads or writes. ``npu_products``: products of the NPU in a second.
    * ``memory``: bytes that cores and NPU together read in a second, assumed: half the peak of LPDDR5 of 32 bits at 6,400 MT/s (docs/targets.md).
      A memory test on a board reaches 13e9 (secondary: github.com/kylefoxaustin/imx95-device-skills).
    """

    cores: int = 6
    hertz: float = 1.8e9
    products: float = 3.556
    read: float = 4.907e9
    dispatch: float = 1.189e-4
    npu_read: float = 4.297e9
    value: float = 27.45
    npu_products: float = 0.08087 * 1024e9
    memory: float = 12e9

    @property
    def all_hertz(self) -> float:
        return self.cores * self.hertz

    def together(self, has_npu: bool) -> tuple[float, float]:
        """Return the bytes that are read in a second, and the products of a second: those of the cores, or of cores and NPU together."""
        products = self.products * self.all_hertz
        return (
            (min(self.memory, self.read + self.npu_read), products + self.npu_products)
            if has_npu
            else (self.read, products)
        )

    def on_values(self, count: float) -> float:
        """Return the seconds for values that jobs read or write: of all cores, or of one where handing out the work takes longer."""
        return count * self.value / (self.hertz if count < LEAST_SHARED else self.all_hertz)


TOKENS_OF_A_ROW = 32
"""The tokens for which the cores decode a row of weights once (the runtime's dynamic_linear_f32.c)."""

PEER_INSTRUCTIONS = 0.125
"""The instructions of a product in the runs that ``products`` is fitted to: llama.cpp's, of Q4_0 weights in a prompt (``python -m bench llama_cpp``)."""

INSTRUCTIONS = {8: (0.12, 0.06), 4: (0.12, 0.5)}
"""By the bits of a weight, the instructions of a product on a Cortex-A55, and those of a weight that a run of up to TOKENS_OF_A_ROW tokens has
once (``python -m bench llama_cpp``: 0.12 and 0.18 of int8 weights in a prompt and for one token, 0.14 and 0.62 of int4 weights)."""


def core_products(bits: int, tokens: int, speeds: Speeds) -> float:
    """Return the products of a core in a cycle. The cores execute as many instructions in a cycle as in the fitted runs.

    Fewer instructions than the peer's are not counted as faster: both load as many bytes.
    """
    product, weight = INSTRUCTIONS[bits]
    return speeds.products / max(1.0, (product + weight / min(tokens, TOKENS_OF_A_ROW)) / PEER_INSTRUCTIONS)


LEAST_SHARED = 65536
"""The least input elements of work that threads share (NEUTRON_LEAST_SHARED_WORK of the runtime)."""


DEVIATIONS = {
    "products": 0.098,
    "read": 0.098,
    "dispatch": 0.972,
    "npu_read": 0.174,
    "value": 0.987,
    "npu_products": 0.199,
    "memory": 0.405,
}
"""The standard deviation of the logarithm of each constant (bench/estimates.json). That of the memory is assumed: one deviation less is half
the peak of LPDDR4X of 32 bits at 4,000 MT/s, which NXP's FRDM-IMX95 has (nxp.com)."""

SCATTER, WIDTH = 0.0719, 1.862
"""The scatter of figures about the model, and the standard deviations of a range (bench/estimates.json)."""

NEVER = 0


@dataclass(frozen=True, slots=True)
class Share:
    """The channels of a matrix that the NPU multiplies: the first ``job_channels`` in runs of ``job_from`` tokens or more, and the first
    ``few_channels`` in shorter runs. ``job_from`` is 0 where the NPU multiplies none."""

    job_from: int = NEVER
    job_channels: int = 0
    few_channels: int = 0

    def channels(self, tokens: int) -> int:
        """Return the channels that the NPU multiplies in a run of so many tokens."""
        if self.job_from == NEVER:
            return 0
        return self.job_channels if tokens >= self.job_from else self.few_channels


ALONE = Share()
"""The cores multiply all channels."""


@dataclass(frozen=True, slots=True)
class Product:
    """A linear layer of a program: a matrix of ``bits`` in groups of ``group`` columns (0: none), divided into ``parts`` along its columns.

    ``is_last``: of the run's last token alone.
    ``source``: the rows of a source, which a text's first run alone multiplies; 0: the rows are tokens.
    """

    name: str
    rows: int
    columns: int
    bits: int
    group: int
    parts: int = 1
    share: Share = ALONE
    is_last: bool = False
    source: int = 0

    @property
    def weight_bytes(self) -> float:
        """Return the bytes of a weight, with 3 bytes of decode scale and bias for each group of int4 weights."""
        return 1.0 if self.bits == 8 else 0.5 + 3 / self.group

    @property
    def size_bytes(self) -> float:
        return self.rows * self.columns * self.weight_bytes


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
            columns, parts = call["inputs"], -(-call["inputs"] // call["part_inputs"])
            share = Share(call["job_from"], call["job_channels"], call["few_channels"])
            form = columns, call["bits"], call["group"], parts, share, bool(call["last"])
            found.append(Product(name, output["channels"], *form, output["rows"] if of_source else 0))
        elif call.row.name == "cached_attention_f32":
            source = call["positions"] if call["cross"] else 0
            found.append(Attention(name, call["heads"], call["groups"], call["size"], call["window"], source))
    return tuple(found)


def with_jobs_from(work: Work, tokens: int) -> Work:
    """Return the same work with every product of several tokens on the NPU alone from so many tokens on; 0: never."""
    return tuple(
        replace(each, share=ALONE if each.is_last or tokens == NEVER else Share(tokens, each.rows))
        if isinstance(each, Product)
        else each
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

    def is_bound_by_memory(self, bytes_per_second: float) -> bool:
        """Return whether the lower bound is the transfer of the bytes of all parts, rather than the products."""
        return sum(part.size_bytes for part in self.parts) / bytes_per_second >= self.bound * (1 - 1e-9)


def seconds_of(of: Product, channels: int, tokens: int, speeds: Speeds = Speeds()) -> float:
    """Return the seconds of a product of so many tokens with its first ``channels`` on the NPU; 0: on the cores alone."""
    left = max(0, of.rows - channels)
    cores = max(
        tokens * float(left * of.columns) / core_products(of.bits, tokens, speeds) / speeds.all_hertz,
        left * of.columns * of.weight_bytes / speeds.read,
    )
    if channels == 0:
        return cores
    multiplied = channels * of.columns
    npu = of.parts * speeds.dispatch + max(
        tokens * float(multiplied) / speeds.npu_products, multiplied * of.weight_bytes / speeds.npu_read
    )
    # One core waits for the NPU. When the job has ended, it joins the others.
    meanwhile = npu * (speeds.cores - 1) / speeds.cores
    together = max(npu + max(0.0, cores - meanwhile), of.size_bytes / speeds.memory)
    return speeds.on_values(tokens * of.columns) + together + speeds.on_values(tokens * min(channels, of.rows))


def chooser(target: Target, rows: int, of: Speeds = Speeds()) -> Callable[[Matrix, int, int, bool], Share]:
    """Return ``share`` of a plan: the channels with the shortest modelled time for runs of ``rows`` tokens, and for single tokens.

    A target without an NPU that takes jobs has no jobs.
    """
    if target.jobs is None:
        return lambda _matrix, _block, _most, _is_last: ALONE
    sizes = known_sizes(target.jobs)

    @cache
    def shared(outputs: int, inputs: int, group: int, block: int, most: int, is_last: bool) -> Share:
        parts = len(split_k(inputs, sizes, group or None))
        product = Product("", outputs, inputs, 4 if group else 8, group, parts)
        many, few = (
            min(range(0, most + 1, block), key=lambda channels: seconds_of(product, channels, tokens, of))
            for tokens in (1 if is_last else rows, 1)
        )
        if many == few or many == 0:
            return Share(1, few) if few else ALONE
        first = rows
        while first > 1 and seconds_of(product, many, first - 1, of) < seconds_of(product, few, first - 1, of):
            first -= 1
        return Share(first, many, few)

    return lambda matrix, block, most, is_last: shared(matrix.rows, matrix.columns, matrix.group, block, most, is_last)


def phase(work: Work, tokens: int, position: int, rows: int, of: Speeds = Speeds()) -> Phase:
    """Return the modelled time of ``tokens`` tokens from ``position`` on, in runs of at most ``rows`` tokens."""
    parts = _parts(work, tokens, position, rows, of)
    seconds = sum(part.seconds for part in parts)
    variance = SCATTER**2
    for name, deviation in DEVIATIONS.items():
        # The memory is a bound, which may hold only where it is smaller.
        step = exp(-deviation) if name == "memory" else _STEP
        more = replace(of, **{name: getattr(of, name) * step})
        changed = sum(part.seconds for part in _parts(work, tokens, position, rows, more))
        variance += (log(changed / seconds) / log(step) * deviation) ** 2
    width = exp(WIDTH * sqrt(variance))
    # A part's bytes count once for each run: no memory near the cores holds the weights of a layer until the next run.
    moved, products = sum(part.size_bytes for part in parts), sum(part.products for part in parts)
    read, multiplied = of.together(any(part.on_npu for part in parts))
    bound = max(moved / read, products / multiplied)
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
    counts = [1 for _ in runs] if of.is_last else runs
    channels = [of.share.channels(tokens) for tokens in counts]
    seconds = sum(seconds_of(of, each, tokens, speeds) for each, tokens in zip(channels, counts, strict=True))
    return Part(of.name, seconds, of.size_bytes * len(runs), float(of.rows * of.columns) * sum(counts), any(channels))


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


def calls_of(microcode: Microcode) -> Iterator[tuple[str, LanguageCall]]:
    """Yield each call of a decoder's program with its name."""
    names = microcode.names or ("",) * len(microcode.operators)
    for name, call in zip(names, microcode.operators, strict=True):
        params = dict(zip(call.row.names, call.values, strict=True))
        yield name, LanguageCall(call.row.name, params, microcode.buffers[call["output"]]["channels"])


def modelled(microcode: Microcode, tokens: int, position: int, rows: int) -> tuple[str, Phase] | None:
    """Return the chip of a program in words, and the modelled time of ``tokens`` tokens from ``position`` on in runs of at most ``rows``.

    Return None for a program of no decoder, for a chip or an instruction set whose time is not modelled, for a decoder behind an encoder on a
    core, and for a target that does not come with this package.
    """
    target = with_checksum(microcode.target)
    if target is None or not any(call.row.name == ATTENTION for call in microcode.operators):
        return None
    if target.name.startswith(("imx95", "cortex-a55")):
        return "i.MX 95 with six cores", phase(work_of(microcode), tokens, position, rows)
    if target.cpu is None:
        return None
    known = table(target.cpu.instruction_set.value[0])
    calls = [call for _, call in calls_of(microcode)]
    if any(call.form(1) not in known or call.form(FOUR) not in known or call.params.get("cross") for call in calls):
        return None
    title = target.title.removeprefix("NXP ")
    return f"{title} at {target.clock.value:g} MHz", on_core(microcode, target, tokens, position, rows)


def on_core(microcode: Microcode, target: Target, tokens: int, position: int, rows: int) -> Phase:
    """Return the modelled time on a core, on whose instruction set the forms of all calls are counted.

    The bound is the longer of the reading of all weights and of the products at the most that the core computes in a cycle.
    """
    assert target.cpu is not None
    cpu, hertz = target.cpu, 1e6 * target.clock.value
    read = target.constants_home.bandwidth.value * hertz
    runs = [(min(rows, tokens - first), position + first) for first in range(0, tokens, rows)]
    found: dict[str, Part] = {}
    least = most = 0.0
    for name, call in calls_of(microcode):
        seconds = products = size = 0.0
        for count, first in runs:
            instructions = call.instructions(count, first, cpu.instruction_set.value[0])
            assert instructions is not None
            computing = (instructions + cpu.call_instructions.value) * cpu.instruction_cycles.value / hertz
            reading = call.weight_bytes(count) / read
            seconds += max(computing, reading)
            most += computing + reading
            size += call.weight_bytes(count)
            products += call.work(count, first).products
        least += seconds
        kind = name.rpartition(".")[2]
        so_far = found.get(kind, Part(kind, 0.0, 0.0, 0.0, False))
        found[kind] = Part(kind, so_far.seconds + seconds, so_far.size_bytes + size, so_far.products + products, False)
    parts, error = tuple(found.values()), 1 + cpu.error.value / 100
    bound = max(
        sum(part.size_bytes for part in parts) / read, sum(part.products for part in parts) / cpu.macs.value / hertz
    )
    return Phase(tokens, parts, least, least / error, most * error, bound)
