# SPDX-License-Identifier: BSD-3-Clause
"""The data of a report: one tree of values, of which the page, the pictures and ``--json`` are made.

Sizes are bytes, times and cycles are modelled. A *layer* is a kernel call of the NPU, in the order of execution; layers,
buffers and nodes of the graph are named by their position in their list.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from openneutron.compiler.cost.losses import Loss
from openneutron.device.cache import record, value_of
from openneutron.errors import InvalidModelError
from openneutron.features.report.advice import Advice, BudgetPoint

VERSION = 2
"""The version of the data's form; data of another version is refused."""


@dataclass(frozen=True, slots=True)
class TargetData:
    """The chip, with the constants of the cost model that the roofline shows.

    ``pipelines`` are those of all cores, ``macs`` the multipliers of one of them; 0 in reports of earlier versions.
    ``constants_from`` is the memory that constants are copied from, and ``copies_beside`` states that copies run beside the kernels.
    """

    name: str
    title: str
    clock_mhz: float
    macs_per_cycle: int
    sram_bytes: int
    moved_bytes_per_cycle: float
    flash_bytes_per_cycle: float
    pipelines: int = 0
    macs: int = 0
    constants_from: str = "flash"
    copies_beside: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of the whole model, under the names of ``compile --json``."""

    operators: int
    operators_on_npu: int
    whole: bool
    macs: int
    macs_on_cpu: int
    modelled_cycles: int
    npu_cycles: int
    copy_cycles: int
    host_cycles: int
    host_operators_not_modelled: int
    is_on_cpu: bool
    overlapped_cycles: int
    modelled_milliseconds: float
    expected_milliseconds: tuple[float, ...]
    utilisation: float
    peak_sram_bytes: int
    total_sram_bytes: int
    sram_budget_bytes: int
    weights_bytes: int
    microcode_bytes: int
    weights_fit_sram: bool
    file_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the summary in words."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Partition:
    """A delegate call. ``copy_cycles`` are those of ``cycles`` that copies of constants take; ``implied_copy_cycles`` of these
    are copies that the chip needs and that the program does not make, since the SRAM does not hold the weights."""

    name: str
    cycles: int
    copy_cycles: int
    implied_copy_cycles: int
    sram_bytes: int
    arena_bytes: int
    prefetch_bytes: int
    io_bytes: int
    weights_bytes: int


@dataclass(frozen=True, slots=True)
class Layer:
    """A kernel call with its modelled cost. ``cycles`` = ``compute_cycles`` + ``memory_cycles`` + ``dispatch_cycles``; the cycles
    of the copies of its constants, ``copy_cycles``, come on top.

    ``node`` is the compiler's name of the call, ``name`` the same with the module's path. The other fields are those of
    ``explain --json``.
    """

    partition: int
    name: str
    node: str
    module: str
    kernel: str
    output: tuple[int, ...]
    macs: int
    cycles: int
    compute_cycles: int
    memory_cycles: int
    dispatch_cycles: int
    copy_cycles: int
    stripes: int
    utilisation: float
    parallel: str
    bottleneck: str
    idle: str
    read_bytes: int
    written_bytes: int
    weights_bytes: int
    losses: tuple[Loss, ...] = ()


def unit_name(partition: int) -> str:
    """Return the name of a partition in a page, by its position."""
    return f"NPU {partition}"


TENSOR, ROLLING, CONSTANTS = "tensor", "rolling buffer", "copied constants"
"""The kinds of buffers."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """A piece of SRAM: addresses ``offset`` to ``offset + size_bytes`` in steps ``first`` to ``last`` of its partition.

    A rolling buffer holds ``rows_held`` of the ``rows`` of its tensor.
    """

    partition: int
    name: str
    kind: str
    offset: int
    size_bytes: int
    first: int
    last: int
    rows_held: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a partition: its layers, its iterations, and the cycles from its start to its end.

    ``live_bytes`` are the bytes of the arena that hold values in the step. Where an operator writes its result over its operand,
    these bytes count once.
    """

    partition: int
    kind: str
    layers: tuple[int, ...]
    times: int
    start_cycle: int
    cycles: int
    live_bytes: int


@dataclass(frozen=True, slots=True)
class Peak:
    """The first step of a partition with the most live bytes, and the buffers that are live in it."""

    partition: int
    step: int
    live_bytes: int
    buffers: tuple[int, ...]


