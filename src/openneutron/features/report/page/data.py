# SPDX-License-Identifier: BSD-3-Clause
"""The data of a report, from which the page, the pictures and the output of ``--json`` are made.

Sizes are bytes. Times and cycles are modelled. A *layer* is a kernel call of the NPU, in the order of execution.
Layers, buffers and nodes of the graph refer to each other by their index in their list.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from openneutron.compiler.cost.estimate import Loss
from openneutron.device.cache import record, value_of
from openneutron.errors import InvalidModelError
from openneutron.features.report.advice import Advice, BudgetPoint
from openneutron.litert.read import split_archive, with_archive

VERSION = 3
"""The version of the format of the data. Data of another version is rejected."""


@dataclass(frozen=True, slots=True)
class TargetData:
    """The chip, with the constants of the cost model that the roofline shows.

    ``pipelines`` is the number of pipelines of all cores, ``macs`` the number of multipliers of one pipeline; both
    are 0 in reports of earlier versions. ``constants_from`` is the memory from which constants are copied.
    ``copies_beside`` is True if copies run in parallel to the kernels. ``place`` states where the operators of a
    program run: on the NPU, or in the kernels of a CPU.
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
    place: str = "on the NPU"


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
    hangs_on: str
    utilisation: float
    peak_sram_bytes: int
    total_sram_bytes: int
    sram_budget_bytes: int
    weights_bytes: int
    microcode_bytes: int
    weights_fit_sram: bool
    file_bytes: int | None = None
    cpu_calls: int = 0
    cpu_call_cycles: int = 0
    cpu_call_macs: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """A line of text with its label, such as a line of the summary."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition, which is one delegate call. ``copy_cycles`` is the part of ``cycles`` in which constants are
    copied. ``implied_copy_cycles`` is the part of ``copy_cycles`` for copies that the program does not contain. The
    chip needs these copies because its SRAM does not hold the weights."""

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
    """A kernel call with its modelled cost.

    ``cycles`` = ``compute_cycles`` + ``memory_cycles`` + ``dispatch_cycles``. ``copy_cycles``, for copies of the
    call's constants, is not included. ``expected_milliseconds`` is the range of the estimate
    ``modelled_milliseconds``. ``hangs_on`` is the entry of the chip's file that contributes most to this range, such
    as ``costs.issue_cycles``. ``node`` is the compiler's name of the call, and ``name`` the readable one, with the
    module's path. The other fields are those of ``explain --json``.
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
    on_cpu: str = ""
    modelled_milliseconds: float = 0.0
    expected_milliseconds: tuple[float, ...] = (0.0, 0.0)
    hangs_on: str = ""


def unit_name(partition: int) -> str:
    """Return the name of a partition in a page. ``partition`` is its index."""
    return f"NPU {partition}"


TENSOR, ROLLING, CONSTANTS = "tensor", "rolling buffer", "copied constants"
"""The kinds of buffers."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer at addresses ``offset`` to ``offset + size_bytes`` of its partition's memory. If the memory has
    several regions, the addresses of a region follow those of the regions before it. The buffer is live in steps
    ``first`` to ``last`` of its partition.

    A rolling buffer holds ``rows_held`` of the ``rows`` of its tensor; both are 0 for other buffers.
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
    """A step of a partition: its layers, its number of iterations ``times``, its first cycle and its cycles.

    ``live_bytes`` is the number of bytes of the partition's memory, in all regions, that hold values in the step.
    Bytes that an operand and an in-place result share count once.
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
    """A node of the graph: an input, an output or an operator. Nodes are in the order of execution; ``inputs`` are
    the indices of the nodes that the node reads.

    An operator in a partition is a kernel call, and ``layer`` its index in the list of layers. ``reason`` states why
    an operator is on the CPU. If such an operator is in a partition, the host core makes its kernel call. A partition
    whose kernel calls are unknown is one node without a layer.
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
    """Operators that stay on the CPU for one reason. ``border_bytes`` is the number of bytes that a run transfers
    between these operators and the NPU. The model has ``calls`` delegate calls; it would have ``calls_without`` if
    these operators were on the NPU. A value that is not known is None."""

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
    """The signal-to-quantization-noise ratio of a tensor against the float model, in dB; None where it was not
    measured.

    For ``local_db`` only this layer is quantized, for ``accumulated_db`` all layers before it too. ``name`` is that of
    a layer (``Layer.name``) or of an operator on the CPU. ``saturated`` is the share of values that are clamped to the
    ends of the quantized range.
    """

    name: str
    accumulated_db: float | None = None
    local_db: float | None = None
    saturated: float | None = None


class Measured(Protocol):
    """The accuracy of a layer as ``openneutron.accuracy`` measures it. The attributes are those of LayerAccuracy, but
    ``name`` may also be a module path or a node."""

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
    """The data of a report on the compile of a model. ``pareto``, ``advice`` and ``accuracy`` are empty where they were
    not computed. ``sections`` has the data of further sections by key (``page.SECTIONS``)."""

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
        """Return the data as values for JSON. ``from_dict`` is the inverse: ``from_dict(data.to_dict(), subject) ==
        data``."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        sections: dict[str, Any] = plain.pop("sections")
        return plain | sections

    def section(self, key: str) -> tuple[Any, ...]:
        """Return the items of the section with this key; an empty tuple if there are none."""
        return self.sections.get(key, ())

    def milliseconds(self, cycles: float) -> float:
        """Return the estimated time of ``cycles`` in milliseconds: the modelled latency, multiplied by the share of
        ``cycles`` in all modelled cycles. The result is 0 if there are no modelled cycles."""
        whole = self.figures.modelled_cycles
        return self.figures.modelled_milliseconds * cycles / whole if whole else 0.0


def from_dict(values: Any, subject: str) -> ReportData:
    """Return the report data from ``values``, the result of ``to_dict()``. Raises InvalidModelError, which names
    ``subject``, for values that are damaged or of another version."""
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
    """Return a compiled file with the report data appended: the compressed JSON, its length and ``MARK``. If the file
    ends with a ZIP archive, the data is inserted before the archive. Equal arguments give equal bytes."""
    packed = zlib.compress(json.dumps(data.to_dict(), separators=(",", ":")).encode(), 9)
    body, archive = split_archive(file)
    return with_archive(b"".join((body, packed, len(packed).to_bytes(LENGTH_BYTES, "little"), MARK)), archive)


def facts_of(file: bytes, name: str) -> ReportData:
    """Return the report data inside a compiled file.

    Raises InvalidModelError, which calls the file ``name``, where the file has no data, or the data is damaged or of
    another version.
    """
    file, _ = split_archive(file)
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
    """Return whether a compiled file has report data inside."""
    return split_archive(file)[0].endswith(MARK)
