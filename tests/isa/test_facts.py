# SPDX-License-Identifier: BSD-3-Clause
"""The facts that a program has about its operators for profiles."""

from __future__ import annotations

import dataclasses

import pytest

from openneutron.errors import InvalidProgramError
from openneutron.isa import Program, decode
from openneutron.isa.microcode import OperatorFacts, facts_of, with_facts
from tests.support import programs

FACTS = (
    OperatorFacts("features.0/middle", 90, "features.0", ("conv2d (aten.convolution)", "aten.relu"), ("net.py:12",)),
    OperatorFacts("a name with blanks"),
)


def test_facts_come_back_and_the_rest_of_the_program_stays() -> None:
    program = programs.inverted_twice(profile_size=32)
    known = with_facts(program, FACTS)
    known.verify()
    assert facts_of(program) == ()
    assert facts_of(known) == FACTS
    assert decode(known) == decode(program)
    assert with_facts(known, FACTS[::-1]) == with_facts(program, FACTS[::-1])


def changed(program: Program, old: bytes, new: bytes) -> Program:
    assert old in program.kernels and len(old) == len(new)
    return dataclasses.replace(program, kernels=program.kernels.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"facts a", b"Facts a", "program: it has 2 operators and the facts of 1. Compile the model again."),
        (b"\t{}", b"\t{,", "program: its facts for profiles can't be read. Compile the model again."),
        (b"\t{}", b" {}", "program: its facts for profiles can't be read. Compile the model again."),
    ],
)
def test_damaged_facts_are_refused(old: bytes, new: bytes, message: str) -> None:
    program = with_facts(programs.inverted_twice(profile_size=32), FACTS)
    with pytest.raises(InvalidProgramError) as raised:
        facts_of(changed(program, old, new))
    assert str(raised.value) == message
