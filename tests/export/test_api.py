# SPDX-License-Identifier: BSD-3-Clause
"""The bundle's C API gives what ExecuTorch gives for the same ``.pte``, bit by bit, built for this computer."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import openneutron
from openneutron.features.export.bundle import export_bundle
from openneutron.features.export.read import read_pte
from openneutron.options import DelegationOptions, QuantizationOptions
from tests.export.bundles import cifarnet, host_program, piped

MAIN = Path(__file__).parent / "api_main.c"


class TwoInputsTwoOutputs(torch.nn.Module):
    """An image and a row in, an image and a row out."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 5, 3)
        self.fc = torch.nn.Linear(7, 4)

    def forward(self, image: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.fc(row) * 2, torch.relu(self.conv(image))


@cache
def two_and_two(**options: Any) -> Any:
    torch.manual_seed(3)
    samples = [(torch.randn(1, 3, 6, 5), torch.randn(1, 7)) for _ in range(4)]
    return openneutron.compile(TwoInputsTwoOutputs().eval(), samples[0], calibration=samples, name="two", **options)


MODELS: dict[str, Callable[[], Any]] = {
    "contiguous": two_and_two,
    "channels last": lambda: two_and_two(quantization=QuantizationOptions(channels_last=True)),
    "transposed by the delegate": lambda: two_and_two(
        delegation=DelegationOptions(use_neutron_for_format_conversion=False)
    ),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
def test_real_values_as_in_executorch(make: Callable[[], Any], tmp_path: Path) -> None:
    program = make()
    bundle = export_bundle(program, tmp_path / "bundle")
    assert [border.is_permuted for border in bundle.deployments[0].inputs] == [make is not two_and_two, False]
    built = host_program(tmp_path / "bundle", tmp_path, MAIN, sanitizers=("-DMODEL=two", f"-I{MAIN.parent}"))
    torch.manual_seed(4)
    for _ in range(5):
        inputs = (torch.randn(1, 3, 6, 5), torch.randn(1, 7))
        wanted = program.run(*inputs)
        found = piped(built, ["real"], b"".join(value.numpy().tobytes() for value in inputs))
        places = [border.model_index for border in bundle.deployments[0].outputs]
        assert found == b"".join(wanted[place].contiguous().numpy().tobytes() for place in places)


def test_quantizing_as_executorch_rounds(tmp_path: Path) -> None:
    """Halves, neighbours of halves, random values, values far outside, zeros of both signs."""
    import executorch.kernels.quantized  # noqa: F401 -- registers ExecuTorch's own kernels as torch operators

    bundle = export_bundle(cifarnet(), tmp_path / "bundle")
    (border,) = bundle.deployments[0].inputs
    quantization = border.quantization
    assert quantization is not None
    random = np.random.default_rng(0)
    halves = (np.arange(-300, 300) / 2).astype(np.float32) * np.float32(quantization.scale)
    values = np.concatenate(
        [
            halves,
            np.nextafter(halves, np.float32(np.inf)),
            np.nextafter(halves, np.float32(-np.inf)),
            np.array([0.0, -0.0, 1e-30, -1e-30, 1e6, -1e6, 1e15, -1e15], np.float32),
            random.uniform(-4, 4, border.elements - 3 * len(halves) - 8).astype(np.float32),
        ]
    )
    wanted = torch.empty(border.shape, dtype=torch.int8)
    torch.ops.quantized_decomposed.quantize_per_tensor.out(
        torch.from_numpy(values).reshape(border.shape),
        quantization.scale,
        quantization.zero_point,
        quantization.least,
        quantization.most,
        torch.int8,
        out=wanted,
    )
    built = host_program(tmp_path / "bundle", tmp_path, MAIN, sanitizers=("-DMODEL=cifarnet", f"-I{MAIN.parent}"))
    assert piped(built, ["quantize"], values.tobytes()) == wanted.numpy().tobytes()
    extremes = np.zeros(border.elements, np.float32)
    extremes[:3] = np.nan, np.inf, -np.inf
    assert list(np.frombuffer(piped(built, ["quantize"], extremes.tobytes()), np.int8)[:3]) == [-128, 127, -128]


def test_scales_of_int8_borders_come_along() -> None:
    """Without quantization at its borders a ``.pte`` states their scales in methods of their own."""
    made = two_and_two(quantization=QuantizationOptions(io_dtype="int8"))
    stated, floats = (read_pte(program.buffer, "two.pte", "two") for program in (made, two_and_two()))
    for ours, theirs in ((stated.inputs, floats.inputs), (stated.outputs, floats.outputs)):
        assert [border.quantization for border in ours] == [border.quantization for border in theirs]
        assert not any(border.is_float for border in ours) and all(border.is_float for border in theirs)
