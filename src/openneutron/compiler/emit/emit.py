# SPDX-License-Identifier: BSD-3-Clause
"""Emit programs from schedules and layouts, and pack their constants in the layouts that kernels read.

There is a function for each packing of constants. Channels that only fill up the last vector are 0. ``Weights`` joins packed constants
to the weights blob.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.compiler.cost.cycles import fetch_cycles
from openneutron.compiler.place.place import Layout
from openneutron.compiler.schedule.schedule import (
    Fetch,
    Loop,
    Rows,
    Schedule,
    Step,
    Wait,
    Whole,
    constant_operands,
    part_cycles,
    spent_on_calls,
)
from openneutron.compiler.select.calls import Array, Constant, JobWeights, KernelCall, Maps, Storages, View, state_bytes
from openneutron.device import neutron_jobs as jobs
from openneutron.ir import Graph, State
from openneutron.isa import Microcode, Program, Record, aligned, base, encode, record
from openneutron.isa.kernels.row import Packing
from openneutron.isa.microcode import PROFILE_EVENT_BYTES, OperatorFacts, with_facts
from openneutron.isa.rows import BINDING, BUFFER, INSTRUCTION_BY_NAME, LANES, NO_SOURCE, STATE
from openneutron.targets import Target, checksum


@dataclass(slots=True)
class Weights:
    """The weights blob: packed constants one after the other. Equal constants are stored once; ``known`` has the offset
    of each."""

    blob: bytearray = field(default_factory=bytearray)
    known: dict[bytes, int] = field(default_factory=dict)

    def add(self, content: bytes) -> int:
        if content not in self.known:
            self.known[content] = len(self.blob)
            self.blob += content
            self.blob += bytes(aligned(len(content)) - len(content))
        return self.known[content]


def state_record(state: State, storages: Storages, weights: Weights) -> Record:
    """Return the microcode's record of a state: its address, and its first value, either as one repeated byte or as
    bytes among the constants."""
    storage = storages.storages[state.tensor]
    first = bytes(storage.size_bytes) if state.initial is None else state.initial.tobytes()
    fill = first[0] if first else 0
    is_filled = first.count(fill) == len(first)
    source = NO_SOURCE if is_filled else weights.add(first)
    return record(
        STATE, offset=storage.state or 0, size=storage.size_bytes, source=source, fill=fill if is_filled else 0
    )


def _little_endian(array: Array) -> bytes:
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _padded_to_lanes(array: Array, axis: int) -> Array:
    missing = -array.shape[axis] % LANES
    if not missing:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, missing)
    return np.pad(array, widths)


def _weight_blocks(weights: npt.NDArray[np.int8]) -> bytes:
    padded = _padded_to_lanes(_padded_to_lanes(weights, 0), 3)
    outputs, height, width, inputs = padded.shape
    blocks = padded.reshape(outputs // LANES, LANES, height, width, inputs // LANES, LANES)
    return blocks.transpose(0, 2, 3, 4, 1, 5).tobytes()


def _channel_blocks(weights: npt.NDArray[np.int8]) -> bytes:
    padded = _padded_to_lanes(weights, 0)
    outputs, height, width, _ = padded.shape
    return padded.reshape(outputs // LANES, LANES, height, width).transpose(0, 2, 3, 1).tobytes()


def _requantization(table: npt.NDArray[np.int32]) -> bytes:
    lanes = -(-table.shape[1] // LANES)
    return _little_endian(_padded_to_lanes(table, 1).reshape(len(table), lanes, LANES).transpose(1, 0, 2))


def _maps(maps: Maps) -> bytes:
    return _little_endian(maps.rows) + _little_endian(maps.cols)


def _job_weights(weights: JobWeights) -> bytes:
    outputs, inputs = weights.values.shape
    form = jobs.release(weights.release)
    ends = np.cumsum(weights.parts).tolist()
    if weights.int4 is not None:
        wide = weights.int4.of_channels(weights.channels)
        return b"".join(_int4(wide.columns(end - k, end), form) for k, end in zip(weights.parts, ends, strict=True))
    padded = np.pad(weights.values, ((0, weights.channels - outputs), (0, weights.inputs - inputs)))
    parts = np.split(padded, ends[:-1], axis=1)
    return b"".join((jobs.pack_int8(part) if form.int8_packed else part).tobytes() for part in parts)


def _int4(weights: jobs.Int4Weights, form: jobs.Release) -> bytes:
    """Return the int4 weights of a job, with the length of each of its raw blocks behind them."""
    channels, k = weights.codes.shape
    block = form.block(k, weights.group)
    arrays = weights.packed(form.int4_interleaved)
    lengths = np.full(channels // block, block * k // 2, np.int32)
    made = b"".join(_little_endian(arrays[name]) for name in ("weights", "decode_scales", "decode_biases"))
    return (made + _little_endian(lengths)).ljust(jobs.int4_bytes(channels, k, weights.group), b"\0")


PACKERS: Mapping[Packing, Callable[[Any], bytes]] = {
    Packing.AS_IT_IS: _little_endian,
    Packing.WEIGHT_BLOCKS: _weight_blocks,
    Packing.CHANNEL_BLOCKS: _channel_blocks,
    Packing.REQUANTIZATION: _requantization,
    Packing.WIDE_REQUANTIZATION: _requantization,
    Packing.JOB_WEIGHTS: _job_weights,
    Packing.MAPS: _maps,
}


Packed = dict[tuple[int, Packing], bytes]
"""The packed bytes of constants, by the identity of the constant and the packing."""


def packed(call: KernelCall, known: Packed | None = None) -> dict[str, bytes]:
    """Return the packed bytes of each constant of a call, by name.

    Newly packed constants are added to ``known``, whose keys are the identities of constants. So the constants must
    stay alive as long as ``known``.
    """
    return {key: packed_constant(call.packing(key), constant, known) for key, constant in call.constants.items()}


def packed_constant(packing: Packing, constant: Constant, known: Packed | None) -> bytes:
    """Return the packed bytes of a constant. They are taken from ``known`` if they are there; otherwise the constant
    is packed, and the bytes are added to ``known``. If ``known`` is None, nothing is cached."""
    if known is None:
        return PACKERS[packing](constant)
    key = id(constant), packing
    if key not in known:
        known[key] = PACKERS[packing](constant)
    return known[key]


NAME_LENGTH = 40
"""The number of characters of an operator's name that a program has, from the end of the name. Names are for listings and profiles only."""


