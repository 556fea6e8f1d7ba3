# SPDX-License-Identifier: BSD-3-Clause
"""Microcode that is not ours: whatever else is in it, the first thing said is whose it is."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.device.simulator import Simulator
from openneutron.errors import DriverError, InvalidProgramError
from openneutron.isa import decode, payload
from tests.support.foreign import foreign_payload, foreign_program, refusal

SEEDS = range(20)


@pytest.mark.parametrize("version", [0, 1])
def test_payloads(version: int) -> None:
    for seed in SEEDS:
        with pytest.raises(InvalidProgramError) as caught:
            payload.parse(foreign_payload(version, seed))
        assert str(caught.value) == refusal(foreign_program(version, seed))


def test_programs() -> None:
    for seed in SEEDS:
        program = foreign_program(1, seed)
        for asked in (program.verify, lambda program=program: decode(program)):
            with pytest.raises(InvalidProgramError) as caught:
                asked()
            assert str(caught.value) == refusal(program)


@pytest.mark.parametrize("version", [0, 1])
def test_driver(version: int) -> None:
    for seed in SEEDS:
        with pytest.raises(DriverError, match="this is microcode of another compiler, such as NXP's") as caught:
            Simulator(foreign_program(version, seed))
        assert caught.value.code == 0x1213


def test_only_the_mark_in_the_version_word_counts() -> None:
    """A later format of ours is said to be one, and what has no magic word is no microcode at all."""
    program = foreign_program(1, 0)
    words = np.frombuffer(program.microcode, "<u4").copy()
    for change, message in (
        ({1: 0x4F4E0002}, "its format is 0x4f4e0002; this version reads 0x4f4e0004 alone. Compile the model again."),
        ({0: 0x12345678}, "its first word is 0x12345678; microcode starts with 0x64434d6e."),
    ):
        changed = words.copy()
        for place, value in change.items():
            changed[place] = value
        with pytest.raises(InvalidProgramError) as caught:
            decode(type(program)(changed.tobytes(), program.weights, program.kernels))
        assert str(caught.value) == f"microcode: {message}"
