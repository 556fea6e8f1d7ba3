# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron compile``, ``run`` and ``explain`` of a PyTorch model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.cli.conftest import Command

NETS = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = torch.sigmoid(torch.relu(self.conv(x)))
        return self.fc(x.mean((2, 3)))

def net():
    torch.manual_seed(0)
    return Net(), (torch.randn(1, 3, 16, 16),)

def channels_last():
    model, (x,) = net()
    return model.to(memory_format=torch.channels_last), (x.to(memory_format=torch.channels_last),)
"""


LEFT = ("--operators-not-to-delegate", "aten::sigmoid")


@pytest.fixture
def nets(folder: Path) -> Path:
    """nets.py, and a calibration set beside it."""
    (folder / "nets.py").write_text(NETS)
    np.save(folder / "set.npy", np.random.default_rng(0).standard_normal((4, 3, 16, 16)).astype(np.float32))
    (folder / "set").mkdir()
    (folder / "set.npy").rename(folder / "set" / "images.npy")
    return folder


def float_output(folder: Path, x: np.ndarray) -> np.ndarray:
    from openneutron.cli.model_source import PythonFunction
    from openneutron.cli.pytorch_source import load

    model = load(PythonFunction(folder / "nets.py", "net")).model
    assert isinstance(model, torch.nn.Module)
    with torch.no_grad():
        return model(torch.from_numpy(x)).numpy()


@pytest.mark.parametrize("function", ["net", "channels_last"])
def test_from_a_function_to_outputs(openneutron: Command, nets: Path, function: str) -> None:
    ended = openneutron("compile", f"nets.py:{function}", "--calibration", "set", "--intermediates", "parts", *LEFT)
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0] == f"nets.py:{function}  for imxrt700 (NXP i.MX RT700, eIQ Neutron N3-64)"
    assert re.match(r"  On the NPU   \d of \d operators, in 2 partitions of ", lines[1])
    row = lines[lines.index("On the CPU") + 2]
    assert row.split()[:2] == ["aten.sigmoid", "sigmoid"] and "parts 1 delegate call into 2" in row
    assert "names it: 'aten_sigmoid'" in " ".join(lines)
    assert f"{function}.pte" in (path.name for path in nets.iterdir())
    assert len(list((nets / "parts").glob("*.tflite"))) == 4
    x = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)
    np.save(nets / "x.npy", x)
    ran = openneutron("run", f"{function}.pte", "--input", "x.npy", "--output", "out")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[0] == f"{function}.pte: 2 delegates on the simulated NPU"
    np.testing.assert_allclose(np.load(nets / "out" / "output0.npy"), float_output(nets, x), atol=0.03)


def test_nothing_is_kept_of_a_result_that_can_not_be_written(openneutron: Command, nets: Path) -> None:
    before = sorted(nets.iterdir())
    arguments = ("compile", "nets.py:net", "--calibration", "set", "-o", "nowhere/x.pte", "--intermediates", "parts")
    ended = openneutron(*arguments, "--quiet")
    assert (ended.code, ended.err) == (2, "error: 'nowhere/x.pte' can't be written: No such file or directory.\n")
    assert [path for path in sorted(nets.iterdir()) if path.name != "__pycache__"] == before


def test_a_built_in_model_is_explained_without_a_file(openneutron: Command, folder: Path) -> None:
    before = sorted(folder.iterdir())
    said = json.loads(openneutron("explain", "autoencoder", "--json").out)
    assert sorted(folder.iterdir()) == before
    assert (said["model"], said["on_cpu"], len(said["partitions"])) == ("autoencoder", [], 1)
    assert said["macs"] == 640 * 128 * 2 + 128 * 128 * 6 + 128 * 8 * 2
    assert sum(call["cycles"] for call in said["partitions"][0]["calls"]) == said["npu_cycles"]
    assert said["npu_cycles"] + said["host_cycles"] == said["modelled_cycles"]


def test_a_small_budget_names_the_least_and_the_least_does(openneutron: Command, nets: Path) -> None:
    refused = openneutron("compile", "nets.py:net", "--calibration", "set", "--sram-budget", "1", "--quiet")
    assert refused.code == 2
    assert "'conv' needs the most memory." in refused.err
    least = refused.err.split("Give it at least ")[1].split(" KiB")[0]
    assert not list(nets.glob("*.pte"))
    assert openneutron("compile", "nets.py:net", "--calibration", "set", "--sram-budget", least, "--quiet").code == 0


def test_without_calibration_it_says_what_the_result_is_worth(openneutron: Command, nets: Path) -> None:
    ended = openneutron("compile", "nets.py:net")
    assert ended.code == 0 and (nets / "net.pte").exists()
    assert ended.err.splitlines()[-1] == (
        "note: Calibrated on the example inputs alone: what runs where, memory and latency are as they will be, but the "
        "result's accuracy means nothing until it is calibrated on typical inputs. Give them with --calibration."
    )
    points = json.loads(openneutron("pareto", "nets.py:net", "--calibration", "set", "--json").out)["points"]
    assert points


def test_faults_of_the_user(refused: Callable[..., str], nets: Path) -> None:
    assert refused("compile", "nets.py:net", "-q", "--calibration", "set", "-o", "net.tflite") == (
        "--output: a PyTorch model compiles to a .pte; 'net.tflite' is named otherwise."
    )
    assert refused("compile", "cifarnett", "-q") == (
        "there is no built-in model 'cifarnett'. Did you mean 'cifarnet'? There are autoencoder, cifarnet, crnn, "
        "ds_cnn, gru_kws, lstm_kws, mobilenet_v1, mobilenet_v2, mobilenet_v3_small, noise_suppression, resnet8, "
        "speech_enhancement, streaming_lstm_kws, streaming_tcn, tcn, text_decoder, unet, transformer_encoder, vww, wake_word."
    )
    misspelled = ("--operators-not-to-delegate", "aten::convoluton")
    assert refused("compile", "nets.py:net", "-q", "--calibration", "set", *misspelled).startswith(
        "operators_not_to_delegate: 'aten_convoluton' names no operator, node or module of the model. Did you mean "
        "'aten.convolution' or"
    )


@pytest.mark.parametrize(("command", "what"), [("compile", "PyTorch models take"), ("run", "Running a .pte takes")])
def test_without_pytorch_it_says_what_to_install(command: str, what: str, folder: Path) -> None:
    (folder / "net.pte").write_bytes(b"\0\0\0\0ET12" + bytes(64))
    program = (
        "import sys\n"
        "for name in ('torch', 'torchao', 'executorch'): sys.modules[name] = None\n"
        "from openneutron.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    model = "cifarnet" if command == "compile" else str(folder / "net.pte")
    done = subprocess.run([sys.executable, "-c", program, command, model], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {what} torch, torchao, executorch; '")
    assert done.stderr.endswith(
        "' is not installed: pip install 'openneutron[pytorch]'. An int8 .tflite compiles and runs without.\n"
    )
