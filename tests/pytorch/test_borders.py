# SPDX-License-Identifier: BSD-3-Clause
"""Inputs and outputs of programs: int8 ones, channels-last ones, several of several types."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from executorch.runtime import Runtime
from torch import nn

from openneutron.api.pytorch import CompiledModel, analyse
from openneutron.options import QuantizationOptions
from tests.pytorch.odd_models import Running


class Mixed(nn.Module):
    """An image, numbers that stay float, indices and a mask; int8, float, integer and bool outputs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.conv = nn.Conv2d(4, 4, 1)

    def forward(
        self, x: torch.Tensor, raw: torch.Tensor, n: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return F.relu(self.conv(x)), torch.topk(raw, 2)[0], n * 2, ~mask, n


class Fork(nn.Module):
    """Two inputs, of which one is read twice, and three outputs of one partition."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        left = F.relu(self.left(x))
        return {"left": left, "both": left + self.right(y), "again": torch.sigmoid(self.right(x))}


class Both(nn.Module):
    """Its input is computed with and given back."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return F.relu(self.linear(x)), x


def mixed_inputs() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    image, raw = torch.randn(1, 4, 6, 6, generator=generator), torch.randn(1, 5, generator=generator)
    return image, raw, torch.arange(4)[None], torch.tensor([True, False])


def quantization(program: CompiledModel, border: str) -> tuple[float, int]:
    """Scale and zero point of ``input0``, ``output2`` ..., from the program's own constant methods."""
    methods = Runtime.get().load_program(program.buffer)
    scale, zero_point = (methods.load_method(f"{border}_{what}").execute([])[0] for what in ("scale", "zp"))
    return float(scale), int(zero_point)


def stored(program: CompiledModel, place: int, values: torch.Tensor) -> torch.Tensor:
    scale, zero_point = quantization(program, f"input{place}")
    return torch.clamp(torch.round(values / scale) + zero_point, -128, 127).to(torch.int8)


def real(program: CompiledModel, place: int, values: torch.Tensor) -> torch.Tensor:
    scale, zero_point = quantization(program, f"output{place}")
    return (values.float() - zero_point) * scale


@pytest.mark.parametrize("channels_last", [False, True])
def test_int8_borders_are_for_what_is_quantized(channels_last: bool) -> None:
    given = mixed_inputs()
    program = analyse(
        Mixed().eval(),
        given,
        calibration=[given],
        quantization=QuantizationOptions(io_dtype="int8", channels_last=channels_last),
    )
    floating = analyse(
        Mixed().eval(), given, calibration=[given], quantization=QuantizationOptions(channels_last=channels_last)
    )
    outputs = program.run(stored(program, 0, given[0]), *given[1:])
    wanted = floating.run(*given)
    assert [item.dtype for item in outputs] == [torch.int8, torch.float32, torch.int64, torch.bool, torch.int64]
    # Between the borders both compute the same.
    assert torch.equal(real(program, 0, outputs[0]), wanted[0])
    for got, want in zip(outputs[1:], wanted[1:], strict=True):
        assert torch.equal(got, want)
    graphs = [part.graph for part in program.partitions]
    moves = [node for graph in graphs for node in graph.nodes if node.op == "transpose"]
    # Channels-last images are passed as they lie; others are moved on the way in and out.
    assert len(moves) == (0 if channels_last else 2)
    assert outputs[0].is_contiguous(memory_format=torch.channels_last) == channels_last


@pytest.mark.parametrize("io", ["float32", "int8"])
def test_several_inputs_and_outputs_keep_their_order(io: str) -> None:
    generator = torch.Generator().manual_seed(3)
    given = tuple(torch.randn(1, 8, generator=generator) * scale for scale in (1.0, 3.0))
    program = analyse(Fork().eval(), given, calibration=[given], quantization=QuantizationOptions(io_dtype=io))
    assert len(program.partitions) == 1
    with torch.no_grad():
        wanted = list(program.quantized(*given).values())
    if io == "int8":
        given = tuple(stored(program, place, values) for place, values in enumerate(given))
    for place, (output, want) in enumerate(zip(program.run(*given), wanted, strict=True)):
        values = real(program, place, output) if io == "int8" else output
        assert float((values - want).abs().max()) <= 0.02 * float(want.abs().max())


def test_state_stays_as_it_is_behind_int8_outputs() -> None:
    torch.manual_seed(1)
    given = (torch.randn(1, 8),)
    model = Running().eval()
    program = analyse(model, given, calibration=[given, given], quantization=QuantizationOptions(io_dtype="int8"))
    floating = analyse(model, given, calibration=[given, given])
    for _ in range(2):
        (wanted,), (output,) = floating.run(*given), program.run(stored(program, 0, given[0]))
        assert torch.equal(real(program, 0, output), wanted)


def test_an_input_that_is_given_back_stays_float() -> None:
    given = (torch.randn(1, 8, generator=torch.Generator().manual_seed(3)),)
    program = analyse(Both().eval(), given, calibration=[given], quantization=QuantizationOptions(io_dtype="int8"))
    computed, same = program.run(*given)
    assert computed.dtype == torch.int8
    assert torch.equal(same, given[0])


def test_a_channels_last_output_of_one_row() -> None:
    """Several orders of the dimensions are channels-last in memory then."""
    x = torch.randn(1, 2, 3, 6).to(memory_format=torch.channels_last)
    program = analyse(nn.MaxPool2d(3, 2, ceil_mode=True), (x,), calibration=[(x,)])
    (result,) = program.run(x)
    assert result.is_contiguous(memory_format=torch.channels_last)
    assert program.delegation.on_cpu == ()
