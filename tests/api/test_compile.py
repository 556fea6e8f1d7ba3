# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron.compile`` with each form of a model."""

from __future__ import annotations

import dataclasses
import inspect
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import openneutron
from openneutron.api.compile import Arguments, Others
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.litert.interpret import interpret
from openneutron.options import DelegationOptions, LoadingOptions, OutputOptions, QuantizationOptions, Request
from tests.support.litert_files import inputs_of, mixed_file

WITHOUT_TORCH = """
import sys
for name in ("torch", "torchao", "executorch"):
    sys.modules[name] = None  # importing it fails
import numpy, openneutron
result = openneutron.compile(sys.argv[1], options=openneutron.CompileOptions(sram_budget=64 * 1024))
result.save(sys.argv[2])
x = numpy.zeros((1, 8, 8, 4), numpy.float32)
for one in (result, openneutron.load(sys.argv[2])):
    assert [y.shape for y in one.run(x)] == [(1, 8, 8, 3), (1, 4, 4, 8)]
    assert "Microcode" in one.summary()
print(result.report.budget_bytes)
"""


@pytest.fixture
def tflite(tmp_path: Path) -> Path:
    path = tmp_path / "mixed.tflite"
    path.write_bytes(mixed_file())
    return path


@pytest.mark.parametrize("form", [str, Path])
def test_a_tflite_path_gives_what_a_module_gives(form: type, tflite: Path, tmp_path: Path) -> None:
    result = openneutron.compile(
        form(tflite), outputs=OutputOptions(intermediates_dir=tmp_path / "parts", kernel_selection=tmp_path / "k.c")
    )
    assert (result.name, result.target.name) == ("mixed.tflite", "imxrt700")
    assert result.report.delegated and result.report.on_cpu
    assert result.summary().startswith("mixed.tflite")
    result.save(tmp_path / "out.tflite")
    assert (tmp_path / "out.tflite").read_bytes() == result.buffer
    assert (tmp_path / "parts" / "neutron_graph_0.tflite").exists() and (tmp_path / "k.c").exists()
    inputs = inputs_of(result._simulator, 0)
    for got, want in zip(result.run(*inputs), interpret(mixed_file(), inputs), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_tflite_compiles_and_runs_where_torch_is_absent(tflite: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, str(tflite), str(tmp_path / "out.tflite")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "65536\n")


def test_a_pt2_path_an_exported_program_and_a_module_give_the_same_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    inputs = (torch.linspace(-1, 1, 8).reshape(1, 8),)
    program = torch.export.export(model, inputs)
    path = tmp_path / "small.pt2"
    torch.export.save(program, path)
    made = [
        openneutron.compile(path, calibration=[inputs]),
        openneutron.compile(program, calibration=[inputs]),
        openneutron.compile(model, inputs, calibration=[inputs]),
    ]
    assert [item.name for item in made] == ["small.pt2", "model", "model"]
    (first,) = made[0].run(*inputs)
    for item in made:
        assert item.delegation.on_cpu == ()
        assert torch.equal(item.run(*inputs)[0], first)
    opened = tmp_path / "small.pte"
    made[0].save(opened)
    loaded = openneutron.load(opened)
    assert torch.equal(loaded.run(*inputs)[0], first)
    assert torch.equal(loaded.run(inputs[0].numpy())[0], first)
    assert loaded.report.cycles == made[0].report.cycles
    assert [call.cycles for call in loaded.profile()] == [loaded.report.delegate_cycles]
    assert dict(loaded.on_cpu) == {
        "quantized_decomposed::quantize_per_tensor.out": 1,
        "quantized_decomposed::dequantize_per_tensor.out": 1,
    }


class Ones:
    """Unpickled, ones that a call of torch.ones makes."""

    def __reduce__(self) -> tuple[object, ...]:
        return torch.ones, (1, 8)


def test_a_pt2_path_takes_how_it_is_loaded(tmp_path: Path) -> None:
    program = torch.export.export(torch.nn.Linear(8, 4).eval(), (torch.ones(1, 8),))
    stream, samples, path = io.BytesIO(), io.BytesIO(), tmp_path / "small.pt2"
    torch.export.save(program, stream)
    torch.save(((Ones(),), {}), samples)
    with zipfile.ZipFile(stream) as source, zipfile.ZipFile(path, "w") as archive:
        for name in source.namelist():
            archive.writestr(name, samples.getvalue() if name.endswith("sample_inputs/model.pt") else source.read(name))
    calibration = [(torch.ones(1, 8),)]
    with pytest.raises(InvalidModelError, match=r"load it with --trust \(trust=True\)"):
        openneutron.compile(path, calibration=calibration)
    assert openneutron.compile(path, calibration=calibration, loading=LoadingOptions(trust=True)).name == "small.pt2"
    with pytest.raises(
        InvalidOptionError, match=r"^--import: 'no_such_module' can't be imported: ModuleNotFoundError: "
    ):
        openneutron.compile(path, calibration=calibration, loading=LoadingOptions(imports=["no_such_module"]))


def test_a_model_in_memory_is_not_loaded() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        openneutron.compile(torch.nn.ReLU(), (torch.ones(1, 8),), loading=LoadingOptions(trust=True))
    assert (
        str(caught.value)
        == "trust: this option is for .pt2, .keras or .pt files; the model is in memory. Leave it out."
    )


def test_the_parameters_are_the_fields_of_a_request() -> None:
    """The model and 8 more; the last one takes the keywords that few compiles need."""
    first, *parameters, others = inspect.signature(openneutron.compile).parameters
    assert len([*parameters, others]) == 8
    known = {item.name for item in dataclasses.fields(Request)}
    assert known == {first, *parameters, *Others.__annotations__}
    assert Arguments.__annotations__.keys() == known - {"model", "example_inputs"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"calibration": []},
            "calibration: it is for float models; 'mixed.tflite' is quantized and has its own types. Leave it out.",
        ),
        (
            {"example_inputs": ()},
            "example_inputs: it is for PyTorch models; 'mixed.tflite' is a .tflite. Leave it out.",
        ),
        (
            {"quantization": QuantizationOptions(io_dtype="int8")},
            "io_dtype: it is for float models; 'mixed.tflite' is quantized and has its own types. Leave it out.",
        ),
        (
            {"delegation": DelegationOptions(any_runtime=True)},
            "any_runtime: it is for PyTorch models; 'mixed.tflite' is a .tflite. Leave it out.",
        ),
        (
            {"loading": LoadingOptions(imports=["json"])},
            "imports: this option is for .pt2, .keras or .pt files; 'mixed.tflite' is not one. Leave it out.",
        ),
    ],
)
def test_options_that_a_tflite_has_no_use_for(options: dict[str, object], said: str, tflite: Path) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        openneutron.compile(tflite, **options)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("keyword", "hint"),
    [
        ("sram_budget", " Pass options=CompileOptions(sram_budget=...)."),
        ("keep_float", " Pass quantization=QuantizationOptions(keep_float=...)."),
        ("must_delegate", " Pass delegation=DelegationOptions(must_delegate=...)."),
        ("preprocess", " Pass data=DataOptions(preprocess=...)."),
        ("trust", " Pass loading=LoadingOptions(trust=...)."),
        ("kernel_selection", " Pass outputs=OutputOptions(kernel_selection=...)."),
        ("fetch_constants_to_sram", " Did you mean options=CompileOptions(prefetch_constants=...)?"),
        ("calibrate", " Did you mean calibration?"),
        ("turbo", ""),
    ],
)
def test_a_keyword_that_does_not_exist(keyword: str, hint: str, tflite: Path) -> None:
    with pytest.raises(TypeError) as caught:
        openneutron.compile(tflite, **{keyword: 3})
    assert str(caught.value) == f"compile() got an unexpected keyword argument '{keyword}'.{hint}"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no.tflite", "'{}' does not exist."),
        (
            "a.pte",
            "'{}': it is compiled already; compile the model that it was made from, or open it with openneutron.load. A model is a torch.nn.Module, an ExportedProgram, or the "
            "path of a .pt2, .onnx, .keras, .pt or .tflite file.",
        ),
        (
            "cifarnet",
            "'{}' is no model: a model is a torch.nn.Module, an ExportedProgram, or the path of a .pt2, .onnx, .keras, .pt or .tflite file.",
        ),
    ],
)
def test_paths_that_lead_to_no_model(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError) as caught:
        openneutron.compile(tmp_path / name)
    assert str(caught.value) == said.format(tmp_path / name)
