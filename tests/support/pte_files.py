# SPDX-License-Identifier: BSD-3-Clause
"""``.pte`` files with two delegates, built field by field."""

from __future__ import annotations

import struct
from collections.abc import Callable

import flatbuffers

from openneutron.device import pte

PAYLOADS = (b"first payload", b"another one, longer")


def table(builder: flatbuffers.Builder, *fields: tuple[int, Callable[[int], None]]) -> int:
    builder.StartObject(8)
    for index, put in fields:
        put(index)
    return int(builder.EndObject())


def vector(builder: flatbuffers.Builder, offsets: list[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def pte_file(in_segments: bool, backend: str = pte.BACKEND_ID) -> bytes:
    """A program with two delegates, built field by field as program.fbs has them."""
    b = flatbuffers.Builder(256)

    def offset(target: int) -> Callable[[int], None]:
        return lambda index: b.PrependUOffsetTRelativeSlot(index, target, 0)

    def number(kind: str, value: int) -> Callable[[int], None]:
        put = {"b": b.PrependInt8Slot, "I": b.PrependUint32Slot, "Q": b.PrependUint64Slot}[kind]
        return lambda index: put(index, value, 0)

    data, segments, delegates, start = [], [], [], 0
    for place, content in enumerate(PAYLOADS):
        if in_segments:
            segments.append(table(b, (0, number("Q", start)), (1, number("Q", len(content)))))
            start += len(content)
        else:
            data.append(table(b, (0, offset(b.CreateByteVector(content)))))
        reference = table(b, (0, number("b", int(in_segments))), (1, number("I", place)))
        name = b.CreateString(backend)
        delegates.append(table(b, (0, offset(name)), (1, offset(reference))))
    method, listed = b.CreateString("forward"), vector(b, delegates)
    plan = table(b, (0, offset(method)), (7, offset(listed)))
    plans, inline, behind = vector(b, [plan]), vector(b, data), vector(b, segments)
    root = table(b, (1, offset(plans)), (3, offset(inline)), (4, offset(behind)))
    # ExecuTorch puts its extended header between the identifier and the rest: here, room for it is left at the front.
    b.Finish(root, pte.FILE_IDENTIFIER)
    flat = bytes(b.Output())
    room = 32
    size = len(flat) + room
    base = size if in_segments else 0
    header = pte.EXTENDED_HEADER + struct.pack("<IQQQ", 32, size, base, start)
    moved = struct.pack("<I", struct.unpack_from("<I", flat)[0] + room) + flat[4:8] + header + flat[8:]
    return moved + (b"".join(PAYLOADS) if in_segments else b"")
