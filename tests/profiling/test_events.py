# SPDX-License-Identifier: BSD-3-Clause
"""The metadata of the delegate's events, and what the Inspector is given of them."""

from __future__ import annotations

import struct

import pytest

from openneutron.errors import InvalidOptionError, InvalidProgramError
from openneutron.features.profile import delegate_time_scale_converter, parse_delegate_metadata
from openneutron.features.profile.profile import call_event
from openneutron.isa.rows import KERNEL_BY_NAME

JSON = b'{"bytes":90,"module":"features.0","operators":["aten.conv2d","aten.relu"],"lines":["net.py:12"]}'


def metadata(nanoseconds: int, version: int = 1, facts: bytes = JSON) -> bytes:
    kernel = KERNEL_BY_NAME["conv_2d_s8"].code
    return struct.pack("<BBHIIIQ", 3, version, kernel, 259, 5000, 77, nanoseconds) + facts


def test_the_parser_gives_the_facts_and_the_mean_time_of_the_runs() -> None:
    assert parse_delegate_metadata([metadata(2000), metadata(4000)]) == {
        "module": "features.0",
        "source": "net.py:12",
        "operators": "aten.conv2d, aten.relu",
        "kernel": "conv_2d_s8",
        "npu_cycles": 5000,
        "host_us": 3.0,
        "bytes": 90,
    }


def test_an_event_has_the_whole_index_of_its_operator() -> None:
    event = call_event(metadata(2000))
    assert event is not None and (event.operator, event.program, event.cycles) == (259, 77, 5000)


def test_metadata_of_other_delegates_are_left_alone() -> None:
    assert parse_delegate_metadata([b"\x03", b""]) == {}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            metadata(0, version=2),
            "event: the version of its metadata is 2; this version reads 1. Run the model again.",
        ),
        (metadata(0, facts=JSON[:9]), "event: its metadata can't be read. Run the model again."),
        (metadata(0, facts=b"\xff"), "event: its metadata can't be read. Run the model again."),
    ],
)
def test_damaged_metadata_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(InvalidProgramError) as raised:
        parse_delegate_metadata([data])
    assert str(raised.value) == message


@pytest.mark.parametrize(("unit", "time"), [("ns", 1e6), ("us", 1e3), ("ms", 1.0), ("s", 1e-3), ("cycles", 324_000)])
def test_cycles_become_times_at_the_clock_of_the_target(unit: str, time: float) -> None:
    assert delegate_time_scale_converter("imxrt700", unit)("0 conv", 324_000) == pytest.approx(time)


def test_an_unknown_time_scale_is_refused() -> None:
    with pytest.raises(InvalidOptionError) as raised:
        delegate_time_scale_converter(time_scale="hours")
    assert str(raised.value) == "time_scale: 'hours' is unknown; it is one of ns, us, ms, s, cycles."
