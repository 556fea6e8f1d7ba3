# SPDX-License-Identifier: BSD-3-Clause
"""The facts about a chip. Every fact has its source.

A chip is one TOML file (``chips/*.toml``, or a user's own). Its tables and entries are the fields of the classes in
this module, so that reader, listing and documentation need no list of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from openneutron.errors import InvalidOptionError

KINDS: Mapping[str, str] = {
    "published": "stated by NXP, or in NXP's open sources, such as those in ExecuTorch",
    "secondary": "product pages and articles",
    "fitted": "computed so that the model meets published figures",
    "measured": "measured on a board, by `openneutron board read`",
    "assumed": "not published; a plausible value, to be replaced when something is measured",
}
"""The kinds of sources: the first word of a source, and the meaning of the word."""


@dataclass(frozen=True, slots=True)
class Number:
    """A figure with its unit and its source. The source is a word of KINDS, a colon, and the author or the reason."""

    value: float
    unit: str
    source: str

    @property
    def kind(self) -> str:
        """Return the kind of the source: its first word."""
        return self.source.partition(":")[0]

    def __str__(self) -> str:
        digits = f"{int(self.value):,}" if self.value == int(self.value) else f"{self.value:,g}"
        unit = self.unit.removesuffix("s") if self.value == 1 and "/" not in self.unit else self.unit
        return f"{digits} {unit}".rstrip()


@dataclass(frozen=True, slots=True)
class Words:
    """Names, such as data types, with their source."""

    value: tuple[str, ...]
    source: str

    @property
    def kind(self) -> str:
        """Return the kind of the source: its first word."""
        return self.source.partition(":")[0]

    def __str__(self) -> str:
        return ", ".join(self.value) or "none"


Fact = Number | Words

_ENTRY = "entry"


@dataclass(frozen=True, slots=True)
class Entry:
    """The declaration of a fact about a chip: its meaning, its unit, and the values that it can have.

    A fact is words or a number. ``choices`` has the allowed words; it is empty for other facts. ``is_one_word`` is
    True if the fact has exactly one word. ``is_whole`` is True if the number must be an integer. ``least`` and
    ``most`` are the bounds of the number; ``most`` is None if there is no upper bound. ``is_sizes`` is True if the
    fact is a list of integers above 0, which are stored as words of digits.
    """

    doc: str
    unit: str = ""
    is_whole: bool = False
    least: float = 0.0
    choices: tuple[str, ...] = ()
    most: float | None = None
    is_one_word: bool = False
    is_sizes: bool = False


def number(
    doc: str, unit: str = "", least: float = 0.0, is_whole: bool = False, most: float | None = None
) -> Mapping[str, Entry]:
    """Return the metadata of a field for a number from ``least`` to ``most``."""
    return {_ENTRY: Entry(doc, unit, is_whole, least, most=most)}


def count(doc: str, unit: str = "") -> Mapping[str, Entry]:
    """Return the metadata of a field for a whole number above 0."""
    return number(doc, unit, 1, True)


def words(doc: str, *choices: str) -> Mapping[str, Entry]:
    """Return the metadata of a field for words, each of them one of ``choices``."""
    return {_ENTRY: Entry(doc, choices=choices)}


def word(doc: str, *choices: str) -> Mapping[str, Entry]:
    """Return the metadata of a field for exactly one of ``choices``."""
    return {_ENTRY: Entry(doc, choices=choices, is_one_word=True)}


def sizes(doc: str) -> Mapping[str, Entry]:
    """Return the metadata of a field for whole numbers above 0."""
    return {_ENTRY: Entry(doc, is_sizes=True)}


def entries(table: type) -> dict[str, Entry]:
    """Return the declarations of a class's facts, by name."""
    return {item.name: item.metadata[_ENTRY] for item in fields(table) if _ENTRY in item.metadata}


INT8, INT16 = "int8", "int16"


