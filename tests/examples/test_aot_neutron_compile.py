# SPDX-License-Identifier: BSD-3-Clause
"""The example with the flags of ExecuTorch's example of that name."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import openneutron
from examples.aot_neutron_compile import main, parser
from examples.nxp.experimental.cifar_net.cifar_net import main as store
from openneutron.device.converter.kernel_selections import read_selection
from openneutron.device.pte import methods
from openneutron.isa.kernel_selection import called_kernels

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_has_the_flags_of_executorchs_example() -> None:
    """The flags are read from the source: importing it takes NXP's SDK."""
    found = importlib.util.find_spec("executorch")
    assert found is not None and found.submodule_search_locations
    (source,) = Path(found.submodule_search_locations[0]).glob("examples/nxp/aot_neutron_compile.py")
    theirs = {
        argument.value
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"
        for argument in node.args
        if isinstance(argument, ast.Constant)
    }
    assert len(theirs) > 20
    ours = {option for action in parser()._actions for option in action.option_strings}
    assert theirs <= ours


def test_the_documented_command_writes_the_pte_and_its_kernel_selection_beside_it(tmp_path: Path) -> None:
    assert main(["--quantize", "--delegate", "-m", "cifar10", "--dump_kernel_selection_code"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cifar10_nxp_delegate.pte",
        "cifar10_nxp_delegate_kernel_selection.c",
        "cifar10_nxp_delegate_tag0_kernel_selection.c",
    ]
    loaded = openneutron.load("cifar10_nxp_delegate.pte")
    wanted = called_kernels(program for _, program in loaded.programs)
    assert read_selection(Path("cifar10_nxp_delegate_kernel_selection.c")).kernels == wanted
    assert len(loaded.on_cpu) == 2  # quantize and dequantize
    (output,) = loaded.run(np.zeros((1, 3, 32, 32), np.float32))
    assert tuple(output.shape) == (1, 10)


def test_the_other_flags_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "image.npy", np.linspace(-1, 1, 2 * 3 * 32 * 32, dtype=np.float32).reshape(2, 3, 32, 32))
    flags = ["-q", "-d", "-t", "-r", "--use_qat", "--use_profiling", "--use_channels_last_dim_order"]
    flags += ["--fetch_constants_to_sram", "--operators_not_to_delegate", "aten::softmax", "--target", "imxrt700"]
    assert main(["-m", "resnet8", *flags, "-dst", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Accuracy of the quantized 'resnet8' against the float model, on 2 inputs: ")
    assert "operators_not_to_delegate names it: 'aten_softmax'" in said
    assert (tmp_path / "etrecord" / "resnet8_etrecord.bin").stat().st_size > 1000
    loaded = openneutron.load("resnet8_nxp_delegate_profile.pte")
    ((_, program),) = loaded.programs
    assert program.header["profile_size"] > 0 and program.header["prefetch_size"] > 0
    method = next(method for method in methods(loaded.buffer) if method.name == "forward")
    assert [method.tensor(index).dtype for index in (*method.inputs, *method.outputs)] == ["int8", "int8"]


RECORDING_PYTHON = """#!/bin/sh
printf '%s\\n' "$*" >> calls.txt
printf '%s' "$PYTHONPATH" > path.txt
"""


@pytest.mark.parametrize(
    ("script", "arguments", "calls"),
    [
        ("aot_neutron_compile.sh", [], ["-m examples.nxp.aot_neutron_compile --quantize --delegate -m cifar10"]),
        (
            "aot_neutron_compile.sh",
            ["mobilenetv2", "--target", "imx95"],
            ["-m examples.nxp.aot_neutron_compile --quantize --delegate -m mobilenetv2 --target imx95"],
        ),
        ("run_aot_example.sh", ["vww"], ["-m examples.nxp.aot_neutron_compile --quantize --delegate -m vww"]),
        ("setup.sh", [], [f"-m pip install {ROOT}[pytorch]"]),
    ],
)
def test_the_scripts_of_executorchs_folder(script: str, arguments: list[str], calls: list[str], tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").write_text(RECORDING_PYTHON)
    (tmp_path / "bin/python").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([ROOT / "examples/nxp" / script, *arguments], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "calls.txt").read_text().splitlines() == calls
    assert script == "setup.sh" or (tmp_path / "path.txt").read_text().startswith(str(ROOT))


def test_the_inputs_for_the_runner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert store(["--store-test-data"]) == 0
    assert capsys.readouterr().out == "cifar10_test_data: 10 generated inputs, since data sets are not downloaded.\n"
    files = sorted((tmp_path / "cifar10_test_data").iterdir())
    assert [path.name for path in files] == [f"img{place}.bin" for place in range(10)]
    assert {path.stat().st_size for path in files} == {3 * 32 * 32 * 4}


def test_flags_of_earlier_releases_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", "mul", "-c", "SDK_25_09", "--use_new_flow_neutron_c"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "--neutron_converter_flavor: 'SDK_25_09' changes nothing. The release of NXP's converter is that of the installed "
        "eiq_neutron_sdk; whether it compiles, or this project's compiler, is set by options=CompileOptions(converter='eiq').",
        "--use_new_flow_neutron_c changes nothing: this project's compiler has one flow.",
    ]


def test_without_flags_the_model_is_compiled_for_the_cpu(tmp_path: Path) -> None:
    assert main(["-m", "softmax"]) == 0  # one of ExecuTorch's examples
    assert [path.name for path in tmp_path.iterdir()] == ["softmax.pte"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ["-m", "cifar100"],
            "--model_name: there is no model 'cifar100'; there are cifar10, mobilenetv2, autoencoder, crnn, ds_cnn, "
            "gru_kws, lstm_kws, mobilenet_v1, mobilenet_v3_small, noise_suppression, resnet8, speech_enhancement, "
            "streaming_lstm_kws, streaming_tcn, tcn, text_decoder, unet, transformer_encoder, vww, wake_word, and those of "
            "executorch.examples.models.",
        ),
        (["-m", "cifar10", "--use_qat"], "--use_qat: it is a way to quantize; give --quantize too."),
        (
            ["-m", "autoencoder", "-t", "-dst", "a.xz"],
            "--dataset_path: 'a.xz' is no source of samples: it is a folder of pictures, WAV files or .npy files, a .npy or .npz file, "
            "COCO's annotations, a data.yaml, or file.py:loader.",
        ),
        (
            ["-m", "tcn", "--test"],
            "--test: 'tcn' is not a classifier, whose output is [batch, classes]. Leave it out.",
        ),
        (
            ["-m", "mul", "--dump_kernel_selection_code"],
            "--dump_kernel_selection_code: nothing of the model runs on the NPU, so that no kernel is called. Give "
            "--quantize and --delegate.",
        ),
        (
            ["-m", "mul", "--target", "imx9"],
            "Target `imx9` is not a valid target. Must be one of `['imx943', 'imx95', 'imx952', 'imxrt700', 'mcxn54x', 'mcxn94x', 'cortex-a55', 'cortex-m33', 'cortex-m4', 'cortex-m55', 'cortex-m7', 'cortex-m85']`, or the "
            "path of a .toml file. Did you mean 'imx95'?",
        ),
    ],
)
def test_what_cannot_be(flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.xz").write_bytes(b"")
    assert main(flags) == 2
    assert capsys.readouterr().err == f"error: {said}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.xz"]


def test_the_program_for_model_explorer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("model_explorer", reason="model_explorer is not installed: it draws programs")
    monkeypatch.chdir(tmp_path)
    assert main(["-m", "mul", "--visualize", "store"]) == 0
    (graph,) = json.loads((tmp_path / "mul-visualization.json").read_text())["graphs"]
    assert "aten.mul" in [node["label"] for node in graph["nodes"]]


def test_packages_and_libraries_that_are_absent(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", "mul", "-s", "/no/such.so"]) == 2
    assert capsys.readouterr().err.startswith("error: --so_library: '/no/such.so' can't be loaded: ")
    if importlib.util.find_spec("model_explorer") is None:
        assert main(["-m", "mul", "--visualize", "store"]) == 2
        assert capsys.readouterr().err == (
            "error: --visualize: it takes the package ai-edge-model-explorer, which is not installed.\n"
        )
