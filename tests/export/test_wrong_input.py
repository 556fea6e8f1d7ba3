# SPDX-License-Identifier: BSD-3-Clause
"""Faults of a user give one clear message and exit code 2, and nothing is written."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import openneutron
from openneutron import litert
from openneutron.cli import main
from openneutron.device import pte
from openneutron.device.mixed import compile_file
from openneutron.errors import InvalidModelError, OpenNeutronError
from openneutron.features.export.bundle import export_bundle
from openneutron.features.export.read import read_pte
from openneutron.isa.rows import MAGIC
from openneutron.options import DelegationOptions
from scripts.published_networks import cifarnet as published_cifarnet
from tests.export.bundles import cifarnet
from tests.support.litert_files import mixed_file


class PartlyOnTheCpu(torch.nn.Module):
    """A sort between two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(2, 4, 3)
        self.second = torch.nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.sort(self.first(x), 3)[0])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        before = sorted(folder.rglob("*"))
        capsys.readouterr()
        code = main(["export", *arguments])
        said = capsys.readouterr()
        assert (code, said.out) == (2, ""), said
        assert sorted(folder.rglob("*")) == before
        assert said.err.startswith("error: ") and said.err.count("\n") == 1
        return said.err.removeprefix("error: ").rstrip("\n")

    return run


def test_no_such_file(refused: Callable[..., str]) -> None:
    assert refused("model.pte", "--to", "out") == "'model.pte' does not exist."


def test_neither_a_pte_nor_a_tflite(refused: Callable[..., str], folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"\x08\x07")
    assert refused("model.onnx", "--to", "out") == (
        "'model.onnx' is neither a .pte nor a compiled .tflite; a bundle is made from one of these."
    )


def test_no_pte(refused: Callable[..., str], folder: Path) -> None:
    (folder / "model.pte").write_bytes(b"no flatbuffer at all")
    assert refused("model.pte", "--to", "out") == (
        "'model.pte' is no ExecuTorch program: bytes 4 to 7 are b'latb'; a .pte file has b'ET12' there."
    )


