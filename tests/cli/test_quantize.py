# SPDX-License-Identifier: BSD-3-Clause
"""``quantize`` and its command: quantized models for other runtimes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import pytest
import torch
from torch import nn

import openneutron
from openneutron import DelegationOptions, QuantizationOptions, litert
from openneutron.cli import main
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.features.quantize import quantize
from openneutron.ir import QuantParams
from openneutron.litert.interpret import interpret
from tests.onnx_models.made import random, saved, small_network
from tests.support.litert_files import float_file, mixed_file

INT8 = QuantizationOptions(io_dtype="int8")


class Net(nn.Module):
    """Three inputs, of which the last is used first and one is not used, and two results."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.linear = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, unused: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first = self.linear(y)
        return self.linear(torch.relu(self.conv(x)).mean((2, 3))), first


@pytest.fixture(scope="module")
def samples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(0)
    return [
        tuple(torch.randn(shape, generator=generator) for shape in ((1, 3, 8, 8), (1, 2), (1, 8))) for _ in range(4)
    ]


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    return Net().eval()


def test_every_form_has_the_values_that_are_compiled(
    net: nn.Module, samples: list[tuple[torch.Tensor, ...]], tmp_path: Path
) -> None:
    """ONNX computes in float, whose sums have another order: its results are within one step."""
    program = openneutron.compile(net, samples[0], calibration=samples, quantization=INT8)
    quantized = quantize(net, samples[0], calibration=samples, quantization=INT8)
    for suffix in (".pt2", ".onnx", ".tflite"):
        quantized.save(tmp_path / f"q{suffix}")
    again = openneutron.compile(tmp_path / "q.pt2", quantization=INT8)
    assert [part.payload for part in again.parts] == [part.payload for part in program.parts]
    read_back = openneutron.compile(tmp_path / "q.onnx", quantization=INT8)
    assert [part.weights for part in read_back.programs] == [part.weights for part in program.programs]
    graph = litert.read((tmp_path / "q.tflite").read_bytes()).graph
    ends = [graph[name].quant for name in (*graph.inputs, *graph.outputs) if graph[name].quant is not None]
    run = onnx.reference.ReferenceEvaluator(onnx.load(tmp_path / "q.onnx"))
    stored = [tuple((item * 40).round().clip(-128, 127).to(torch.int8) for item in sample) for sample in samples]
    for x, unused, y in stored:
        wanted = [np.asarray(result) for result in program.run(x, unused.float(), y)]
        for found in (
            interpret((tmp_path / "q.tflite").read_bytes(), [x.numpy(), unused.float().numpy(), y.numpy()]),
            read_back.run(x, unused.float(), y),
        ):
            assert all(np.array_equal(one, other) for one, other in zip(wanted, found, strict=True))
        reals = [_real(x.numpy(), ends[0]), unused.float().numpy(), _real(y.numpy(), ends[1])]
        for one, other, end in zip(
            wanted, run.run(None, dict(zip(run.input_names, reals, strict=True))), ends[2:], strict=True
        ):
            assert np.abs(_real(one, end) - other).max() <= 1.01 * end.scale


def _real(stored: np.ndarray, quant: QuantParams) -> np.ndarray:
    return ((stored.astype(np.float32) - quant.zero_point) * np.float32(quant.scale)).astype(np.float32)


@pytest.mark.parametrize("source", ["net.pt2", "net.onnx"])
def test_a_file_is_quantized_as_it_is_compiled(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    calibration = [(torch.from_numpy(random(1, 3, 8, 8, seed=seed)),) for seed in range(4)]
    np.save("data.npy", torch.cat([sample for (sample,) in calibration]).numpy())
    if source == "net.onnx":
        saved(tmp_path, small_network())
    else:
        torch.manual_seed(0)
        made = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)).eval()
        torch.export.save(torch.export.export(made, calibration[0]), source)
    wanted = openneutron.compile(source, calibration=calibration).run(*calibration[0])
    for suffix in (".pt2", ".onnx", ".tflite"):
        arguments = ["quantize", source, "--calibration", "data.npy", "-o", f"q{suffix}", "--quiet"]
        assert main(arguments) == 0
        found = openneutron.compile(f"q{suffix}").run(*calibration[0])
        assert all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(wanted, found, strict=True))


def test_a_part_that_stays_float_has_no_tflite() -> None:
    class Both(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cumprod(torch.relu(x), 1)

    inputs = (torch.randn(1, 8),)
    quantized = quantize(Both(), inputs, calibration=[inputs], name="both")
    with pytest.raises(InvalidModelError) as caught:
        quantized.to_bytes(".tflite")
    assert str(caught.value).startswith("'both': aten.cumprod 'cumprod (test_quantize.py:")
    assert str(caught.value).endswith(
        " stays float: there is no kernel for aten.cumprod. A .tflite has the whole model in integers. Write a .pt2 or a .onnx."
    )
    with pytest.raises(InvalidOptionError) as wrong:
        quantized.to_bytes(".h5")
    assert str(wrong.value) == (
        "suffix: a quantized model's file is a .pt2, .tflite or .onnx; '.h5' is another suffix. Choose one of these."
    )


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("float.tflite").write_bytes(float_file())
    Path("mixed.tflite").write_bytes(mixed_file())
    assert main(["quantize", "float.tflite", "-o", "q.tflite", "--json", "--quiet"]) == 0
    data = Path("q.tflite").read_bytes()
    said = json.loads(capsys.readouterr().out)
    assert (said["model"], said["file"], said["file_bytes"]) == ("float.tflite", "q.tflite", len(data))
    assert (
        openneutron.compile("q.tflite", delegation=DelegationOptions(must_delegate=False)).report.operators_on_npu == 2
    )
    for arguments, message in (
        (
            ("float.tflite", "-o", "q.onnx"),
            "'float.tflite': a .tflite is quantized as a .tflite. Name the result so, or quantize the model that it was made from.",
        ),
        (("mixed.tflite", "-o", "q.tflite"), "'mixed.tflite' is quantized already. Pass the float model."),
        (
            ("float.tflite", "-o", "q.h5"),
            "--output: a quantized model's file is a .pt2, .tflite or .onnx; '.h5' is another suffix. Choose one of these.",
        ),
    ):
        assert main(["quantize", *arguments, "--quiet"]) == 2
        assert capsys.readouterr().err == f"error: {message}\n"
