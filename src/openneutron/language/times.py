# SPDX-License-Identifier: BSD-3-Clause
"""Model the time of a decoder. On i.MX 95 the time follows from speeds of its Cortex-A55 cores and its NPU, on other cores from the instructions
of each kernel call.

The model of i.MX 95 also decides which channels of each matrix the NPU multiplies. It is the model of ``bench/language_models.py``; ``python -m
bench.estimates`` fits its constants to published runs of Qwen3-1.7B. The time of a linear layer is the longer of its multiplications and the
transfer of its weights. On the NPU, the dispatch of a job and the cores' work for each value that the job reads or writes are added. If cores
and NPU share a linear layer, one core waits for the NPU while the others multiply.
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
    """The speeds of the cores and the NPU of i.MX 95. All but ``cores``, ``hertz`` and ``memory`` are fitted by ``python -m bench.estimates``.

    * ``cores`` and ``hertz``: the number of Cortex-A55 cores and their clock (docs/targets.md).
    * ``products``: multiply-accumulates of a core per cycle, in a prompt. ``read``: bytes of weights that the cores read per second.
    * ``dispatch``: the time to dispatch a job, in seconds. ``npu_read``: bytes of weights that the NPU reads per second.
    * ``value``: cycles of a core for each value that a job reads or writes. ``npu_products``: multiply-accumulates of the NPU per second.
    * ``memory``: bytes that cores and NPU together read per second. It is assumed to be half the peak of 32-bit LPDDR5 at 6,400 MT/s
      (docs/targets.md). A memory test on a board reaches 13e9 (secondary: github.com/kylefoxaustin/imx95-device-skills).
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
        """Return the bytes of weights read per second, and the multiply-accumulates per second. With ``has_npu``
        these are the speeds of cores and NPU together, otherwise of the cores."""
        products = self.products * self.all_hertz
        return (
            (min(self.memory, self.read + self.npu_read), products + self.npu_products)
            if has_npu
            else (self.read, products)
        )

    def on_values(self, count: float) -> float:
        """Return the time that the cores need for ``count`` values that jobs read or write, in seconds.

        From LEAST_SHARED values on all cores share the work. Fewer values are the work of one core.
        """
        return count * self.value / (self.hertz if count < LEAST_SHARED else self.all_hertz)


TOKENS_OF_A_ROW = 32
"""The number of tokens for which the cores decode a row of weights once (the runtime's dynamic_linear_f32.c)."""

PEER_INSTRUCTIONS = 0.125
"""The number of instructions per multiply-accumulate in the runs that ``products`` is fitted to: llama.cpp with Q4_0 weights in a prompt
(``python -m bench llama_cpp``)."""

INSTRUCTIONS = {8: (0.12, 0.06), 4: (0.12, 0.5)}
"""Two numbers of instructions on a Cortex-A55, by the bits of a weight: for each multiply-accumulate, and for each weight once per
TOKENS_OF_A_ROW tokens. They follow from ``python -m bench llama_cpp``: with int8 weights 0.12 per multiply-accumulate in a prompt and 0.18
for one token, with int4 weights 0.14 and 0.62."""


def core_products(bits: int, tokens: int, speeds: Speeds) -> float:
    """Return the multiply-accumulates of a core per cycle. The number of instructions per cycle is assumed to be that
    of the published runs with llama.cpp, to which ``speeds.products`` is fitted.

    A kernel with fewer instructions than llama.cpp's is not counted as faster, since both load as many bytes.
    """
    product, weight = INSTRUCTIONS[bits]
    return speeds.products / max(1.0, (product + weight / min(tokens, TOKENS_OF_A_ROW)) / PEER_INSTRUCTIONS)


LEAST_SHARED = 65536
"""The smallest number of input elements for which threads share the work (NEUTRON_LEAST_SHARED_WORK of the runtime)."""


DEVIATIONS = {
    "products": 0.098,
    "read": 0.098,
    "dispatch": 0.972,
    "npu_read": 0.174,
    "value": 0.987,
    "npu_products": 0.199,
    "memory": 0.405,
}
"""The standard deviation of the logarithm of each constant of ``Speeds`` (bench/estimates.json). The deviation of ``memory`` is assumed: one
deviation below it is half the peak of 32-bit LPDDR4X at 4,000 MT/s, which NXP's FRDM-IMX95 has (nxp.com)."""

SCATTER, WIDTH = 0.0719, 1.862
"""``SCATTER`` is the scatter of published figures about the model, and ``WIDTH`` the number of standard deviations in a range
(bench/estimates.json)."""

NEVER = 0


