# SPDX-License-Identifier: BSD-3-Clause
"""Archives behind a flatbuffer: found, moved and kept."""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import Path

import pytest

import openneutron
from openneutron.litert.read import split_archive, with_archive
from tests.support.litert_files import mixed_file

MEMBERS = {"labels.txt": b"cat\ndog\n", "metadata.json": b'{"stride": 32}' * 40}


def archive(before: bytes = b"", comment: bytes = b"") -> bytes:
    """A zip appended to these bytes, as Python's zipfile writes it: offsets are from the beginning."""
    made = BytesIO(before)
    with zipfile.ZipFile(made, "a", zipfile.ZIP_DEFLATED) as file:
        for name, content in MEMBERS.items():
            file.writestr(zipfile.ZipInfo(name), content)
        file.comment = comment
    return made.getvalue()


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(BytesIO(data)) as file:
        assert file.testzip() is None
        return {name: file.read(name) for name in file.namelist()}


@pytest.mark.parametrize("comment", [b"", b"a comment"])
def test_split_and_joined(comment: bytes) -> None:
    body = bytes(range(256)) * 9
    for whole in (archive(body, comment), body + archive(b"", comment)):
        first, second = split_archive(whole)
        assert (first, members(second)) == (body, MEMBERS)
        moved = with_archive(b"other" * 100, second)
        assert moved.startswith(b"other" * 100) and members(moved) == MEMBERS
        assert split_archive(moved)[0] == b"other" * 100
        with zipfile.ZipFile(BytesIO(moved)) as file:
            # The offsets are from the beginning of the file, so that readers that do not look for a shift find the members.
            assert moved[file.infolist()[0].header_offset :].startswith(b"PK\x03\x04")
        assert moved[moved.rfind(b"PK\x05\x06") + 16 :][:4] == moved.find(b"PK\x01\x02").to_bytes(4, "little")


@pytest.mark.parametrize("data", [b"", b"PK\x05\x06", b"x" * 100, archive()[:-1], b"PK\x05\x06" + b"\xff" * 18])
def test_no_archive(data: bytes) -> None:
    assert split_archive(data) == (data, b"")
    assert with_archive(b"body", split_archive(data)[1]) == b"body"


def test_a_compiled_file_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(archive(mixed_file()))
    made = openneutron.compile(path)
    assert members(made.buffer) == MEMBERS
    made.save(tmp_path / "made.tflite")
    assert made.metadata == openneutron.load(tmp_path / "made.tflite").metadata == {}  # its member is no JSON
    stated = BytesIO(mixed_file())
    with zipfile.ZipFile(stated, "a") as file:
        file.writestr("metadata.json", '{"task": "detect", "names": {"0": "cat"}}')
    path.write_bytes(stated.getvalue())
    assert openneutron.compile(path).metadata == {"task": "detect", "names": {"0": "cat"}}
    path.write_bytes(mixed_file())
    assert openneutron.compile(path).buffer == split_archive(made.buffer)[0]
    assert members(made.recompile(io_place="caller").buffer) == MEMBERS
    made.save(tmp_path / "facts.tflite", facts=True)
    stored = (tmp_path / "facts.tflite").read_bytes()
    assert members(stored) == MEMBERS
    from openneutron.features.report.page.data import facts_of, has_facts

    assert has_facts(stored) and facts_of(stored, "facts.tflite").model == "net.tflite"