@dataclass(frozen=True, slots=True)
class Npu:
    """The compute units. A pipeline computes one dot product of ``macs`` products in a cycle. All pipelines of a unit
    share one operand."""

    units: Number = field(metadata=count("NPU cores"))
    pipelines: Number = field(metadata=count("pipelines of a core, which compute outputs in parallel"))
    macs: Number = field(metadata=count("multipliers of a pipeline, which share a dot product"))
    accumulators: Number = field(
        metadata=count("32-bit accumulators of a pipeline; so many outputs reuse a loaded weight")
    )
    clock: Number = field(metadata=number("clock", "MHz", 1))
    data_types: Words = field(
        metadata=words("types of activations that the multipliers accept; weights are int8", INT8, INT16)
    )
    int16_passes: Number = field(
        metadata=number("cycles of a product of an int16 activation over that of an int8 one", "times", 1)
    )


PORTABLE, DSP, HELIUM, NEON = "portable", "dsp", "helium", "neon"


@dataclass(frozen=True, slots=True)
class Cpu:
    """Processor cores that run the kernels themselves, without an NPU."""

    instruction_set: Words = field(metadata=word("instructions that the kernels use", PORTABLE, DSP, HELIUM, NEON))
    cores: Number = field(metadata=count("cores that can share a kernel call"))
    clock: Number = field(metadata=number("clock", "MHz", 1))
    macs: Number = field(metadata=number("most products of int8 that a core computes in a cycle", least=0.1))
    data_types: Words = field(
        metadata=words("types of activations that the kernels accept; weights are int8", INT8, INT16)
    )
    instruction_cycles: Number = field(metadata=number("cycles of an instruction of a kernel", "cycles", 0.1))
    call_instructions: Number = field(
        metadata=number("instructions of the driver for each kernel call, with those before a kernel's first output")
    )
    error: Number = field(
        metadata=number(
            "the largest difference of a modelled latency from a measured one, in parts of the latter", "%", most=99
        )
    )

    @property
    def as_npu(self) -> Npu:
        """Return the facts of an imaginary NPU with a single multiplier. The cycles of a kernel on it are the steps of
        the kernel."""
        one = Number(1, "", self.macs.source)
        return Npu(one, one, one, one, self.clock, self.data_types, replace(one, unit="times"))

    @property
    def as_costs(self) -> Costs:
        """Return the constants of the cost model for the imaginary NPU of ``as_npu``, on which a step of a kernel
        takes one cycle. ``compiler/cost/cycles.py`` has the instructions of a step."""
        cycles = self.call_instructions.value * self.instruction_cycles.value
        one = Number(1, "", self.call_instructions.source)
        return Costs(
            issue_cycles=Number(round(cycles), "cycles", self.call_instructions.source),
            fill_cycles=Number(0, "cycles", one.source),
            depthwise_macs=one,
            elementwise_bytes=replace(one, unit="bytes/cycle"),
            softmax_cycles=replace(one, unit="cycles/element"),
            error=self.error,
        )


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads of an operating system, one on each core, which compute a kernel call together."""

    start: Number = field(
        metadata=number("time to hand out a kernel call to the threads, and to wait for the last of them", "us")
    )


RELEASES: Mapping[str, tuple[str, ...]] = {"first": (), "second": (), "third": ("3.1.1",)}
"""The releases of the NPU's driver and firmware for matrix products, in order, each with the versions of firmware that
are known to belong to it. ``openneutron.device.neutron_jobs`` has the form of a job in each."""


def release_named(version: str) -> str:
    """Return the release with this name (``first``, ``second``, ``third``), or to which this version of the firmware
    belongs, such as ``3.1.1``.

    Raises InvalidOptionError for a version that no published source names.
    """
    for name, firmwares in RELEASES.items():
        if version == name or version in firmwares:
            return name
    known = ", ".join((*RELEASES, *(firmware for firmwares in RELEASES.values() for firmware in firmwares)))
    raise InvalidOptionError(
        f"release: no published source has the form of jobs of version {version!r}; known are {known}. Run `openneutron board "
        "make imx95` and try its program on the board: it tells which release's form works."
    )


@dataclass(frozen=True, slots=True)
class Jobs:
    """The facts about matrix products that the NPU's driver takes one by one, as jobs, from a program on the host core."""

    release: Words = field(metadata=word("release of driver and firmware, which decides the form of a job", *RELEASES))
    overhead: Number = field(metadata=number("time of a job beside its transfers and products", "us"))
    bandwidth: Number = field(metadata=number("bytes that a job reads or writes in external memory", "bytes/ns", 0.01))
    macs: Number = field(metadata=number("products of int8 that a job computes", "products/ns", 0.01))
    right_k: Words = field(
        metadata=sizes("values of K above 1,024 that the firmware computes right, and tested ones below")
    )
    wrong_k: Words = field(metadata=sizes("values of K that the firmware computes wrong"))


