# SPDX-License-Identifier: BSD-3-Clause
"""The report's section about a decoder's program: the time of each phase by kind of call, what bounds it, tokens per second by position, and
memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape

from rich.console import Group, RenderableType
from rich.text import Text

from openneutron.compiler.cost.language import LINEAR, NORM, LanguageCall
from openneutron.features.report.page.charts import PART_COLOURS, Chart, Spec, axis, spec, tip, values
from openneutron.features.report.page.data import ReportData, Row
from openneutron.features.report.page.document import table, tiles
from openneutron.features.report.table import (
    Column,
    Table,
    count_text,
    duration_text,
    number_text,
    plural,
    right,
    size_text,
)
from openneutron.isa import Microcode, Program, Record, decode
from openneutron.isa.listing import profile
from openneutron.isa.microcode import base_text
from openneutron.language.model import Interface, timed_work
from openneutron.language.times import (
    ALONE,
    NEVER,
    Part,
    Phase,
    Product,
    Share,
    Speeds,
    Work,
    calls_of,
    modelled,
    phase,
    with_jobs_from,
)
from openneutron.targets import with_checksum

CPU, NPU, BOTH = "CPU", "NPU", "NPU and CPU"
PREFILL, DECODE = "prefill", "decode"
CHOSEN, CORES, JOBS, BOUND = "as compiled", "CPU alone", "all on the NPU", "lower bound"
"""The lines of the chart: the program as compiled, all linear layers on the CPU, linear layers of several tokens wholly on the NPU, and the
lower bound of the time."""

DDR, MULTIPLICATIONS, VALUES = "bytes over DDR", "multiplications", "dispatch and values"
FLASH, INSTRUCTIONS = "bytes of flash", "instructions"
"""The two kinds of lower bound on a core that computes all calls: reading the weights from flash, and executing instructions."""

TITLES = {
    "embedding": "embedding",
    "qkv": "queries, keys, values",
    "attention": "attention",
    "output": "output of attention",
    "up": "MLP up",
    "activation": "activation",
    "down": "MLP down",
    "logits": "head",
    "cross_query": "queries of cross attention",
    "cross_source": "keys, values of the encoder",
    "cross_attention": "cross attention",
    "cross_output": "output of cross attention",
}
"""The title of each kind of call, by the last word of a call's name (language/program.py)."""

NORMS = "norms"
_ORDER = (TITLES["embedding"], NORMS, *TITLES.values())


@dataclass(frozen=True, slots=True)
class LayerPart:
    """All calls of one kind in a phase (a prompt, or one generated token), summed over the layers.

    ``shape`` has the rows and columns of the weights. ``seconds`` and ``size_bytes`` are those of the whole phase;
    ``size_bytes`` counts weights and cache that are read from external memory. ``cpu_seconds`` and ``npu_seconds``
    are the times of the same calls on the CPU alone and on the NPU alone. ``npu_seconds`` is None if the calls can't
    run on the NPU, or if no linear layer of the program runs there.

    If ``is_counted`` is False, ``seconds`` is the compiler's cost estimate for one core. The time of the phase does
    not include it, since the constants of that time are fitted to whole runs.
    """

    name: str
    calls: int
    shape: str
    bits: int
    place: str
    why: str
    seconds: float
    cpu_seconds: float | None
    npu_seconds: float | None
    size_bytes: float
    products: float
    bound_by: str
    is_counted: bool


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """The modelled time of ``tokens`` tokens from ``position`` on, with its range and its lower bound.

    ``cpu_seconds`` is the time with all linear layers on the CPU. ``npu_seconds`` is the time with all of them on the
    NPU except the head, which multiplies only the last token; None if the program has no linear layer on the NPU.
    """

    kind: str
    tokens: int
    position: int
    seconds: float
    low_seconds: float
    high_seconds: float
    bound_seconds: float
    bound_by: str
    cpu_seconds: float
    npu_seconds: float | None
    size_bytes: float
    products: float
    parts: tuple[LayerPart, ...]

    @property
    def title(self) -> str:
        if self.kind == DECODE:
            return f"decode at position {self.position:,}"
        return f"prefill of {plural(self.tokens, 'token')}"

    def speed_text(self, seconds: float | None) -> str:
        """Return the tokens per second for a time in seconds, as text; an empty text for None."""
        return "" if seconds is None else number_text(self.tokens / seconds)

    @property
    def range_text(self) -> str:
        """Return the range of the tokens per second as text."""
        return f"{self.speed_text(self.high_seconds)} to {self.speed_text(self.low_seconds)}"


