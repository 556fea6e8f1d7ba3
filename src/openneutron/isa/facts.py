# SPDX-License-Identifier: BSD-3-Clause
"""The facts that a profile states about each operator of a program: its layer, its module, its source lines, its bytes.

Facts travel in the kernels blob, which the driver does not read: one line for each operator, in the program's order, with
the layer's name, a tab and JSON. The ExecuTorch delegate copies the line into the events that it logs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from openneutron.errors import InvalidProgramError
from openneutron.isa import rows
from openneutron.isa.microcode import Program, aligned, with_checksum

MARK = "facts "
"""Begins the line of an operator; the delegate (runtime/delegate/profile.h) looks for it."""


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """An operator as a profile shows it.

    ``layer`` is the operator's name in the model, ``module`` the path of its PyTorch module, ``operators`` and ``lines`` the
    model's operators and source lines (``net.py:12``) that it computes. ``bytes`` counts the bytes of one run: tensors read
    and written, and constants.
    """

    layer: str
    bytes: int = 0
    module: str = ""
    operators: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()

    def line(self) -> str:
        """Return the line of the kernels blob."""
        rest = {key: value for key, value in asdict(self).items() if key != "layer" and value}
        return f"{MARK}{' '.join(self.layer.split())}\t{json.dumps(rest, separators=(',', ':'))}"

    @classmethod
    def of_line(cls, line: str) -> OperatorFacts:
        """Return the facts of a line. Raises ValueError where it is damaged."""
        layer, tab, rest = line.removeprefix(MARK).partition("\t")
        stated = json.loads(rest) if tab else None
        if not isinstance(stated, dict):
            raise ValueError(line)
        return cls(
            layer,
            int(stated.get("bytes", 0)),
            str(stated.get("module", "")),
            tuple(map(str, stated.get("operators", ()))),
            tuple(map(str, stated.get("lines", ()))),
        )


def event_name(index: int, layer: str) -> str:
    """Return the name that the delegate gives to event ``index`` of a run: unlike all others of the run."""
    return f"{index} {layer}"


def with_facts(program: Program, facts: Sequence[OperatorFacts]) -> Program:
    """Return the program with these facts in place of those it has: one for each operator, or none."""
    assert len(facts) in (0, program.header["operator_count"]), "each operator has its facts"
    kept = [line for line in _lines(program) if not line.startswith(MARK)]
    text = ("\n".join([*kept, *(item.line() for item in facts)]) + "\n").encode()
    words = np.frombuffer(program.microcode, "<u4").copy()
    words[rows.HEADER.index("kernels_size")] = aligned(len(text))
    return with_checksum(Program(words.tobytes(), program.weights, text + bytes(aligned(len(text)) - len(text))))


def facts_of(program: Program) -> tuple[OperatorFacts, ...]:
    """Return the facts of each operator; empty where the program was compiled without profiling.

    Raises InvalidProgramError where they are damaged, or are not those of the program's operators.
    """
    lines = [line for line in _lines(program) if line.startswith(MARK)]
    count = program.header["operator_count"]
    if lines and len(lines) != count:
        raise InvalidProgramError(
            f"program: it has {count} operators and the facts of {len(lines)}. Compile the model again."
        )
    try:
        return tuple(map(OperatorFacts.of_line, lines))
    except (ValueError, TypeError) as error:
        raise InvalidProgramError("program: its facts for profiles can't be read. Compile the model again.") from error


def _lines(program: Program) -> list[str]:
    return program.kernels.rstrip(b"\0").decode("utf-8", "replace").split("\n")[:-1]