ACTIVATIONS, CONSTANTS, NPU, CPU, HOST = "activations", "constants", "npu", "cpu", "host"


@dataclass(frozen=True, slots=True)
class Memory:
    """A level of the memory hierarchy of a chip."""

    name: str
    holds: Words = field(metadata=words("contents that the compiler places here", ACTIVATIONS, CONSTANTS))
    size: Number = field(metadata=number("size", "KiB", 1))
    bandwidth: Number = field(
        metadata=number(
            "bytes that the NPU reads in a cycle, or the CPU where there is no NPU or it cannot", "bytes/cycle", 0.01
        )
    )
    latency: Number = field(metadata=number("cycles from a request to its first byte", "cycles"))
    alignment: Number = field(metadata=count("alignment of buffers", "bytes"))
    readers: Words = field(metadata=words("who reads it", NPU, CPU, HOST))
    writers: Words = field(metadata=words("who writes it", NPU, CPU, HOST))
    section: str = ""
    """The linker's section for the memory, such as ``.dtcm``; empty: that of other variables or constants."""


SYNCHRONOUS, BACKGROUND = "synchronous", "background"


@dataclass(frozen=True, slots=True)
class CopyEngine:
    """A hardware unit or a core that copies from one memory to another. ``source`` and ``destination`` are the names of
    the memories."""

    name: str
    source: str
    destination: str
    channels: Number = field(metadata=count("copies that can be under way"))
    mode: Words = field(metadata=word("whether the host waits for a copy", SYNCHRONOUS, BACKGROUND))
    rate: Number = field(metadata=number("bytes copied in a cycle of the NPU", "bytes/cycle", 0.001))


@dataclass(frozen=True, slots=True)
class Host:
    """The core that runs the driver and the operators on the CPU."""

    core: str
    clock: Number = field(metadata=number("clock", "MHz", 1))
    operator_cycles: Number = field(metadata=number("cycles of the host for each operator on it", "cycles"))
    softmax_cycles: Number = field(metadata=number("cycles of the host for each value of a SOFTMAX", "cycles/element"))
    conversion_cycles: Number = field(
        metadata=number("cycles of the host for each value of a QUANTIZE or DEQUANTIZE", "cycles/element")
    )


@dataclass(frozen=True, slots=True)
class Costs:
    """Constants of the cost model (compiler/cost/cycles.py)."""

    issue_cycles: Number = field(metadata=number("the host core's cycles for each kernel call", "cycles"))
    fill_cycles: Number = field(
        metadata=number("cycles in which a pipeline fills, at each tap of a convolution's window", "cycles")
    )
    depthwise_macs: Number = field(metadata=count("multipliers of a pipeline that work in a depthwise convolution"))
    elementwise_bytes: Number = field(
        metadata=number("bytes of output of kernels that only move or rescale values", "bytes/cycle", 1, is_whole=True)
    )
    softmax_cycles: Number = field(
        metadata=number("cycles of a pipeline for each value of a softmax", "cycles/element")
    )
    error: Number = field(
        metadata=number(
            "the largest difference of a modelled latency from a measured one, in parts of the latter", "%", most=99
        )
    )


PORT_NAMES = ("", "cortex_m33", "zephyr", "mcuxpresso", "mcxn947", "cmake", "arduino", "cmsis-pack", "esp-idf")
"""The values of a chip's C port: the names of the forms in ``openneutron.features.export.FORMS`` with this project's driver, or an empty text for a chip without a port."""


@dataclass(frozen=True, slots=True)
class Port:
    """The C port for the chip's host core. ``name`` is a value of ``openneutron export --for``, or empty for a chip without a port."""

    name: str
    boards: tuple[str, ...]