@dataclass(frozen=True, slots=True)
class Speed:
    """A point of the chart: the tokens per second of a run that begins at ``position``, with their range."""

    kind: str
    way: str
    position: int
    tokens_per_second: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """A part of a program's memory. ``kind`` names the memory that contains the part, and ``name`` the part's content."""

    kind: str
    name: str
    size_bytes: int
    about: str = ""


@dataclass(frozen=True, slots=True)
class LanguageFacts:
    """The facts about a decoder's program. ``phases`` and ``speeds`` are empty if the time of a decoder on the chip is not modelled."""

    layers: int
    rows: int
    context: int
    vocabulary: int
    file_bytes: int
    phases: tuple[PhaseTime, ...]
    speeds: tuple[Speed, ...]
    memory: tuple[MemoryPart, ...]

    def size_of(self, kind: str) -> int:
        """Return the size of all parts in a memory, in bytes."""
        return sum(item.size_bytes for item in self.memory if item.kind == kind)


# -- the data -------------------------------------------------------------------------------------------------------------


def language_facts(interface: Interface, program: Program, file_bytes: int) -> LanguageFacts:
    """Return the facts of the program of a language model. The facts have no times if the time of the program's chip
    is not modelled."""
    microcode = decode(program, checksums=False)
    work = timed_work(microcode)
    phases: list[PhaseTime] = []
    speeds: list[Speed] = []
    if work:
        others = _others(program, microcode, interface.rows)
        why = _why_alone(microcode)
        phases = [_phase(work, *each, interface.rows, others, why) for each in _runs(interface)]
        speeds = list(_speeds(work, interface))
    elif modelled(microcode, 1, 0, interface.rows) is not None:
        phases = [_phase_of_core(microcode, *each, interface.rows) for each in _runs(interface)]
        speeds = list(_speeds_of_core(microcode, interface))
    layers = sum(_word(name) == "attention" for name in microcode.names)
    constants = sorted(_weights(microcode, program), key=lambda item: (item.kind != WEIGHTS, -item.size_bytes))
    memory = (*constants, *_caches(microcode, interface, layers), *_arena(microcode))
    return LanguageFacts(
        layers,
        interface.rows,
        interface.context,
        interface.vocabulary,
        file_bytes,
        tuple(phases),
        tuple(speeds),
        memory,
    )


def _runs(interface: Interface) -> list[tuple[str, int, int]]:
    """Return the phases that a report shows: kind, number of tokens and first position. Two are prompts: one of a
    full run, one of a quarter of the cache. The others are single tokens: at position 0, after a quarter of the
    cache, and at its end."""
    later = interface.context // 4
    prompts = [(PREFILL, tokens, 0) for tokens in dict.fromkeys((interface.rows, max(later, interface.rows)))]
    return [*prompts, *((DECODE, 1, position) for position in dict.fromkeys((0, later, interface.context - 1)))]


def _word(name: str) -> str:
    return name.rpartition(".")[2]


def _has_jobs(work: Work) -> bool:
    return any(isinstance(each, Product) and each.share != ALONE for each in work)


def _on_npu(work: Work) -> Work:
    """Return the same work with all linear layers on the NPU, for any number of tokens. This includes the layer that multiplies only the last
    token."""
    return tuple(replace(each, share=Share(1, each.rows)) if isinstance(each, Product) else each for each in work)


