# SPDX-License-Identifier: BSD-3-Clause
"""Calls with as many elements as the caller has, and an input that counts them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from openneutron.isa.payload import Format, Payload
from tests.support import programs
from tests.support.delegate_calls import Loaded, method

ROWS = 8
PAYLOAD = Payload(
    program=programs.two_ports(((1, 1, ROWS, 8), (1, 1, 2, 8))),
    input_formats=(Format.LEADING, Format.SPAN),
    output_formats=(Format.CONTIGUOUS,) * 2,
    input_map=(0, 1),
    output_map=(0, 1),
    arguments=2,
)


class _Passed(torch.nn.Module):
    """The shapes of a call: the bytes that the program's two inputs get, inverted."""

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return tokens.new_empty((ROWS,)), position.new_empty((2,))


def _loaded(count: int) -> tuple[Loaded, list[torch.Tensor]]:
    """Return a method of ``count`` tokens, and its inputs."""
    inputs = [torch.arange(5, 5 + count).reshape(1, count), torch.tensor([70000])]
    return method(PAYLOAD.compose(), tuple(inputs), _Passed()), inputs


@pytest.mark.parametrize("count", [1, 3, ROWS])
def test_a_call_passes_its_tokens_and_their_span(count: int) -> None:
    loaded, inputs = _loaded(count)
    tokens, span = (~output.numpy() for output in loaded.execute(inputs))
    assert np.array_equal(tokens, [*range(5, 5 + count), *[0] * (ROWS - count)])
    assert span.tolist() == [70000, count]


def test_more_tokens_than_the_program_takes(capfd: pytest.CaptureFixture[str]) -> None:
    loaded, inputs = _loaded(ROWS + 1)
    with pytest.raises(RuntimeError, match="error 0x12"):
        loaded.execute(inputs)
    assert (
        "input 0 has 72 bytes; the program takes 8 to 64. Divide the input among several calls."
        in capfd.readouterr().err
    )


def test_a_position_of_another_type(capfd: pytest.CaptureFixture[str]) -> None:
    inputs = (torch.arange(3), torch.zeros(1, dtype=torch.int32))
    with pytest.raises(RuntimeError, match="error 0x12"):
        method(PAYLOAD.compose(), inputs, _Passed()).execute(list(inputs))
    assert "input 1 has 4 bytes; the program takes one int64." in capfd.readouterr().err


def test_the_counted_input_is_found_by_its_format() -> None:
    """The order of the inputs is free, and so is that of the arguments."""
    program = programs.two_ports(((1, 1, 2, 8), (1, 1, ROWS, 8)))
    turned = dataclasses.replace(
        PAYLOAD, program=program, input_formats=(Format.SPAN, Format.LEADING), input_map=(1, 0), output_map=(1, 0)
    )
    inputs = (torch.arange(3).reshape(1, 3), torch.tensor([9]))
    _tokens, span = method(turned.compose(), inputs, _Passed()).execute(list(inputs))
    assert (~span).tolist() == [9, 3]
