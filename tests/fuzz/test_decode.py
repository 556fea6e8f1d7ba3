# SPDX-License-Identifier: BSD-3-Clause
"""Damaged programs and payloads in Python: a clear error, or something that can be printed."""

from __future__ import annotations

import contextlib
import dataclasses
import random

import numpy as np
import pytest

from openneutron.device import simulator
from openneutron.errors import DriverError, InvalidProgramError
from openneutron.isa import decode, listing, with_checksum
from openneutron.isa.payload import Format, Payload, parse
from tests.support import programs

SEEDS = [programs.inverted_twice(), programs.striped(), programs.through_scratch(), programs.fetched()]
VALUES = [0, 1, 2, 7, 255, 256, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFF0, 0xFFFFFFFF]


MOST_BYTES = 1 << 20
"""A damaged program may ask for 4 GiB of states, which the driver would clear in 9 seconds."""


class LargeMemoryError(Exception):
    """A program that the driver has accepted, and that decodes, asks for more memory than the tests give it."""


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the simulator raise LargeMemoryError in place of an allocation of more than ``MOST_BYTES``."""
    allocate = simulator._aligned

    def allocate_little(size_bytes: int) -> np.ndarray:
        if size_bytes > MOST_BYTES:
            raise LargeMemoryError
        return allocate(size_bytes)

    monkeypatch.setattr(simulator, "_aligned", allocate_little)


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("seed", range(len(SEEDS)))
def test_programs(seed: int) -> None:
    """Whatever decodes can be listed, and whatever the driver accepts decodes."""
    program, chance = SEEDS[seed], random.Random(seed)
    words = len(program.microcode) // 4
    listed = 0
    for _ in range(500):
        blob = bytearray(program.microcode)
        for _ in range(chance.randint(1, 2)):
            at = 4 * chance.randrange(words)
            blob[at : at + 4] = chance.choice([*VALUES, chance.getrandbits(32)]).to_bytes(4, "little")
        damaged = with_checksum(dataclasses.replace(program, microcode=bytes(blob)))
        try:
            with contextlib.suppress(LargeMemoryError):
                simulator.Simulator(damaged).close()
            listing(decode(damaged))
            listed += 1
        except DriverError:
            try:
                listing(decode(damaged))
            except InvalidProgramError:
                continue
        except InvalidProgramError:
            continue
    assert listed > 0


def test_payloads() -> None:
    payload = Payload(SEEDS[2], (Format.CONTIGUOUS,), (Format.CONTIGUOUS,), (0,), (0,), 1)
    blob, chance = payload.compose(), random.Random(1)
    for _ in range(2000):
        damaged = bytearray(blob[: chance.randint(0, len(blob))] if chance.random() < 0.3 else blob)
        for _ in range(chance.randint(0, 3)):
            if damaged:
                damaged[chance.randrange(min(len(damaged), 400))] = chance.choice([0, 1, 2, 127, 255])
        try:
            assert parse(bytes(damaged)).compose() is not None
        except InvalidProgramError:
            continue
