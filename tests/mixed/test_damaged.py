# SPDX-License-Identifier: BSD-3-Clause
"""Whatever happened to a file's bytes, it compiles, or is refused with a message of ours."""

from __future__ import annotations

from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from openneutron import litert
from openneutron.device.mixed import compile_file
from openneutron.errors import OpenNeutronError
from openneutron.litert.neutron_graph import find
from tests.support.litert_files import mixed_file


@cache
def sound(compiled: bool) -> bytes:
    data = mixed_file(signature=True)
    return compile_file(litert.read(data), "m").to_bytes() if compiled else data


CHANGES = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=5)


@given(st.booleans(), CHANGES)
@settings(max_examples=400, deadline=None)
def test_changed_bytes(compiled: bool, changes: list[tuple[float, int]]) -> None:
    data = bytearray(sound(compiled))
    for place, value in changes:
        data[int(place * len(data))] = value
    try:
        model = litert.read(bytes(data))
        if compiled:
            find(model.model)
        else:
            compile_file(model, "m").to_bytes()
    except OpenNeutronError as error:
        assert str(error).endswith(".")


@given(st.booleans(), st.floats(0, 1, exclude_max=True))
@settings(max_examples=100, deadline=None)
def test_a_file_cut_short(compiled: bool, part: float) -> None:
    data = sound(compiled)
    try:
        find(litert.read(data[: int(part * len(data))]).model)
    except OpenNeutronError as error:
        assert str(error).endswith(".")