def _last_name(name: str) -> str:
    """Return the last part of the name of a fused node, whose parts LiteRT's converter joins by semicolons."""
    return name.rsplit(";", 1)[-1]


def emit(
    graph: Graph,
    schedule: Schedule,
    storages: Storages,
    layout: Layout,
    target: Target,
    profile: bool = False,
    known: Packed | None = None,
) -> Program:
    """Return the program that runs the schedule. The same arguments give the same bytes.

    With ``profile``, the program has a profile buffer and facts about each operator. ``known`` caches packed constants
    (see ``packed``).
    """
    weights = Weights()
    buffers: dict[Record, int] = {}
    operators = []
    known = {} if known is None else known
    fetched = {}
    for step in schedule.steps:
        if isinstance(step, Fetch):
            behind = step.destination if schedule.is_tiled else step.destination - layout.scratch_bytes
            in_scratch = behind < 0
            fetched[step.call] = (base("SCRATCH"), step.destination) if in_scratch else (base("PREFETCH"), behind)
    sources: dict[int, tuple[int, int, int, int]] = {}
    for index, call in enumerate(schedule.calls):
        values = dict(call.params)
        operands = {f"%{name}": content for name, content in constant_operands(call, storages).items()}
        constants = {**packed(call, known), **operands}
        if index in fetched:
            # One FETCH brings them all: they must be one piece.
            joined = b"".join(blob + bytes(aligned(len(blob)) - len(blob)) for blob in constants.values())
            sources[index] = (weights.add(joined), len(joined), *fetched[index])
        homes: dict[str, tuple[int, int]] = {}
        word, inside = fetched.get(index, (base("WEIGHTS"), 0))
        for key, blob in constants.items():
            homes[key] = (word, inside) if index in fetched else (word, weights.add(blob))
            inside += aligned(len(blob))
        for name, content in constant_operands(call, storages, kept=True).items():
            homes[f"%{name}"] = base("WEIGHTS"), weights.add(content)
        for stem in call.constants:
            values[f"{stem}_base"], values[f"{stem}_offset"] = homes[stem]
        for name, view in call.views.items():
            buffer = _buffer(view, schedule, storages, homes, layout.homes)
            values[name] = buffers.setdefault(buffer, len(buffers))
        operators.append(record(call.row, **values))
    code: list[Record] = []
    cycles = 0
    for step in schedule.steps:
        records, spent = _instructions(step, schedule, sources, target)
        code += records
        cycles += spent
    code.append(_instruction("END"))
    microcode = Microcode(
        inputs=tuple(_binding(graph, storages, layout, name, i, "input") for i, name in enumerate(graph.inputs)),
        outputs=tuple(_binding(graph, storages, layout, name, i, "output") for i, name in enumerate(graph.outputs)),
        buffers=tuple(buffers),
        operators=tuple(operators),
        code=tuple(code),
        scratch_size=layout.external_bytes if schedule.is_tiled else layout.scratch_bytes,
        prefetch_size=layout.scratch_bytes if schedule.is_tiled else schedule.prefetch_bytes,
        far_size=layout.third_bytes,
        profile_size=sum(runs for runs, _ in spent_on_calls(schedule, target)) * PROFILE_EVENT_BYTES if profile else 0,
        target=checksum(target.name),
        cycles=cycles,
        names=tuple(_last_name(call.name)[-NAME_LENGTH:] for call in schedule.calls),
        states=tuple(state_record(state, storages, weights) for state in graph.states),
        state_size=state_bytes(graph),
    )
    program = encode(microcode, bytes(weights.blob))
    return with_facts(program, [_facts(call, storages) for call in schedule.calls]) if profile else program