def _why_alone(microcode: Microcode) -> str:
    """Return the reason why no linear layer of a program runs on the NPU."""
    target = with_checksum(microcode.target)
    if target is None or target.jobs is None:
        return "this target has no NPU that takes products"
    return "the CPU alone is faster for every product of this program"


def _phase(
    work: Work, kind: str, tokens: int, position: int, rows: int, others: Sequence[LayerPart], why_alone: str
) -> PhaseTime:
    """Return the time of a phase with its parts.

    ``others`` are the parts of one token that the function ``phase`` does not model. ``why_alone`` states why no
    linear layer is on the NPU. It is used only if that is so for this program.
    """
    of = Speeds()
    made = phase(work, tokens, position, rows, of)
    alone = phase(with_jobs_from(work, NEVER), tokens, position, rows, of)
    there = phase(_on_npu(work), tokens, position, rows, of) if _has_jobs(work) else None
    runs = -(-tokens // rows)
    parts = [
        replace(
            each,
            seconds=each.seconds * tokens,
            size_bytes=each.size_bytes * (runs if each.name == NORMS else tokens),
        )
        for each in others
    ]
    npu = {} if there is None else {part.name: part.seconds for part in there.parts}
    cpu = {part.name: part.seconds for part in alone.parts}
    parts += [
        _part(
            part,
            [each for each in work if _word(each.name) == part.name],
            min(tokens, rows),
            cpu[part.name],
            npu.get(part.name),
            of,
            why_alone,
        )
        for part in made.parts
    ]
    read, _ = of.together(any(part.on_npu for part in made.parts))
    there_seconds = _seconds_on_npu(work, tokens, position, rows)
    return _time_of(made, kind, position, parts, (DDR, read), alone.seconds, there_seconds)


def _time_of(
    made: Phase,
    kind: str,
    position: int,
    parts: Iterable[LayerPart],
    memory: tuple[str, float],
    cpu_seconds: float,
    npu_seconds: float | None,
) -> PhaseTime:
    """Return the time of a phase. ``memory`` is a pair for the memory with the weights: its name as a bottleneck
    (``DDR`` or ``FLASH``), and the bytes that are read from it per second."""
    name, read = memory
    return PhaseTime(
        kind=kind,
        tokens=made.tokens,
        position=position,
        seconds=made.seconds,
        low_seconds=made.low,
        high_seconds=made.high,
        bound_seconds=made.bound,
        bound_by=name if made.is_bound_by_memory(read) else MULTIPLICATIONS,
        cpu_seconds=cpu_seconds,
        npu_seconds=npu_seconds,
        size_bytes=math.fsum(part.size_bytes for part in made.parts),
        products=math.fsum(part.products for part in made.parts),
        parts=tuple(sorted(parts, key=_place_in_order)),
    )


def _seconds_on_npu(work: Work, tokens: int, position: int, rows: int) -> float | None:
    return phase(with_jobs_from(work, 1), tokens, position, rows).seconds if _has_jobs(work) else None


def _part(
    part: Part, calls: Sequence[object], tokens: int, cpu: float, npu: float | None, of: Speeds, why_alone: str
) -> LayerPart:
    """Return a part that ``phase`` models, for runs of ``tokens`` tokens, with the reason why its calls run where they do."""
    products = [each for each in calls if isinstance(each, Product)]
    title = TITLES.get(part.name, part.name)
    if not products:
        transfer, multiply = part.size_bytes / of.read, part.products / of.products / of.all_hertz
        why = "keys and values are no constants, as weights of the NPU's matrix products are"
        return LayerPart(
            title, len(calls), "", 8, CPU, why, part.seconds, cpu, None, part.size_bytes, part.products,
            DDR if transfer >= multiply else MULTIPLICATIONS, True,
        )  # fmt: skip
    first = products[0]
    channels = first.share.channels(1 if first.is_last else first.source or tokens)
    place = CPU if channels == 0 else NPU if channels >= first.rows else BOTH
    why = why_alone if npu is None else _why(part, first, channels, cpu, npu)
    speeds = (of.npu_read, of.npu_products) if place == NPU else of.together(place == BOTH)
    transfer, multiply = part.size_bytes / speeds[0], part.products / speeds[1]
    terms = {DDR: transfer, MULTIPLICATIONS: multiply, VALUES: part.seconds - max(transfer, multiply)}
    return LayerPart(
        title, len(calls), f"{first.rows:,} x {first.columns:,}", first.bits, place, why,
        part.seconds, cpu, npu, part.size_bytes, part.products, max(terms, key=lambda name: terms[name]), True,
    )  # fmt: skip


def _why(part: Part, product: Product, channels: int, cpu: float, npu: float) -> str:
    if 0 < channels < product.rows:
        return f"the NPU multiplies {channels:,} channels; the CPU alone takes {_ratio(cpu / part.seconds)}"
    if channels:
        return f"the CPU takes {_ratio(cpu / part.seconds)}"
    return f"the NPU takes {_ratio(npu / part.seconds)}"


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f} times as long"


