# SPDX-License-Identifier: BSD-3-Clause
"""Faults put into the emitted program: the audit finds each, and the compile returns another schedule's right program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from openneutron import targets
from openneutron.compiler import Compiled, CompileOptions, compile_graph, driver
from openneutron.device.simulator import Simulator
from openneutron.errors import BudgetError, CompilerFaultError
from openneutron.ir import Graph
from openneutron.isa import Microcode, Program, Record, decode, encode
from tests.support import oracle, stateful_graphs
from tests.support.hand_made_cascade import three_operators

pytestmark = pytest.mark.without_tiles("each case has its own target")

Change = Callable[[Microcode], Microcode]


def moved(record: Record, **by: int) -> Record:
    """Return a record with other values: each of ``by`` is added."""
    values = (value + by.get(column.name, 0) for column, value in zip(record.row.fields, record.values, strict=True))
    return Record(record.row, tuple(values))


def instruction(name: str, number: int = 0, **by: int) -> Change:
    """Move fields of one of the instructions of a name."""

    def change(code: Microcode) -> Microcode:
        place = [at for at, each in enumerate(code.code) if each.row.name == name][number]
        return dataclasses.replace(
            code, code=(*code.code[:place], moved(code.code[place], **by), *code.code[place + 1 :])
        )

    return change


def in_loop(**by: int) -> Change:
    """Move fields of the first stripe that a loop repeats."""

    def change(code: Microcode) -> Microcode:
        stripes = [each for each in code.code if each.row.name == "ROWS"]
        number = next(at for at, each in enumerate(stripes) if each["step"])
        return instruction("ROWS", number, **by)(code)

    return change


def without(name: str, number: int = 0) -> Change:
    """Leave one of the instructions of a name out, outside of loops or with the length of its loop."""

    def change(code: Microcode) -> Microcode:
        place = [at for at, each in enumerate(code.code) if each.row.name == name][number]
        made = list(code.code)
        for at in range(place - 1, -1, -1):
            if made[at].row.name == "LOOP":
                inside, words = at + 1, made[at]["body_words"]
                while words > 0:
                    words -= 1 + len(made[inside].values)
                    inside += 1
                if place < inside:
                    made[at] = moved(made[at], body_words=-1 - len(made[place].values))
                break
        return dataclasses.replace(code, code=(*made[:place], *made[place + 1 :]))

    return change


def late(name: str) -> Change:
    """Move the last instruction of a name behind all others."""

    def change(code: Microcode) -> Microcode:
        place = max(at for at, each in enumerate(code.code) if each.row.name == name)
        rest = (*code.code[:place], *code.code[place + 1 : -1])
        return dataclasses.replace(code, code=(*rest, code.code[place], code.code[-1]))

    return change


def exchanged(first: int, second: int, *names: str) -> Change:
    """Exchange two instructions that run kernels."""

    def change(code: Microcode) -> Microcode:
        made = list(code.code)
        places = [at for at, each in enumerate(made) if each.row.name in (names or ("CALL", "ROWS"))]
        one, other = places[first], places[second]
        made[one], made[other] = made[other], made[one]
        return dataclasses.replace(code, code=tuple(made))

    return change


def buffer(operator: int, name: str, **by: int) -> Change:
    """Move fields of the buffer of an operator, for this operator alone."""

    def change(code: Microcode) -> Microcode:
        made = moved(code.buffers[code.operators[operator][name]], **by)
        operators = list(code.operators)
        operators[operator] = moved(operators[operator], **{name: len(code.buffers) - operators[operator][name]})
        return dataclasses.replace(code, buffers=(*code.buffers, made), operators=tuple(operators))

    return change


def operator(number: int, **by: int) -> Change:
    """Move fields of an operator."""

    def change(code: Microcode) -> Microcode:
        made = moved(code.operators[number], **by)
        operators = (*code.operators[:number], made, *code.operators[number + 1 :])
        return dataclasses.replace(code, operators=operators)

    return change


def of_another(field: str) -> Change:
    """Give the first operator with constants those of the last one."""

    def change(code: Microcode) -> Microcode:
        having = [at for at, each in enumerate(code.operators) if any(c.name == field for c in each.row.fields)]
        first, last = having[0], having[-1]
        return operator(first, **{field: code.operators[last][field] - code.operators[first][field]})(code)

    return change


def binding(side: str, **by: int) -> Change:
    """Move the place of the first input or output."""

    def change(code: Microcode) -> Microcode:
        first, *rest = getattr(code, side)
        return dataclasses.replace(code, **{side: (moved(first, **by), *rest)})

    return change


def over_its_input(number: int) -> Change:
    """Put the output of an operator, and of its readers, at the address of its input."""

    def change(code: Microcode) -> Microcode:
        output, given = (code.buffers[code.operators[number][name]] for name in ("output", "input"))
        by = given["offset"] - output["offset"]
        made = [
            moved(each, offset=by) if (each["base"], each["offset"]) == (output["base"], output["offset"]) else each
            for each in code.buffers
        ]
        return dataclasses.replace(code, buffers=tuple(made))

    return change


@dataclass(frozen=True, slots=True)
class Case:
    """A graph with the target and the options of its compile; ``share``: the budget over the least one."""

    graph: Graph
    target: str = "imxrt700"
    share: float = 0.0
    options: CompileOptions = CompileOptions()

    def compile(self) -> Compiled:
        options = self.options
        if self.share:
            try:
                compile_graph(self.graph, targets.get(self.target), dataclasses.replace(options, sram_budget=1))
            except BudgetError as error:
                options = dataclasses.replace(options, sram_budget=int(error.least_bytes * self.share))
        return compile_graph(self.graph, targets.get(self.target), options)


CASES = {
    "stripes": Case(three_operators(), share=1.2),
    "whole": Case(three_operators()),
    "prefetch": Case(three_operators(), options=CompileOptions(prefetch_constants=True)),
    "tiles": Case(three_operators(), "imx95", 1.3),
    "state": Case(stateful_graphs.streaming_convolution()),
}

FAULTS: tuple[tuple[str, str, Change], ...] = (
    ("a stripe begins a row late", "stripes", instruction("ROWS", 0, row0=1)),
    ("a stripe ends a row early", "stripes", instruction("ROWS", 0, row1=-1)),
    ("a stripe in a loop is a row off", "stripes", in_loop(row0=1, row1=1)),
    ("the step of a loop is a row too small", "stripes", in_loop(step=-1)),
    ("the step of a loop is a row too large", "stripes", in_loop(step=1)),
    ("a loop ends an iteration early", "stripes", instruction("LOOP", 0, count=-1)),
    ("a stripe is left out", "stripes", without("ROWS", 0)),
    ("a rolling buffer has a row less for all", "stripes", lambda code: _shorter_rings(code)),
    ("a rolling buffer has a row less for its reader", "stripes", buffer(1, "input", ring=-1)),
    ("the rows of a buffer have another pitch", "whole", buffer(1, "input", row_pitch=16)),
    ("the columns of a buffer have another pitch", "whole", buffer(1, "input", col_pitch=-1)),
    ("a buffer begins 16 bytes late", "whole", buffer(2, "input", offset=16)),
    ("a buffer is in another memory", "whole", buffer(1, "input", base=2)),
    ("a buffer has a row less", "whole", buffer(0, "input", rows=-1)),
    ("a result is written over an operand that is still read", "whole", over_its_input(2)),
    ("two calls are exchanged", "whole", exchanged(0, 1)),
    ("a call is left out", "whole", without("CALL", -1)),
    ("weights are those of another call", "whole", of_another("weights_offset")),
    ("requantization is that of another call", "whole", of_another("requant_offset")),
    ("constants begin 16 bytes late", "whole", operator(0, weights_offset=16)),
    ("a zero point is another", "whole", operator(0, input_zero_point=1)),
    ("a stride is another", "whole", operator(1, stride_h=-1)),
    ("an output is at another address", "whole", binding("outputs", offset=16)),
    ("an input is at another address", "whole", binding("inputs", offset=16)),
    ("a WAIT is left out", "prefetch", without("WAIT", -1)),
    ("a WAIT is for another channel", "prefetch", instruction("WAIT", -1, channel=1)),
    ("a FETCH is late", "prefetch", late("FETCH")),
    ("a FETCH is 16 bytes short", "prefetch", instruction("FETCH", -1, size=-16)),
    ("a FETCH reads other constants", "prefetch", instruction("FETCH", -1, source=-16)),
    ("a FETCH writes to another address", "prefetch", instruction("FETCH", -1, destination=-16)),
    ("a WAIT for a tile is left out", "tiles", without("WAIT", 0)),
    ("a WAIT for a tile is for another channel", "tiles", instruction("WAIT", 0, channel=7)),
    ("a load has a row less", "tiles", instruction("ROWS", 0, row1=-1)),
    ("a store is before its kernel", "tiles", exchanged(-1, -2)),
    ("a state is not updated", "state", without("CALL", -1)),
    ("a state is written to another address", "state", buffer(-1, "output", offset=1)),
)


def _shorter_rings(code: Microcode) -> Microcode:
    made = (moved(each, ring=-1) if 1 < each["ring"] < each["rows"] else each for each in code.buffers)
    return dataclasses.replace(code, buffers=tuple(made))


@pytest.mark.parametrize(("kind", "case", "change"), FAULTS, ids=[kind for kind, _, _ in FAULTS])
def test_a_fault_is_found_and_another_program_is_right(
    kind: str, case: str, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    emit, emitted = driver.emit, list[Program]()

    def faulty(*given: Any, **named: Any) -> Program:
        made = emit(*given, **named)
        emitted.append(made)
        if len(emitted) > 1:
            return made
        wrong = encode(change(decode(made)), made.weights)
        assert wrong.microcode != made.microcode, kind
        return wrong

    monkeypatch.setattr(driver, "emit", faulty)
    compiled = CASES[case].compile()
    assert len(emitted) > 1
    (fault,) = compiled.report.faults
    assert "the compiled program is wrong in" in fault and "please report it" in fault
    assert_right(compiled)


def assert_right(compiled: Compiled) -> None:
    """Compare a program with LiteRT, two runs of it where it has states."""
    graph = compiled.graph
    plain, simulator = stateful_graphs.without_states(graph), Simulator(compiled.program)
    held = [np.asarray(state.initial) for state in graph.states]
    for run in range(2):
        given = oracle.random_inputs(graph, run)
        wanted = dict(zip(plain.outputs, oracle.reference_outputs(plain, [*given, *held]), strict=True))
        held = [wanted[state.update] for state in graph.states]
        for name, result in zip(graph.outputs, simulator.run(given), strict=True):
            assert result.tobytes() == wanted[name].tobytes()


def test_a_compile_ends_only_where_all_programs_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of rolling buffers leaves whole tensors, a fault of each program leaves none; without the check it stays."""
    emit, change = driver.emit, [_shorter_rings]

    def faulty(*given: Any, **named: Any) -> Program:
        made = emit(*given, **named)
        return encode(change[0](decode(made)), made.weights)

    monkeypatch.setattr(driver, "emit", faulty)
    small = CASES["stripes"]
    roomy = compile_graph(small.graph, targets.get("imxrt700"), CompileOptions())
    assert not roomy.report.faults
    with pytest.raises(CompilerFaultError, match="the compiled program is wrong in"):
        small.compile()
    change[0] = operator(0, weights_offset=16)  # type: ignore[assignment]
    with pytest.raises(CompilerFaultError, match="other constants lie there"):
        CASES["whole"].compile()
    assert dataclasses.replace(CASES["whole"], options=CompileOptions(check=False)).compile().report.used_bytes is None
