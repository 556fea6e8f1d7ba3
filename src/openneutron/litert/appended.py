# SPDX-License-Identifier: BSD-3-Clause
"""Zip archives behind the flatbuffer of a ``.tflite``, where TensorFlow Lite's metadata library and Ultralytics keep labels and other
metadata. Readers of the flatbuffer ignore them.

The structure is that of PKWARE's APPNOTE 6.3.10, sections 4.3.7, 4.3.12 and 4.3.16. Archives in the form Zip64, which begin at 4
GiB, are not read.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator

LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
CENTRAL_BYTES, END_BYTES = 46, 22
MOST_COMMENT_BYTES = 0xFFFF


def split(data: bytes) -> tuple[bytes, bytes]:
    """Return the file without the archive at its end, and the archive; empty where there is none."""
    found = _directory(data)
    if found is None:
        return data, b""
    directory, moved = found
    begins = [_offset(data, place) + moved for place in _entries(data, directory)]
    begin = min(begins, default=directory)
    if begin < 0 or (begins and data[begin : begin + len(LOCAL)] != LOCAL):
        return data, b""
    return data[:begin], data[begin:]


def entry(data: bytes, name: str) -> bytes:
    """Return the content of an entry of the archive at the end of a file; empty where the entry is absent or damaged."""
    try:
        with zipfile.ZipFile(io.BytesIO(split(data)[1])) as archive:
            return archive.read(name)
    except (zipfile.BadZipFile, KeyError, NotImplementedError, EOFError, zlib.error):
        return b""


def joined(data: bytes, archive: bytes) -> bytes:
    """Return the file with the archive at its end. The offsets in the archive are from the beginning of the new file."""
    found = _directory(archive)
    if found is None:
        return data + archive
    directory, moved = found
    made = bytearray(archive)
    for place in _entries(archive, directory):
        struct.pack_into("<I", made, place + 42, _offset(archive, place) + moved + len(data))
    struct.pack_into("<I", made, archive.rfind(END) + 16, directory + len(data))
    return data + bytes(made)


def _directory(data: bytes) -> tuple[int, int] | None:
    """Return the place of the central directory, and the number to add to the offsets in the archive; None without an
    archive that ends with the data."""
    place = data.rfind(END, max(0, len(data) - END_BYTES - MOST_COMMENT_BYTES))
    if place < 0 or len(data) < place + END_BYTES:
        return None
    size, offset, comment = struct.unpack_from("<IIH", data, place + 12)
    start = place - size
    if place + END_BYTES + comment != len(data) or start < 0 or (size and data[start : start + 4] != CENTRAL):
        return None
    return start, start - offset


def _entries(data: bytes, directory: int) -> Iterator[int]:
    """Return the places of the entries of the central directory."""
    place = directory
    while data[place : place + len(CENTRAL)] == CENTRAL:
        yield place
        place += CENTRAL_BYTES + sum(struct.unpack_from("<HHH", data, place + 28))


def _offset(data: bytes, place: int) -> int:
    offset: int = struct.unpack_from("<I", data, place + 42)[0]
    return offset