INPUT, OUTPUT, ON_NPU, ON_CPU = "input", "output", "npu", "cpu"
"""The kinds of nodes of the graph."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """An operator in the order of execution, with the nodes that it reads.

    On the NPU: a layer and its partition. On the CPU: the reason. A partition without known layers is one node.
    """

    kind: str
    name: str
    operator: str
    inputs: tuple[int, ...]
    partition: int | None = None
    layer: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CpuFallback:
    """Operators that stay on the CPU for one reason. ``border_bytes`` pass between them and the NPU in each run; the model has
    ``calls`` delegate calls, and ``calls_without`` with these operators on the NPU. None: not known."""

    operator: str
    name: str
    count: int
    reason: str
    suggestion: str
    line: str
    macs: int
    calls: int | None = None
    calls_without: int | None = None
    border_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LayerAccuracy:
    """The signal-to-quantization-noise ratio of a tensor against the float model's, in dB: ``local_db`` with this layer alone
    quantized, ``accumulated_db`` with all layers before it too. None: not measured.

    ``name`` is that of a layer (``Layer.name``) or of an operator on the CPU. ``saturated`` is the share of the values that are
    clamped to the ends of the range.
    """

    name: str
    accumulated_db: float | None = None
    local_db: float | None = None
    saturated: float | None = None


class Measured(Protocol):
    """The accuracy of a layer, as ``openneutron.accuracy`` measures it: the fields of LayerAccuracy. ``name`` may be a
    module path or a node too."""

    @property
    def name(self) -> str: ...
    @property
    def accumulated_db(self) -> float | None: ...
    @property
    def local_db(self) -> float | None: ...
    @property
    def saturated(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class ReportData:
    """A compile of a model as data. ``pareto``, ``advice`` and ``accuracy`` are empty where they were not computed. ``sections`` has
    the data of sections by their keys (``page.SECTIONS``)."""

    model: str
    target: TargetData
    figures: Figures
    summary: tuple[Row, ...] = field(repr=False)
    partitions: tuple[Partition, ...] = field(repr=False)
    layers: tuple[Layer, ...] = field(repr=False)
    buffers: tuple[Buffer, ...] = field(repr=False)
    steps: tuple[Step, ...] = field(repr=False)
    peaks: tuple[Peak, ...] = field(repr=False)
    graph: tuple[GraphNode, ...] = field(repr=False)
    fallbacks: tuple[CpuFallback, ...] = field(repr=False)
    pareto: tuple[BudgetPoint, ...] = field(default=(), repr=False)
    accuracy: tuple[LayerAccuracy, ...] = field(default=(), repr=False)
    advice: tuple[Advice, ...] = field(default=(), repr=False)
    sections: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, repr=False)
    version: int = VERSION

    def to_dict(self) -> dict[str, Any]:
        """Return the data as JSON's types; ``from_dict(data.to_dict()) == data``."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        sections: dict[str, Any] = plain.pop("sections")
        return plain | sections

    def section(self, key: str) -> tuple[Any, ...]:
        """Return the data of a section; an empty tuple where the section found nothing."""
        return self.sections.get(key, ())

    def milliseconds(self, cycles: float) -> float:
        """Return the time of so many cycles at the clock of the target."""
        return cycles / (self.target.clock_mhz * 1e3)


def from_dict(values: Any, subject: str) -> ReportData:
    """Return the data of ``to_dict()``. Raises InvalidModelError, which names ``subject``, for other values."""
    version = values.get("version") if isinstance(values, dict) else None
    if version != VERSION:
        raise InvalidModelError(
            f"'{subject}': its report data has version {version}; this version reads {VERSION}. Compile the model again."
        )
    from openneutron.features.report.page.page import SECTIONS  # here, since sections are made of this data

    items = {each.key: each.item for each in SECTIONS if each.item is not None}
    try:
        sections = {key: value_of(tuple[item, ...], values.get(key, [])) for key, item in items.items()}  # type: ignore[valid-type]
        core = {name: value for name, value in values.items() if name not in items}
        return replace(record(ReportData, core), sections=sections)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidModelError(f"'{subject}': its report data is damaged. Compile the model again.") from error


MARK = b"openneutron facts"
LENGTH_BYTES = 8


def with_facts(file: bytes, data: ReportData) -> bytes:
    """Return a compiled file with the data of its report. The same arguments give the same bytes."""
    packed = zlib.compress(json.dumps(data.to_dict(), separators=(",", ":")).encode(), 9)
    return b"".join((file, packed, len(packed).to_bytes(LENGTH_BYTES, "little"), MARK))


def facts_of(file: bytes, name: str) -> ReportData:
    """Return the data inside a compiled file.

    Raises InvalidModelError, which calls the file ``name``, where it has none, or where the data is damaged.
    """
    end = len(file) - len(MARK) - LENGTH_BYTES
    if not has_facts(file):
        raise InvalidModelError(
            f"'{name}': it was saved without the facts of its compile, which a report shows. Compile the model with --facts "
            "(program.save(path, facts=True)), or make the report of the model itself."
        )
    start = end - int.from_bytes(file[end : end + LENGTH_BYTES], "little")
    try:
        values = json.loads(zlib.decompress(file[max(start, 0) : end]))
    except (zlib.error, ValueError) as error:
        raise InvalidModelError(f"'{name}': the facts of its compile are damaged. Compile the model again.") from error
    return from_dict(values, name)


def has_facts(file: bytes) -> bool:
    """Return whether a compiled file has the data of a report."""
    return file.endswith(MARK)
