# SPDX-License-Identifier: BSD-3-Clause
"""The driver refuses windows and buffers with which a kernel takes longer, or copies elsewhere, than its words state."""

from __future__ import annotations

import dataclasses

import pytest

from openneutron import targets
from openneutron.compiler import compile_graph
from openneutron.isa import Record, decode, encode
from tests.support import programs
from tests.support.altered_programs import changed, refusal
from tests.support.attention_graphs import attention
from tests.support.random_graphs import several

FAR = 2**31 - 8


@pytest.mark.parametrize(("channels", "work", "name"), [(16, 2, "accepted"), (8, 2, "CALL"), (8, 3, "accepted")])
def test_attention_computes_all_scores_for_some_channels(channels: int, work: int, name: str) -> None:
    """Each head has 16 channels, so that ``work`` of twice the keys counts the scores of a window of all channels alone."""
    program = compile_graph(attention(4), targets.get("imxrt700")).program
    code = decode(program)
    (call,) = code.operators
    keys = code.buffers[call["key"]]["rows"]
    assert call["depth"] == code.buffers[call["output"]]["channels"] == 16 and call["work"] == 2 * keys
    ends = {"row0": 0, "row1": FAR, "step": 0, "batch0": 0, "batch1": FAR, "col0": 0, "col1": FAR}
    window = programs.instruction("WINDOW", operator=0, cycles=1, channel0=0, channel1=channels, **ends)
    made = dataclasses.replace(code, operators=(changed(call, work=work * keys),), code=(window, programs.END))
    assert refusal(encode(made, program.weights)) == name


def test_a_move_is_between_two_memories() -> None:
    """A transfer in one memory could overlap itself, which no port's copy promises to bear."""
    program = compile_graph(several(0), targets.get("imx95").with_sram(8)).program
    code = decode(program)
    at = next(place for place, operator in enumerate(code.operators) if operator.row.name == "move_s8")
    move = code.operators[at]

    def altered(operator: Record) -> str:
        operators = (*code.operators[:at], operator, *code.operators[at + 1 :])
        return refusal(encode(dataclasses.replace(code, operators=operators), program.weights))

    assert altered(move) == "accepted"
    assert altered(changed(move, input=move["output"])) == "CALL"
    assert altered(changed(move, channel=16)) == "CALL"
