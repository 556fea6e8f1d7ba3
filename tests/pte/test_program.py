# SPDX-License-Identifier: BSD-3-Clause
"""Delegate payloads are found in .pte files, and damaged files never lead astray."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openneutron.device import pte
from openneutron.errors import InvalidProgramError
from tests.support.pte_files import PAYLOADS, pte_file


@pytest.mark.parametrize("in_segments", [False, True])
def test_payloads_are_found_wherever_they_lie(in_segments: bool) -> None:
    found = pte.delegates(pte_file(in_segments))
    assert [(item.method, item.backend, item.payload) for item in found] == [
        ("forward", "NeutronBackend", content) for content in PAYLOADS
    ]


def test_other_backends_are_found_too() -> None:
    assert {item.backend for item in pte.delegates(pte_file(False, "XnnpackBackend"))} == {"XnnpackBackend"}


@pytest.mark.parametrize("in_segments", [False, True])
def test_a_truncated_file_says_so(in_segments: bool) -> None:
    data = pte_file(in_segments)
    with pytest.raises(InvalidProgramError) as caught:
        pte.delegates(data[:-5], "m.pte")
    assert str(caught.value) == (
        f"'m.pte': it is {len(data) - 5} bytes; its header says {len(data)}. The file is truncated."
    )


def test_another_file_says_so() -> None:
    with pytest.raises(InvalidProgramError) as caught:
        pte.delegates(b"something else", "m.pte")
    assert str(caught.value) == (
        "'m.pte' is no ExecuTorch program: bytes 4 to 7 are b'thin'; a .pte file has b'ET12' there."
    )


@given(st.booleans(), st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=8))
@settings(max_examples=500, deadline=None)
def test_a_damaged_file_is_read_or_refused(in_segments: bool, changes: list[tuple[int, int]]) -> None:
    data = bytearray(pte_file(in_segments))
    for place, value in changes:
        data[place % len(data)] = value
    try:
        found = pte.delegates(bytes(data))
    except InvalidProgramError:
        return
    assert all(isinstance(item.payload, bytes) for item in found)