NEUTRON_C, NEUTRON_S, CORE = "Neutron-C", "Neutron-S", "CPU"
FAMILIES = (NEUTRON_C, NEUTRON_S, CORE)
"""Neutron-C: the host issues every kernel call. Neutron-S: the NPU has a controller, a memory of its own and a data mover. CPU: there
is no NPU, and the processor runs the kernels."""

GENERATIONS = ("N1", "N3")


@dataclass(frozen=True, slots=True)
class Target:
    """A chip with a Neutron NPU, or a CPU that runs the kernels itself.

    ``limits`` are the limits of NXP's own converter, with their names; this compiler has limits of its own (docs/supported-ops.md).
    ``cpu`` is None where there is an NPU. Where there is none, ``npu`` and ``costs`` are ``Cpu.as_npu`` and ``Cpu.as_costs``. ``jobs`` is
    None where the NPU's driver takes no matrix products; a CPU with ``jobs`` gives such products to the NPU beside it. ``threads`` is None
    where no threads share a call. ``thread_count`` is the number of threads that the cost model assumes.
    """

    name: str
    title: str
    family: str
    hw_version: str
    npu: Npu
    memories: tuple[Memory, ...]
    copy_engines: tuple[CopyEngine, ...]
    host: Host
    costs: Costs
    port: Port
    limits: tuple[tuple[str, Number], ...] = ()
    cpu: Cpu | None = None
    jobs: Jobs | None = None
    threads: Threads | None = None
    thread_count: int = 1

    # The fields below are derived from those above, for quick access. ``regions`` are the memories that hold activations,
    # ``arena_memory`` is the first of them, and ``sram`` is their size together. ``copy_engine`` copies from ``external_memory`` to it. ``constants_memory`` is the memory
    # where the NPU reads constants that are not copied. ``all_pipelines`` is the number of pipelines of all units,
    # which share the work of a call as the pipelines of one unit do (docs/targets.md). ``step_cycles`` are the
    # cycles, at ``clock``, from one product of every multiplier to the next.
    subsystem: bool = field(init=False, repr=False, compare=False)
    units: int = field(init=False, repr=False, compare=False)
    pipelines: int = field(init=False, repr=False, compare=False)
    macs: int = field(init=False, repr=False, compare=False)
    clock: Number = field(init=False, repr=False, compare=False)
    regions: tuple[Memory, ...] = field(init=False, repr=False, compare=False)
    arena_memory: Memory = field(init=False, repr=False, compare=False)
    sram: Number = field(init=False, repr=False, compare=False)
    copy_engine: CopyEngine = field(init=False, repr=False, compare=False)
    external_memory: Memory = field(init=False, repr=False, compare=False)
    constants_memory: Memory = field(init=False, repr=False, compare=False)
    all_pipelines: int = field(init=False, repr=False, compare=False)
    step_cycles: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        regions = tuple(memory for memory in self.memories if ACTIVATIONS in memory.holds.value)
        arena = regions[0]
        engine = next(engine for engine in self.copy_engines if engine.destination == arena.name)
        outside = [memory for memory in self.memories if memory not in regions]
        derived = {
            "subsystem": self.family == NEUTRON_S,
            "units": int(self.npu.units.value),
            "pipelines": int(self.npu.pipelines.value),
            "macs": int(self.npu.macs.value),
            "clock": self.npu.clock,
            "regions": regions,
            "arena_memory": arena,
            "sram": replace(arena.size, value=sum(memory.size.value for memory in regions)),
            "copy_engine": engine,
            "external_memory": next((memory for memory in outside if memory.name == engine.source), arena),
            "constants_memory": next(filter(self._serves_constants, outside), arena),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "step_cycles", max(1.0, self.step_bytes / arena.bandwidth.value))
        object.__setattr__(self, "all_pipelines", self.units * self.pipelines)

    @property
    def step_bytes(self) -> float:
        """Return the bytes that all units together read in one step, in which every multiplier computes one product.

        The pipelines of a unit share one operand, so that the unit reads it once. Each pipeline has its own weights.
        They are read once for as many steps as the pipeline has accumulators (arXiv 2509.14388).
        """
        return self.units * self.macs * (1 + self.pipelines / self.npu.accumulators.value)

    @property
    def macs_per_cycle(self) -> int:
        """Return the target's peak of multiply-accumulates per cycle: of all units of the NPU, or of all CPU cores
        (at least 1) on a target without an NPU."""
        if self.cpu is not None:
            return max(1, round(self.cpu.cores.value * self.cpu.macs.value))
        return self.units * self.pipelines * self.macs

    @property
    def processor(self) -> str:
        """Return the word for what runs the kernels: ``npu`` or ``cpu``."""
        return NPU if self.cpu is None else CPU

    @property
    def kind(self) -> str:
        """Return the family, with the generation of an NPU, for a reader."""
        return self.family if self.cpu is not None else f"{self.family}, generation {self.hw_version}"

    @property
    def place(self) -> str:
        """Return text that names what runs the operators of a program."""
        return "on the NPU" if self.cpu is None else "in kernels"

    def _serves_constants(self, memory: Memory) -> bool:
        return CONSTANTS in memory.holds.value and self.processor in memory.readers.value

    @property
    def reads_constants_in_place(self) -> bool:
        """Return whether the NPU, or the CPU of a target without an NPU, reads constants where they are stored, in
        another memory than that of activations."""
        return self.constants_memory is not self.arena_memory

    @property
    def constants_home(self) -> Memory:
        """Return the memory that stores the constants between runs. Either the NPU (or the CPU of a target without an
        NPU) reads them there, or a run copies them from there."""
        return self.constants_memory if self.reads_constants_in_place else self.external_memory

    @property
    def moves_tiles(self) -> bool:
        """Return whether kernels work on a memory inside the NPU, so that tensors and constants are copied to it in
        tiles."""
        return self.subsystem

    @property
    def copies_in_background(self) -> bool:
        """Return whether copies to the memory that holds activations run in parallel with kernels."""
        return self.copy_engine.mode.value == (BACKGROUND,)

    @property
    def obstacle(self) -> str | None:
        """Return the reason why this project does not compile for the chip; None where it does."""
        if self.moves_tiles and self.external_memory is self.arena_memory:
            return "has an NPU with a memory of its own, and no copy engine copies to this memory from another one."
        return None

    def with_sram(self, size_kib: float) -> Target:
        """Return the target with ``size_kib`` KiB as the size of the first memory that holds activations. Other
        memories keep their sizes."""
        arena = self.arena_memory
        larger = replace(arena, size=replace(arena.size, value=size_kib))
        return replace(self, memories=tuple(larger if memory is arena else memory for memory in self.memories))

    def facts(self) -> Iterator[tuple[str, Entry, Fact]]:
        """Yield every fact except those in ``limits``: its place, such as ``npu.clock`` or ``memory sram: size``, its
        declaration, and the fact.

        For a CPU without an NPU, the facts of ``cpu`` take the place of those of ``npu`` and ``costs``.
        """
        parts: list[tuple[str, Any]] = [("npu.", self.npu) if self.cpu is None else ("cpu.", self.cpu)]
        parts += [(f"memory {memory.name}: ", memory) for memory in self.memories]
        parts += [(f"copies by {engine.name}: ", engine) for engine in self.copy_engines]
        parts += [("host.", self.host)]
        parts += [("costs.", self.costs)] if self.cpu is None else []
        parts += [("jobs.", self.jobs)] if self.jobs is not None else []
        parts += [("threads.", self.threads)] if self.threads is not None else []
        for place, part in parts:
            for name, entry in entries(type(part)).items():
                yield f"{place}{name}", entry, getattr(part, name)

    @property
    def assumed(self) -> tuple[str, ...]:
        """Return the paths of the facts whose source is an assumption."""
        return tuple(place for place, _, fact in self.facts() if fact.kind == "assumed")

    @property
    def assumption(self) -> str:
        """Return words with the number of assumed facts."""
        return f"{len(self.assumed)} of {sum(1 for _ in self.facts())} facts about {self.name} are assumed"

    def milliseconds(self, cycles: float) -> float:
        """Return the milliseconds of a number of cycles at the clock of the NPU, or of the CPU that runs the kernels."""
        return cycles / (self.clock.value * 1e6) * 1e3
