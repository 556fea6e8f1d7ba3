# SPDX-License-Identifier: BSD-3-Clause
"""The ``.pte`` of a language model around a stand-in program, which returns the bytes of its tokens, inverted, as logits."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.isa import Program
from openneutron.language.model import Interface, LanguageModel, found
from openneutron.pytorch.language.package import packaged
from openneutron.pytorch.run.runner import Runner
from tests.support import programs
from tests.support.pte_files import pte_file

ROWS = 8
INTERFACE = Interface(rows=ROWS, context=100, vocabulary=2 * ROWS, begin_token=1, end_tokens=(2, 3))


def _stand_in() -> Program:
    """Return a program whose output is its first input through the table."""
    return programs.program(
        inputs=(programs.binding("INPUT", 0, 8 * ROWS), programs.binding("INPUT", 1, 16)),
        outputs=(programs.binding("OUTPUT", 0, 8 * ROWS),),
        buffers=(programs.dense("INPUT", 0, (1, 1, ROWS, 8)), programs.dense("OUTPUT", 0, (1, 1, ROWS, 8))),
        operators=(programs.lookup(0, 1),),
        code=(programs.call(0), programs.END),
    )


@pytest.fixture(scope="module")
def pte() -> bytes:
    return packaged(_stand_in(), INTERFACE)


@pytest.mark.parametrize("interface", [INTERFACE, Interface(ROWS, 100, 2 * ROWS)])
def test_the_file_states_the_facts(interface: Interface) -> None:
    assert found(packaged(_stand_in(), interface), "m.pte") == (interface, _stand_in())


def test_both_ways_of_a_run_are_the_same(pte: bytes) -> None:
    runner = Runner("m.pte", pte)
    with LanguageModel(pte) as model:
        for tokens in ([5], [7, 8, 9], [*range(ROWS)]):
            (logits,) = runner.run([torch.tensor([tokens]), torch.tensor([4])])
            assert logits.shape == (1, 2 * ROWS)
            assert logits.numpy().tobytes() == model.run(tokens, 4).tobytes()
            assert (~logits.numpy().view(np.int64))[0, : len(tokens)].tolist() == tokens


@pytest.mark.parametrize(
    ("tokens", "position", "message"),
    [
        ([], 0, "'m.pte': a run of 0 tokens; it takes 1 to 8."),
        ([0] * 9, 0, "'m.pte': a run of 9 tokens; it takes 1 to 8."),
        ([0, 1], 99, "'m.pte': 2 tokens from position 99 on; its cache has 100 positions."),
        ([0], -1, "'m.pte': 1 tokens from position -1 on; its cache has 100 positions."),
        ([0, 16], 0, "'m.pte': token 16; its vocabulary has the tokens 0 to 15."),
    ],
)
def test_a_run_that_does_not_fit_is_refused(pte: bytes, tokens: list[int], position: int, message: str) -> None:
    with LanguageModel(pte, "m.pte") as model, pytest.raises(InvalidOptionError, match=f"^{re.escape(message)}$"):
        model.run(tokens, position)


def test_another_pte_is_refused() -> None:
    message = (
        "'m.pte' is no language model of this compiler: it has no method 'get_max_seq_len'. "
        "Make one with openneutron.llm.export."
    )
    with pytest.raises(InvalidModelError, match=f"^{re.escape(message)}$"):
        LanguageModel(pte_file(False), "m.pte")