def _others(program: Program, microcode: Microcode, rows: int) -> list[LayerPart]:
    """Return the parts of one token that ``phase`` does not model: embedding, norms and activations. Their time is the compiler's cost estimate
    of their kernels."""
    target = with_checksum(microcode.target)
    assert target is not None
    found: dict[str, list[float]] = {}
    for cost, call in zip(profile(program), microcode.operators, strict=True):
        kernel = call.row.name
        if kernel == "token_embedding_f32":
            name, size = TITLES["embedding"], call["inputs"] * call["bits"] / 8
            size += 3 * call["inputs"] / call["group"] if call["group"] else 0
        elif kernel == "norm_f32":
            name, size = NORMS, 8.0 * microcode.buffers[call["output"]]["channels"]
        elif kernel == "activation_f32":
            name, size = TITLES["activation"], 0.0
        else:
            continue
        sums = found.setdefault(name, [0, 0.0, 0.0])
        sums[0] += 1
        sums[1] += cost.cycles / rows / (float(target.clock.value) * 1e6)
        sums[2] += size
    why = "float32 values of a row"
    return [
        LayerPart(name, int(calls), "", 0, CPU, why, seconds, seconds, None, size, 0.0, "", False)
        for name, (calls, seconds, size) in found.items()
    ]


def _place_in_order(part: LayerPart) -> int:
    return _ORDER.index(part.name) if part.name in _ORDER else len(_ORDER)


def _phase_of_core(microcode: Microcode, kind: str, tokens: int, position: int, rows: int) -> PhaseTime:
    """Return the time of a phase on a core that computes all calls, from the instructions of the calls."""
    made = _made_by_core(microcode, tokens, position, rows)
    target = with_checksum(microcode.target)
    assert target is not None
    read = target.constants_home.bandwidth.value * 1e6 * target.clock.value
    calls: dict[str, list[LanguageCall]] = {}
    for name, call in calls_of(microcode):
        calls.setdefault(_word(name), []).append(call)
    parts: dict[str, LayerPart] = {}
    for part in made.parts:
        first, title = calls[part.name][0], _title_of_core(part.name, calls[part.name][0])
        bound_by = FLASH if part.size_bytes / read >= part.seconds * (1 - 1e-9) else INSTRUCTIONS
        shape = f"{first.channels:,} x {first.params['inputs']:,}" if first.kernel == LINEAR else ""
        made_part = LayerPart(
            title, len(calls[part.name]), shape, first.params.get("bits", 8), CPU, "the core computes all calls", part.seconds, part.seconds,
            None, part.size_bytes, part.products, bound_by, True,
        )  # fmt: skip
        so_far = parts.get(title)
        parts[title] = made_part if so_far is None else _together(so_far, made_part)
    return _time_of(made, kind, position, parts.values(), (FLASH, read), made.seconds, None)