@dataclass(frozen=True, slots=True)
class Share:
    """The number of output channels of a matrix that the NPU multiplies. The cores multiply the other channels.

    In a run of at least ``job_from`` tokens the NPU multiplies the first ``job_channels`` channels. In a shorter run
    it multiplies the first ``few_channels``. If ``job_from`` is 0, the NPU multiplies none in any run.
    """

    job_from: int = NEVER
    job_channels: int = 0
    few_channels: int = 0

    def channels(self, tokens: int) -> int:
        """Return the number of channels that the NPU multiplies in a run of ``tokens`` tokens."""
        if self.job_from == NEVER:
            return 0
        return self.job_channels if tokens >= self.job_from else self.few_channels


ALONE = Share()
"""The share in which the cores multiply all channels."""


@dataclass(frozen=True, slots=True)
class Product:
    """A linear layer of a program. Its weights have ``bits``, in groups of ``group`` columns (0: not in groups), and are divided into ``parts``
    along the columns.

    ``is_last``: only the run's last token is multiplied. ``source``: the number of rows of an encoder's result, which only the first run of a
    text multiplies; 0 if the rows are tokens.
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
        """Return the bytes of a weight. For int4 weights this includes 3 bytes of decode scale and bias for each group."""
        return 1.0 if self.bits == 8 else 0.5 + 3 / self.group

    @property
    def size_bytes(self) -> float:
        return self.rows * self.columns * self.weight_bytes


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention of a layer. ``window``: the number of positions that a token attends to, 0 for all before it. ``source``: the number of
    positions of an encoder's result, 0 for self attention."""

    name: str
    heads: int
    groups: int
    size: int
    window: int
    source: int = 0


Work = tuple[Product | Attention, ...]


def work_of(microcode: Microcode) -> Work:
    """Return the linear layers and attentions of a decoder's program, in the order of its calls. For other programs the result is empty."""
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
    """Return the same work, in which the NPU multiplies all channels of each matrix in runs of at least ``tokens``
    tokens, and none in shorter runs. With NEVER (0), the cores multiply everything. Matrices that multiply only the
    run's last token always stay on the cores."""
    return tuple(
        replace(each, share=ALONE if each.is_last or tokens == NEVER else Share(tokens, each.rows))
        if isinstance(each, Product)
        else each
        for each in work
    )


@dataclass(frozen=True, slots=True)
class Part:
    """All calls of one kind, summed over the layers: their time, the bytes of weights and cache that they move, and their multiply-accumulates.

    ``on_npu`` states whether the NPU computes some of them.
    """

    name: str
    seconds: float
    size_bytes: float
    products: float
    on_npu: bool


@dataclass(frozen=True, slots=True)
class Phase:
    """The modelled time of ``tokens`` tokens: ``seconds`` with the range ``low`` to ``high``, and the lower bound
    ``bound``, all in seconds.

    The lower bound is the longer of two times: reading the weights and the cache from memory, where weights count
    once for each run, and all multiply-accumulates. The speeds for both are those of the cores. If the NPU computes
    some calls, its speeds are added to them.
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
        """Return whether the lower bound is the time to transfer the bytes of all parts, rather than the time of the multiply-accumulates."""
        return sum(part.size_bytes for part in self.parts) / bytes_per_second >= self.bound * (1 - 1e-9)


def seconds_of(of: Product, channels: int, tokens: int, speeds: Speeds = Speeds()) -> float:
    """Return the time of a linear layer for ``tokens`` tokens, in seconds. The NPU multiplies the first ``channels``
    output channels and the cores the others; 0: the cores multiply all."""
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
    """Return the function ``share`` of a ``Plan`` for a target. It chooses the number of channels on the NPU with the
    shortest modelled time: for runs of ``rows`` tokens, and for single tokens.

    If the target has no NPU that takes jobs, the cores multiply all channels.
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
    """Return the modelled time on i.MX 95 of ``tokens`` tokens from ``position`` on, in runs of at most ``rows`` tokens."""
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
"""The relative step of a constant in the finite difference that gives the slope of a time."""


def _parts(work: Work, tokens: int, position: int, rows: int, of: Speeds) -> tuple[Part, ...]:
    """Return the parts of a phase. Calls are of one kind if their names have the same last word."""
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
"""The number of tokens of a prompt that share one reading of the cache. It is assumed, for the time to transfer the cache."""


def _attention(of: Attention, tokens: int, position: int, speeds: Speeds) -> Part:
    """Return the part of an attention on the cores: the products of queries with keys, and of scores with values."""
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
    """Return the name of a program's chip and the modelled time of ``tokens`` tokens from ``position`` on, in runs of
    at most ``rows`` tokens.

    Return None if the program is no decoder, if the time of its chip or instruction set is not modelled, or if the
    target does not come with this package. The result is also None for a decoder with cross attention on a core other
    than that of i.MX 95.
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
    """Return the modelled time on a single core that computes all calls. It follows from the number of instructions
    of each call.

    The lower bound is the longer of two times: reading the weights of all runs from memory, and all
    multiply-accumulates at the largest number that the core computes per cycle.
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
