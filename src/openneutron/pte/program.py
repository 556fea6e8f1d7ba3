# SPDX-License-Identifier: BSD-3-Clause
"""The delegate payloads inside a ``.pte`` file, found without ExecuTorch.

A ``.pte`` is a flatbuffer (ExecuTorch's schema/program.fbs) whose payloads lie in it or in segments behind it; the extended
header at byte 8 says where it ends and where the segments begin. Only what leads to the payloads is read here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from openneutron.errors import InvalidProgramError
from openneutron.isa.payload import Payload, parse
from openneutron.pte.flatbuffer import Table

FILE_IDENTIFIER = b"ET12"
EXTENDED_HEADER = b"eh00"
BACKEND_ID = "NeutronBackend"

# Fields of program.fbs by their position in their tables.
PROGRAM_EXECUTION_PLAN = 1
PROGRAM_DELEGATE_DATA = 3
PROGRAM_SEGMENTS = 4
PLAN_NAME = 0
PLAN_DELEGATES = 7
DELEGATE_ID = 0
DELEGATE_PROCESSED = 1
REFERENCE_LOCATION = 0
REFERENCE_INDEX = 1
SEGMENT_OFFSET = 0
SEGMENT_SIZE = 1
INLINE_DATA = 0


@dataclass(frozen=True, slots=True)
class Delegate:
    """A delegate of a method: the backend's id, and the bytes it was given."""

    method: str
    backend: str
    payload: bytes = field(repr=False)


def delegates(data: bytes, name: str = "model.pte") -> list[Delegate]:
    """Return all delegates of the file, method by method; raises InvalidProgramError where it is none or is damaged."""
    if data[4:8] != FILE_IDENTIFIER:
        raise InvalidProgramError(
            f"'{name}' is no ExecuTorch program: bytes 4 to 7 are {data[4:8]!r}; a .pte file has {FILE_IDENTIFIER!r} there."
        )
    segment_base = 0
    if data[8:12] == EXTENDED_HEADER and len(data) >= 32:
        length, program_size, segment_base = struct.unpack_from("<IQQ", data, 12)
        segments_size = struct.unpack_from("<Q", data, 32)[0] if length > 24 and len(data) >= 40 else 0
        stated = max(program_size, segment_base + segments_size)
        if len(data) < stated:
            raise InvalidProgramError(
                f"'{name}': it is {len(data)} bytes; its header says {stated}. The file is truncated."
            )
    try:
        return list(_delegates(Table.root(data), segment_base))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidProgramError(
            f"'{name}' is damaged: its flatbuffer can't be read. Compile the model again."
        ) from error


def _delegates(program: Table, segment_base: int) -> list[Delegate]:
    found = []
    inline, segments = program.tables(PROGRAM_DELEGATE_DATA), program.tables(PROGRAM_SEGMENTS)
    for plan in program.tables(PROGRAM_EXECUTION_PLAN):
        for delegate in plan.tables(PLAN_DELEGATES):
            reference = delegate.table(DELEGATE_PROCESSED)
            index = reference.number(REFERENCE_INDEX, "<I")
            if reference.number(REFERENCE_LOCATION, "<b") == 0:
                payload = inline[index].content(INLINE_DATA)
            else:
                start = segment_base + segments[index].number(SEGMENT_OFFSET, "<Q")
                payload = program.slice(start, segments[index].number(SEGMENT_SIZE, "<Q"))
            method = plan.content(PLAN_NAME).decode()
            found.append(Delegate(method, delegate.content(DELEGATE_ID).decode(), payload))
    return found


def payloads(data: bytes, name: str = "model.pte") -> list[tuple[str, Payload]]:
    """Return the verified payloads of the NeutronBackend delegates, each with a title; empty without such delegates.

    Raises InvalidProgramError where the file or one of its payloads is damaged.
    """
    found = []
    for index, delegate in enumerate(delegates(data, name)):
        if delegate.backend == BACKEND_ID:
            title = f"{delegate.method}, delegate {index}"
            try:
                found.append((title, parse(delegate.payload)))
            except InvalidProgramError as error:
                raise InvalidProgramError(f"'{name}' ({title}): {error}") from error
    return found
