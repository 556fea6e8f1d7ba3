# SPDX-License-Identifier: BSD-3-Clause
"""The driver's error codes, and sound programs with a change, which it refuses."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from openneutron.device.simulator import Simulator
from openneutron.errors import DriverError
from openneutron.isa import Microcode, Program, Record, decode, encode, record, with_checksum
from openneutron.isa.rows import HEADER

INCLUDE = Path(__file__).parents[2] / "runtime" / "include"


CODES = {
    name: 3 | category << 3 | int(code) << 8
    for name, category, code in (
        (name, index, code)
        for index, kind in enumerate(
            [
                "NONE",
                "GENERIC",
                "UNSUPPORTED",
                "UCODE",
                "INVALID",
                "BAD_HANDLE",
                "NO_MEMORY",
                "INTERNAL_FAULT",
                "UNKNOWN_ARCH",
                "TRACE_NOT_RUN",
                "TIMEOUT",
            ]
        )
        for name, code in re.findall(
            rf"#define ENEUTRON_(\w+) +NEUTRON_DRIVER_ERROR\({kind}, (\d+)\)", (INCLUDE / "NeutronErrors.h").read_text()
        )
    )
}


def refusal(program: Program) -> str:
    """The name of the error that the driver refuses the program with, or ``accepted``."""
    try:
        Simulator(program).close()
    except DriverError as error:
        return next(name for name, code in CODES.items() if code == error.code)
    return "accepted"


def with_word(program: Program, word: int, value: int, checksum: bool = True) -> Program:
    blob = bytearray(program.microcode)
    blob[4 * word : 4 * word + 4] = (value & 0xFFFFFFFF).to_bytes(4, "little")
    changed = dataclasses.replace(program, microcode=bytes(blob))
    return with_checksum(changed) if checksum else changed


def with_header(program: Program, **fields: int) -> Program:
    for name, value in fields.items():
        program = with_word(program, HEADER.places[name], value, checksum=name != "microcode_crc")
    return program


def changed(item: Record, **fields: int) -> Record:
    values = dict(zip((column.name for column in item.row.fields), item.values, strict=True))
    return record(item.row, **{**values, **fields})


def altered(program: Program, change: Callable[[Microcode], dict[str, Any]]) -> Program:
    """The program with some of its records replaced."""
    microcode = decode(program)
    return encode(dataclasses.replace(microcode, **change(microcode)), program.weights)
