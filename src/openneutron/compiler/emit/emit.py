# SPDX-License-Identifier: BSD-3-Clause
"""Emit programs from schedules and layouts."""

from __future__ import annotations

import math
from collections.abc import Mapping

from openneutron.compiler.cost.cycles import fetch_cycles
from openneutron.compiler.emit.packing import Packed, Weights, packed, state_record
from openneutron.compiler.place.layout import Layout
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
from openneutron.compiler.select.calls import KernelCall, Storages, View
from openneutron.compiler.select.states import state_bytes
from openneutron.ir import Graph
from openneutron.isa import Microcode, Program, Record, aligned, base, encode, record
from openneutron.isa.microcode import PROFILE_EVENT_BYTES, OperatorFacts, with_facts
from openneutron.isa.rows import BINDING, BUFFER, INSTRUCTION_BY_NAME
from openneutron.targets import Target, checksum

NAME_LENGTH = 40
"""The length to which a program cuts the names of its operators. They are for listings and profiles only."""


def short_name(name: str) -> str:
    """Return a node's name for listings: the last part of a fused name, cut from the front."""
    return _last_name(name)[-NAME_LENGTH:]


def _last_name(name: str) -> str:
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

    With ``profile``, the program has a profile buffer and facts about each operator. ``known``: constants that are
    packed already.
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
        names=tuple(short_name(call.name) for call in schedule.calls),
        states=tuple(state_record(state, storages, weights) for state in graph.states),
        state_size=state_bytes(graph),
    )
    program = encode(microcode, bytes(weights.blob))
    return with_facts(program, [_facts(call) for call in schedule.calls]) if profile else program


def _facts(call: KernelCall) -> OperatorFacts:
    """Return the name of a call and the bytes that it reads and writes. Each byte counts once; a table counts only
    the entries that the call reads."""
    kept = call.traits.copied_by_kernel
    views = (call.views["output" if name in kept else name] for name in call.views)
    read = sum(
        math.prod(extent for extent, pitch in zip(view.extents, view.pitches, strict=True) if pitch or extent == 1)
        for view in views
    )
    return OperatorFacts(_last_name(call.name), read + sum(call.packed_bytes().values()))


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
    """Return the name of the storage of input or output number ``position``; ``side`` is "input" or "output"."""
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