def _facts(call: KernelCall, storages: Storages) -> OperatorFacts:
    """Return the name of a call and the bytes that it reads and writes, without scratch. Each byte counts once, also
    where two operands are the same tensor; a table counts only the entries that the call reads."""
    kept = call.traits.copied_by_kernel
    read = sum(call.views["output"].distinct_bytes for name in call.views if name in kept)
    counted = [(name, view) for name, view in call.views.items() if name not in kept and not call.is_scratch(name)]
    # An output in place of an operand is in the same storage, but is read and written.
    seen = {(call.writes(name), storages.of[view.tensor], view.place): view.distinct_bytes for name, view in counted}
    return OperatorFacts(_last_name(call.name), read + sum(seen.values()) + sum(call.packed_bytes().values()))


def _buffer(
    view: View,
    schedule: Schedule,
    storages: Storages,
    constants: Mapping[str, tuple[int, int]],
    homes: Mapping[str, tuple[int, int]],
) -> Record:
    storage = storages[view.tensor]
    home, offset = homes[storage.name] if storage.constant is None else constants[f"%{storage.name}"]
    batches, rows, cols, channels = view.extents
    ring = schedule.rings.get(storage.name, rows)
    return record(
        BUFFER,
        base=home,
        offset=offset + view.offset,
        **dict(zip(("batches", "rows", "cols", "channels"), view.extents, strict=True)),
        batch_pitch=view.pitches[0] if batches > 1 else 0,
        row_pitch=view.pitches[1] if rows > 1 else 0,
        col_pitch=view.pitches[2],
        channel_pitch=view.pitches[3],
        ring=min(ring, rows),
        col0=0,
        cols_held=cols,
        channel0=0,
        channels_held=channels,
    )


def _binding(graph: Graph, storages: Storages, layout: Layout, name: str, position: int, side: str) -> Record:
    home, offset = layout.homes[border(storages, position, side)]
    return record(BINDING, base=home, offset=offset, size=graph[name].size_bytes)


def border(storages: Storages, position: int, side: str) -> str:
    """Return the name of the storage of graph input or output number ``position``; ``side`` is "input" or "output"."""
    return next(name for name, storage in storages.storages.items() if getattr(storage, side) == position)


def _instructions(
    step: Step, schedule: Schedule, sources: dict[int, tuple[int, int, int, int]], target: Target
) -> tuple[list[Record], int]:
    if isinstance(step, Whole):
        cycles = part_cycles(step, schedule.calls[step.call], target)
        # An instruction's word holds 13 seconds at 325 MHz.
        return [_instruction("CALL", operator=step.call, cycles=min(cycles, 2**32 - 1))], cycles
    if isinstance(step, Rows):
        made = _stripe(step, schedule.calls[step.call], target)
        return [made], made["cycles"]
    if isinstance(step, Loop):
        body = [_instructions(part, schedule, sources, target) for part in step.body]
        inside = [item for items, _ in body for item in items]
        words = sum(1 + len(item.values) for item in inside)
        head = _instruction("LOOP", count=step.count, body_words=words)
        return [head, *inside], step.count * sum(cycles for _, cycles in body)
    if isinstance(step, Fetch):
        source, size, word, destination = sources[step.call]
        values = {"source": source, "base": word, "destination": destination, "size": size, "channel": step.channel}
        return [_instruction("FETCH", **values)], fetch_cycles(size, target)
    assert isinstance(step, Wait)
    return [_instruction("WAIT", channel=step.channel)], 0


def _stripe(step: Rows, call: KernelCall, target: Target) -> Record:
    cycles = part_cycles(step, call, target)
    return _instruction("ROWS", operator=step.call, cycles=cycles, row0=step.row0, row1=step.row1, step=step.step)


def _instruction(name: str, **values: int) -> Record:
    return record(INSTRUCTION_BY_NAME[name], **values)