def test_a_truncated_pte(refused: Callable[..., str], folder: Path) -> None:
    data = cifarnet().buffer
    (folder / "model.pte").write_bytes(data[: len(data) // 2])
    assert refused("model.pte", "--to", "out") == (
        "'model.pte' is damaged: its flatbuffer can't be read. Compile the model again."
    )


def test_without_a_delegate_of_ours(refused: Callable[..., str], folder: Path) -> None:
    (folder / "model.pte").write_bytes(cifarnet().buffer.replace(b"NeutronBackend", b"XnnpackBackend"))
    assert refused("model.pte", "--to", "out") == (
        "'model.pte' has no NeutronBackend delegate in it; its delegates: XnnpackBackend. "
        "Compile the model first: openneutron compile MODEL -o MODEL.pte."
    )


def test_microcode_of_nxp(refused: Callable[..., str], folder: Path) -> None:
    magic = struct.pack("<I", MAGIC)
    data = cifarnet().buffer
    at = data.index(magic) + 4
    (folder / "model.pte").write_bytes(data[:at] + struct.pack("<I", 0x40) + data[at + 4 :])
    assert refused("model.pte", "--to", "out") == (
        "'model.pte' has microcode of another compiler, such as NXP's eIQ Neutron converter, and only NXP's firmware runs that. Export "
        "it with --for zephyr-nxp, mcuxpresso-nxp or linux-nxp, which link NXP's driver, or compile the model with OpenNeutron."
    )
    bundle = export_bundle(folder / "model.pte", folder / "out", form="linux-nxp")
    assert bundle.memory["arena"] > 0 and bundle.deployments[0].inputs[0].shape == (1, 3, 32, 32)
    assert (
        refused("model.pte", "--to", "out", "--for", "linux-nxp", "--reference", "no.tflite")
        == "'no.tflite' does not exist."
    )


def test_operators_on_the_cpu(folder: Path) -> None:
    x = torch.randn(1, 2, 8, 8)
    program = openneutron.compile(
        PartlyOnTheCpu().eval(), (x,), calibration=[(x,)], name="partly", delegation=DelegationOptions(any_runtime=True)
    )
    with pytest.raises(InvalidModelError) as caught:
        export_bundle(program, folder / "out")
    assert str(caught.value) == (
        "'partly' does not run on the NPU alone: quantized_decomposed::dequantize_per_tensor.out, aten::topk.values, "
        "quantized_decomposed::quantize_per_tensor.out. A bundle has no CPU operators. See what stays on the CPU, and why, with "
        "`openneutron explain MODEL`, or link the .pte with ExecuTorch's own runtime and runtime/delegate."
    )
    assert list(folder.iterdir()) == []


def test_a_tflite_that_is_not_compiled(refused: Callable[..., str], folder: Path) -> None:
    (folder / "mixed.tflite").write_bytes(mixed_file())
    assert refused("mixed.tflite", "--to", "out") == (
        "'mixed.tflite' has no NeutronGraph in it. Compile it first: openneutron compile mixed.tflite."
    )


def test_a_tflite_of_several_parts(refused: Callable[..., str], folder: Path) -> None:
    model = litert.read(mixed_file())
    compiled = compile_file(model, "mixed.tflite")
    (folder / "compiled.tflite").write_bytes(compiled.to_bytes())
    message = refused("compiled.tflite", "--to", "out")
    assert message.startswith("'compiled.tflite' does not run on the NPU alone: it has LiteRT operators beside them (")
    assert message.endswith("with `openneutron explain MODEL`.")


def test_an_unknown_port(refused: Callable[..., str], folder: Path) -> None:
    cifarnet().save(folder / "cifarnet.pte")
    assert refused("cifarnet.pte", "--to", "out", "--port", "zephir") == (
        "form: 'zephir' is unknown; there are cortex_m33, zephyr, mcuxpresso, mcxn947, cmake, arduino, cmsis-pack, esp-idf, zephyr-nxp, mcuxpresso-nxp, linux-nxp. Did you mean 'zephyr'?"
    )
    for name, message in {
        "mcxn94x": "'mcxn94x' is a target. Give its form, mcxn947.",
        "frdm_mcxn947": "'frdm_mcxn947' is a board. Give its form, mcxn947.",
        "imx95": "'imx95' is a target without a C port; there are cortex_m33, zephyr, mcuxpresso, mcxn947, cmake, arduino, cmsis-pack, esp-idf, zephyr-nxp, mcuxpresso-nxp, linux-nxp.",
        "linux": "'linux' is unknown; there are cortex_m33, zephyr, mcuxpresso, mcxn947, cmake, arduino, cmsis-pack, esp-idf, zephyr-nxp, mcuxpresso-nxp, linux-nxp. Did you mean 'linux-nxp'?",
    }.items():
        assert refused("cifarnet.pte", "--to", "out", "--port", name) == f"form: {message}"


def test_a_chip_whose_own_controller_runs_the_kernels(refused: Callable[..., str], folder: Path) -> None:
    options = openneutron.CompileOptions(target="imx95")
    (folder / "net.tflite").write_bytes(litert.write(published_cifarnet()))
    openneutron.compile("net.tflite", options=options).save("compiled.tflite")
    assert refused("compiled.tflite", "--to", "out") == (
        "'compiled.tflite' was compiled for imx95, where the NPU's own controller runs the kernels. A bundle is firmware whose core "
        "runs them. Compile the model for a target with a C port (`openneutron targets NAME`), or run the file on Linux with the "
        "delegate for ExecuTorch."
    )


def test_a_folder_in_no_folder(refused: Callable[..., str], folder: Path) -> None:
    cifarnet().save(folder / "cifarnet.pte")
    assert refused("cifarnet.pte", "--to", "no/out") == "--to 'no/out': there is no folder 'no'. Make it first."


@pytest.mark.parametrize("io", ["float32", "int8"])
def test_damaged_files_are_refused(io: str) -> None:
    """Whatever bytes around the payload are changed: an error of ours or a deployment, never another exception."""
    random = np.random.default_rng(0)
    data = cifarnet(io).buffer
    (delegate,) = pte.delegates(data)
    start = data.index(delegate.payload)
    around = [*range(start), *range(start + len(delegate.payload), len(data))]
    read = 0
    for _ in range(400):
        damaged = bytearray(data)
        for place in random.choice(around, int(random.integers(1, 4))):
            damaged[place] = int(random.integers(0, 256))
        with contextlib.suppress(OpenNeutronError):
            read_pte(bytes(damaged), "model.pte", "model")
            read += 1
    assert 0 < read < 400