def _made_by_core(microcode: Microcode, tokens: int, position: int, rows: int) -> Phase:
    found = modelled(microcode, tokens, position, rows)
    assert found is not None
    return found[1]


def _title_of_core(word: str, call: LanguageCall) -> str:
    return NORMS if call.kernel == NORM else TITLES.get(word, word)


def _together(one: LayerPart, other: LayerPart) -> LayerPart:
    return replace(
        one,
        calls=one.calls + other.calls,
        seconds=one.seconds + other.seconds,
        cpu_seconds=one.seconds + other.seconds,
        size_bytes=one.size_bytes + other.size_bytes,
        products=one.products + other.products,
    )


POINTS = 32
"""The number of points on a line of the chart."""


def _positions(context: int, tokens: int) -> list[int]:
    last = context - tokens
    return sorted({*range(0, last + 1, max(1, last // POINTS)), last})


def _speeds_of_core(microcode: Microcode, interface: Interface) -> Iterator[Speed]:
    """Yield the points of the chart for a core that computes all calls."""
    rows = interface.rows
    for kind, tokens in dict.fromkeys(((PREFILL, rows), (DECODE, 1))):
        for position in _positions(interface.context, tokens):
            made = _made_by_core(microcode, tokens, position, rows)
            most = tokens / made.bound
            yield Speed(kind, CHOSEN, position, tokens / made.seconds, tokens / made.high, tokens / made.low)
            yield Speed(kind, BOUND, position, most, most, most)


def _speeds(work: Work, interface: Interface) -> Iterator[Speed]:
    """Yield the points of the chart: for runs with the largest number of tokens, and for runs of one token."""
    rows, context = interface.rows, interface.context
    ways: list[tuple[str, Work]] = [(CHOSEN, work), (CORES, with_jobs_from(work, NEVER))]
    if _has_jobs(work):
        ways.append((JOBS, with_jobs_from(work, 1)))
    for kind, tokens in dict.fromkeys(((PREFILL, rows), (DECODE, 1))):
        for position in _positions(context, tokens):
            for way, each in ways:
                made = phase(each, tokens, position, rows)
                yield Speed(kind, way, position, tokens / made.seconds, tokens / made.high, tokens / made.low)
                if way == CHOSEN:
                    most = tokens / made.bound
                    yield Speed(kind, BOUND, position, most, most, most)


WEIGHTS, TABLES, CACHE, ARENA = "weights", "tables", "cache", "arena"

_EMPTY_WITHOUT = {"learned_positions": "learned", "rotary": "rotated", "job": "job_from"}
"""Constants that may be empty, each with the kernel parameter that is 0 in this case."""

_TABLES = {
    "job": "headers and tables of the NPU's jobs",
    "rotary": "rotary embedding",
    "learned_positions": "learned positions",
}


def _weights(microcode: Microcode, program: Program) -> Iterator[MemoryPart]:
    """Yield the constants of a program, one part for each kind of content. A constant ends at the offset at which the next one begins."""
    found: dict[int, tuple[str, str]] = {}
    titles: dict[int, list[str]] = {}
    for word, call in zip((_word(name) for name in microcode.names), microcode.operators, strict=True):
        for operand in _constants(call):
            if operand not in _EMPTY_WITHOUT or call[_EMPTY_WITHOUT[operand]]:
                offset = call[f"{operand}_offset"]
                found.setdefault(offset, _content(operand))
                if operand == "weights" and TITLES.get(word, word) not in titles.setdefault(offset, []):
                    titles[offset].append(TITLES.get(word, word))
    ends = [*sorted(found)[1:], len(program.weights)]
    sizes: dict[tuple[str, str], int] = {}
    for offset, end in zip(sorted(found), ends, strict=True):
        kind, name = found[offset]
        key = kind, name or " and ".join(titles[offset])
        sizes[key] = sizes.get(key, 0) + end - offset
    yield from (MemoryPart(kind, name, size) for (kind, name), size in sizes.items())


def _constants(call: Record) -> list[str]:
    """Return the names of those operands of a call that are constants."""
    names = [field.name.removesuffix("_offset") for field in call.row.fields if field.name.endswith("_offset")]
    return [name for name in names if base_text(call[f"{name}_base"]) == "WEIGHTS"]


def _content(operand: str) -> tuple[str, str]:
    if operand == "weights":
        return WEIGHTS, ""
    return (TABLES, _TABLES[operand]) if operand in _TABLES else (WEIGHTS, "scales, biases and norms")


def _caches(microcode: Microcode, interface: Interface, layers: int) -> Iterator[MemoryPart]:
    size = microcode.state_size
    about = f"{plural(layers, 'layer')}, {size_text(size // interface.context)} a position, int8 with a scale a head"
    yield MemoryPart(CACHE, "keys and values", size, about)


def _arena(microcode: Microcode) -> Iterator[MemoryPart]:
    buffers = {
        _word(name): _size(microcode.buffers[call["output"]])
        for name, call in zip(microcode.names, microcode.operators, strict=True)
    }
    largest = sorted(buffers.items(), key=lambda item: -item[1])[:3]
    about = ", ".join(f"{TITLES.get(word, word)} {size_text(size)}" for word, size in largest)
    yield MemoryPart(ARENA, "values of a run", microcode.scratch_size, f"largest: {about}")


def _size(buffer: Record) -> int:
    extents = (buffer[name] for name in ("batches", "rows", "cols", "channels"))
    size: int = buffer["channel_pitch"]
    for extent in extents:
        size *= extent
    return size


# -- views ----------------------------------------------------------------------------------------------------------------


def facts_of(data: ReportData) -> LanguageFacts:
    """Return the facts of the report's program."""
    (found,) = data.section("language")
    assert isinstance(found, LanguageFacts)
    return found


def summary(facts: LanguageFacts, title: str) -> tuple[Row, ...]:
    """Return the rows of the report's summary. ``title`` is that of the chip."""
    rows = [
        Row("Target", title),
        Row(
            "Decoder",
            f"{plural(facts.layers, 'layer')}, {facts.vocabulary:,} tokens in the vocabulary, cache of {facts.context:,} positions; "
            f"a run takes 1 to {facts.rows} tokens",
        ),
    ]
    for each in facts.phases:
        rows.append(Row(each.title[0].upper() + each.title[1:], _phase_text(each)))
    if not facts.phases:
        rows.append(Row("Time", "not modelled for a decoder on this chip"))
    rows += [
        Row(kind[0].upper() + kind[1:], size_text(facts.size_of(kind))) for kind in (WEIGHTS, TABLES, CACHE, ARENA)
    ]
    return (*rows, Row("File", size_text(facts.file_bytes)))


def _phase_text(each: PhaseTime) -> str:
    speed, most = each.speed_text(each.seconds), each.speed_text(each.bound_seconds)
    return f"{speed} tokens/s ({each.range_text}); bound by {each.bound_by}: {most} tokens/s"


def phases_table(facts: LanguageFacts) -> Table:
    """Return a table with a row for each phase: its speed with the range, its time, and the lower bound of the time."""
    found = facts.phases
    has_npu = any(each.npu_seconds is not None for each in found)
    return Table(
        (
            Column("phase", [each.title for each in found], style="cyan"),
            right("tokens/s", [each.speed_text(each.seconds) for each in found]),
            right("range", [each.range_text for each in found]),
            right(CORES, [each.speed_text(each.cpu_seconds) for each in found]),
            *([right(JOBS, [each.speed_text(each.npu_seconds) for each in found])] if has_npu else []),
            right("time", [_duration(each.seconds) for each in found]),
            right(BOUND, [_duration(each.bound_seconds) for each in found]),
            Column("bound by", [each.bound_by for each in found]),
            right("bytes", [size_text(round(each.size_bytes)) for each in found], goes=1),
            right("products", [count_text(round(each.products)) for each in found], goes=2),
        )
    )


def parts_table(each: PhaseTime) -> Table:
    """Return a table with a row for each kind of call in a phase. Times and bytes are those of one token."""
    parts = each.parts

    def a_token(seconds: float | None) -> str:
        return "" if seconds is None else _duration(seconds / each.tokens)

    return Table(
        (
            Column("part", [part.name for part in parts], style="cyan"),
            right("calls", [part.calls for part in parts]),
            right("weights", [part.shape for part in parts], goes=2),
            right("bits", [part.bits if part.shape else None for part in parts], goes=3),
            Column("on", [part.place for part in parts]),
            right("time", [("" if part.is_counted else "~") + a_token(part.seconds) for part in parts]),
            right("on CPU", [a_token(part.cpu_seconds) if part.is_counted else "" for part in parts]),
            right("on NPU", [a_token(part.npu_seconds) for part in parts]),
            right("bytes", [size_text(round(part.size_bytes / each.tokens)) for part in parts]),
            Column("bound by", [part.bound_by for part in parts], goes=1),
            Column("why", [part.why for part in parts], wraps=True, most=48),
        )
    )


def memory_table(facts: LanguageFacts) -> Table:
    """Return a table with a row for each part of the memory."""
    return Table(
        (
            Column("memory", [item.kind for item in facts.memory], style="cyan"),
            Column("content", [item.name for item in facts.memory]),
            right("size", [size_text(item.size_bytes) for item in facts.memory]),
            right("bytes", [item.size_bytes for item in facts.memory], goes=1),
            Column("", [item.about for item in facts.memory], wraps=True),
        )
    )


def _duration(seconds: float) -> str:
    return duration_text(1e3 * seconds)


def _shown(facts: LanguageFacts) -> list[PhaseTime]:
    """Return the phases whose parts the report shows: the longest prompt, and one token at a quarter of the cache."""
    prompts = [each for each in facts.phases if each.kind == PREFILL]
    single = [each for each in facts.phases if each.kind == DECODE]
    return [*prompts[-1:], *single[1:2]] if len(single) > 1 else [*prompts[-1:], *single]


def _is_of_core(facts: LanguageFacts) -> bool:
    return any(part.bound_by in (FLASH, INSTRUCTIONS) for each in facts.phases for part in each.parts)


def _tables(facts: LanguageFacts) -> Iterator[tuple[str, str, Table]]:
    """Yield the tables of the section: title, explanation and content of each."""
    if facts.phases and _is_of_core(facts):
        about = (
            "The lower bound of the time is the longer of the reading of all weights in flash, and of all multiplications at the most that the "
            "core computes in a cycle. The time is that of counted instructions; the range has the error of the core's model."
        )
        yield "Phases", about, phases_table(facts)
    elif facts.phases:
        about = (
            "The lower bound of the time is the longer of the transfer of all weights and the filled cache over the DDR, and of all "
            "multiplications on CPU and NPU together. It takes the same constants as the time; the range is that of the constants."
        )
        yield "Phases", about, phases_table(facts)
    for each in _shown(facts):
        about = (
            "Time and bytes of one token, in all layers."
            if _is_of_core(facts)
            else (
                "Time and bytes of one token, in all layers. A time with ~ is the compiler's cost of float32 kernels on one core; the sum does not "
                "have it, since the constants of the other times are fitted to whole runs."
            )
        )
        yield f"{each.title[0].upper()}{each.title[1:]}, by part", about, parts_table(each)
    yield "Memory", "The memory that the program takes. Prefill and decode share all of it.", memory_table(facts)


def shown(data: ReportData) -> RenderableType:
    """Return the tables for a terminal."""
    parts: list[RenderableType] = []
    for title, about, content in _tables(facts_of(data)):
        parts += ["", Text(title, "bold"), content, Text(about, "dim")]
    return Group(*parts[1:])


def view(data: ReportData) -> str:
    """Return the tables as HTML."""
    return "".join(
        f'<h3>{escape(title)}</h3><p class="about">{escape(about)}</p>{table(content, title)}'
        for title, about, content in _tables(facts_of(data))
    )


def head(data: ReportData) -> str:
    """Return the headline figures as HTML."""
    facts = facts_of(data)
    kinds = {each.kind: each for each in _shown(facts)}
    items = [
        (kind[0].upper() + kind[1:], f"{each.speed_text(each.seconds)} tokens/s", f"{each.title}; {_phase_text(each)}")
        for kind, each in kinds.items()
    ]
    about = {
        WEIGHTS: "one copy for prefill and decode",
        CACHE: f"{facts.context:,} positions",
        ARENA: f"runs of {facts.rows} tokens",
    }
    items += [(kind[0].upper() + kind[1:], size_text(facts.size_of(kind)), said) for kind, said in about.items()]
    return tiles(items)


COLOURS = {CHOSEN: PART_COLOURS[0], CORES: PART_COLOURS[1], JOBS: PART_COLOURS[3], BOUND: PART_COLOURS[2]}


def chart(data: ReportData) -> Chart:
    """Return the chart of tokens per second by position, with one view for prompts and one for single tokens."""
    facts = facts_of(data)
    kinds = list(dict.fromkeys(point.kind for point in facts.speeds))
    views = tuple((kind, _drawn([point for point in facts.speeds if point.kind == kind], kind)) for kind in kinds)
    rows = [
        (
            point.kind,
            point.way,
            point.position,
            round(point.tokens_per_second, 3),
            round(point.low, 3),
            round(point.high, 3),
        )
        for point in facts.speeds
    ]
    text = (
        f"The modelled tokens per second of a run that begins at a position of the cache: of a prompt's {facts.rows} tokens (prefill), and of "
        "one token (decode). The band is the range of the program's speed."
    )
    headings = ("phase", "way", "position", "tokens/s", "from", "to")
    return Chart("tokens", "Tokens per second by position", text, views, Table.of_rows(headings, rows))


def _drawn(points: Sequence[Speed], kind: str) -> Spec:
    ways = list(dict.fromkeys(point.way for point in points))
    rows = [
        {
            "way": point.way,
            "position": point.position,
            "speed": round(point.tokens_per_second, 4),
            "low": round(point.low, 4),
            "high": round(point.high, 4),
        }
        for point in points
    ]
    colour = {
        "field": "way", "type": "nominal", "title": None,
        "scale": {"domain": ways, "range": [COLOURS[way] for way in ways]},
    }  # fmt: skip
    x, y = axis("position", "position of the first token"), axis("speed", "tokens/s", scale={"zero": True})
    band = {"x": x, "y": axis("low", "tokens/s"), "y2": {"field": "high"}}
    tooltip = [
        tip("way", "way"),
        *(tip(name, title, "quantitative") for name, title in (("position", "position"), ("speed", "tokens/s"))),
    ]
    chosen = [row for row in rows if row["way"] == CHOSEN]
    dash = {"condition": {"test": f"datum.way === '{BOUND}'", "value": [4, 4]}, "value": [1, 0]}
    return spec(
        f"Modelled tokens per second of {kind} against the position of the first token",
        height=280,
        layer=[
            {"data": values(chosen), "mark": {"type": "area", "color": COLOURS[CHOSEN], "opacity": 0.15}, "encoding": band},
            {"data": values(rows), "mark": {"type": "line"}, "encoding": {"x": x, "y": y, "color": colour, "strokeDash": dash}},
            {"data": values(rows), "mark": {"type": "point", "filled": True, "opacity": 0, "size": 60},
             "encoding": {"x": x, "y": y, "tooltip": tooltip}},
        ],
    )  # fmt: skip


def collected(data: ReportData) -> tuple[LanguageFacts, ...]:
    """Return the facts about the decoder's program as a tuple of one item."""
    return data.section("language")
