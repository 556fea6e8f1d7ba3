# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import dataclasses
import re

import pytest

from openneutron.errors import InvalidProgramError
from openneutron.isa.payload import Format, Payload, parse
from tests.support import programs

PAYLOAD = Payload(
    program=programs.two_ports(),
    input_formats=(Format.CHANNELS_LAST, Format.CONTIGUOUS),
    output_formats=(Format.CONTIGUOUS, Format.CHANNELS_LAST),
    input_map=(2, 0),
    output_map=(1, 0),
    arguments=3,
)


def test_header_bytes() -> None:
    header = PAYLOAD.compose()[:16]
    assert list(header) == [2, 2, 3, 1, 0, 0, 1, 2, 0, 1, 0, 1, 0, 0, 0, 0]


def test_round_trip() -> None:
    assert parse(PAYLOAD.compose()) == PAYLOAD


def test_every_truncation_is_refused() -> None:
    blob = PAYLOAD.compose()
    used = len(blob)
    for size in range(used):
        with pytest.raises(InvalidProgramError):
            parse(blob[:size])


def test_every_changed_byte_of_the_blobs_is_refused_or_read_the_same() -> None:
    blob = PAYLOAD.compose()
    kernels = len(blob) - len(PAYLOAD.program.kernels)
    for at in range(16, kernels):
        damaged = bytearray(blob)
        damaged[at] ^= 0x10
        with pytest.raises(InvalidProgramError):
            parse(bytes(damaged))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_map": (0, 3)}, "payload: the input map (0, 3) does not fit 3 arguments."),
        ({"output_map": (1, 1)}, "payload: the output map (1, 1) does not fit 2 arguments."),
        (
            {"input_formats": (Format.CONTIGUOUS,)},
            "payload: it has 1 formats and 2 map entries for inputs; its microcode has 2 inputs.",
        ),
        (
            {"arguments": 256},
            "payload: 256 inputs; it has room for 255. Delegate a smaller part of the model.",
        ),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidProgramError, match=f"^{re.escape(message)}$"):
        dataclasses.replace(PAYLOAD, **changes).compose()


def test_an_input_counts_the_elements_of_another_one() -> None:
    made = dataclasses.replace(PAYLOAD, input_formats=(Format.LEADING, Format.SPAN))
    assert parse(made.compose()) == made


@pytest.mark.parametrize("formats", [(Format.SPAN, Format.CONTIGUOUS), (Format.SPAN, Format.SPAN)])
def test_nothing_to_count_is_refused(formats: tuple[Format, ...]) -> None:
    message = (
        "payload: an input counts the elements of another one, and 0 inputs have a number of elements that varies. "
        "Exactly one is needed."
    )
    with pytest.raises(InvalidProgramError, match=f"^{re.escape(message)}$"):
        dataclasses.replace(PAYLOAD, input_formats=formats).compose()


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (3, 4, "payload: it has an input of format 4; 0 to 3 are known."),
        (5, 2, "payload: it has an output of format 2; 0 to 1 are known."),
    ],
)
def test_an_unknown_format_is_refused(at: int, value: int, message: str) -> None:
    blob = bytearray(PAYLOAD.compose())
    blob[at] = value
    with pytest.raises(InvalidProgramError, match=f"^{re.escape(message)}$"):
        parse(bytes(blob))


def test_another_version_is_refused() -> None:
    blob = bytearray(PAYLOAD.compose())
    blob[11] = 0
    with pytest.raises(InvalidProgramError, match="payload: its version is 0; this one reads version 1"):
        parse(bytes(blob))
