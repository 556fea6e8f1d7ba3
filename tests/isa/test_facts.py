# SPDX-License-Identifier: BSD-3-Clause
"""The facts that a program has about its operators for profiles."""

from __future__ import annotations

import dataclasses

import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.errors import InvalidProgramError
from openneutron.ir import Graph, Node
from openneutron.isa import Program, decode
from openneutron.isa.microcode import OperatorFacts, facts_of, with_facts
from tests.support import oracle, programs
from tests.support.embedding_tables import table
from tests.support.excitation_graphs import squeeze_excite
from tests.support.stateful_graphs import small
from tests.support.widened import widened

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


def added(operand: str) -> Graph:
    """Return the sum of x and an operand, of 32 elements each."""
    return small((Node("add", ("x", operand), ("y",), {"activation": "NONE"}),), ("y",), ())


@pytest.mark.parametrize(
    ("graph", "wanted"),
    [
        (added("x"), [32 + 32]),
        (widened(added("x")), [64 + 64]),
        # The image and the result; packed weights, rescalings and a table. The two vectors between are scratch.
        (squeeze_excite(3), [600 + 600 + 1504]),
        # 12 entries of 64 bytes, their indices and the result; then a table for the function, whose output is in place.
        (table(40), [768 + 48 + 768, 768 + 256 + 768]),
    ],
    ids=["one tensor twice", "int16", "scratch", "entries of a table"],
)
def test_each_byte_that_a_call_reads_or_writes_counts_once(graph: Graph, wanted: list[int]) -> None:
    program = compile_graph(graph, oracle.TARGET, CompileOptions(profile=True)).program
    assert [each.bytes for each in facts_of(program)] == wanted
