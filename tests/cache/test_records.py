# SPDX-License-Identifier: BSD-3-Clause
"""An entry with a right checksum whose JSON has another form counts as absent."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from openneutron.compiler import Compiled, compile_graph
from openneutron.device import cache as stored
from openneutron.device.cache import LENGTH_BYTES
from tests.support import oracle, random_graphs


@cache
def made() -> Compiled:
    return compile_graph(random_graphs.single("conv_2d", 1), oracle.TARGET)


def entry(header: bytes, blobs: bytes) -> bytes:
    return len(header).to_bytes(LENGTH_BYTES, "little") + header + blobs


def parts() -> tuple[dict[str, Any], bytes]:
    data = stored.written_compiled(made())
    end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
    return json.loads(data[LENGTH_BYTES:end]), data[end:]


@pytest.mark.parametrize(
    "header",
    [b"[]", b"null", b"1", b'"x"', b"{}", b"[" * 100_000, b'{"a":' * 100_000, b'{"sizes": null}', b"\xff", b"1e999"],
)
def test_json_of_another_form(header: bytes) -> None:
    assert stored.read_compiled(entry(header, parts()[1]), made().graph) is None
    assert stored.read_front(header) is None


def test_a_field_of_another_type() -> None:
    facts, blobs = parts()
    right_one = stored.read_compiled(entry(json.dumps(facts).encode(), blobs), made().graph)
    assert right_one is not None and right_one.report == made().report
    for name, right in facts["report"].items():
        for wrong in (None, "x", {}, 1, 1.5, [[]], [{"name": 3}]):
            same = type(wrong) is type(right) or (right is None and wrong == 1)
            if same or (name in ("milliseconds", "utilisation") and wrong == 1) or (wrong is None and right is None):
                continue
            if wrong is None and name in ("used_bytes", "gained_cycles"):
                continue
            changed = {**facts, "report": {**facts["report"], name: wrong}}
            assert stored.read_compiled(entry(json.dumps(changed).encode(), blobs), made().graph) is None, (name, wrong)


def test_sizes_that_are_not_those_of_the_blobs() -> None:
    facts, blobs = parts()
    for sizes in ([-1, -1, -1], [1 << 60, 0, 0], [0], [0, 0, 0, 0], ["x", 0, 0]):
        assert stored.read_compiled(entry(json.dumps({**facts, "sizes": sizes}).encode(), blobs), made().graph) is None
