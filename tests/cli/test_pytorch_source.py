# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch models as the command line names them, and what wrong ones say."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from openneutron.cli.model_source import BUILT_IN, BuiltInModel, DataParameters, ModelFile, check_early
from openneutron.cli.pytorch_source import Loaded, load, samples
from openneutron.device.data.python_function import PythonFunction
from openneutron.device.forms import PT2
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.options import Request
from openneutron.pytorch.source import models
from openneutron.pytorch.source.exporting import ModelInputs, aten_graph

NET = """\
import torch
from torch import nn

import beside

def net():
    return nn.Linear(beside.WIDTH, 2), (torch.zeros(1, beside.WIDTH),)

def net_with_one_tensor():
    return nn.Linear(beside.WIDTH, 2), torch.zeros(1, beside.WIDTH)

def only_a_module():
    return nn.ReLU()

def wrong_inputs():
    return nn.ReLU(), 3

def raises():
    raise KeyError("width")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("WIDTH = 3\n")
    (tmp_path / "some_net.py").write_text(NET)
    return tmp_path / "some_net.py"


@pytest.mark.parametrize("function", ["net", "net_with_one_tensor"])
def test_a_function_of_a_file(file: Path, function: str) -> None:
    loaded = load(PythonFunction(file, function))
    assert isinstance(loaded.model, nn.Linear) and not loaded.model.training
    assert [tuple(value.shape) for value in loaded.call.args] == [(1, 3)]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nett", "'some_net.py' has no function 'nett'. Did you mean 'net'?"),
        ("zzzzzz", "'some_net.py' has no function 'zzzzzz'."),
        (
            "only_a_module",
            "'some_net.py:only_a_module' returned ReLU; it must return a module and a tuple of example inputs.",
        ),
        (
            "wrong_inputs",
            "'some_net.py:wrong_inputs' returned a module and int; example inputs are a tuple of the "
            "model's arguments.",
        ),
        ("raises", "'some_net.py:raises', line 19: KeyError: 'width'"),
    ],
)
def test_a_function_that_will_not_do(file: Path, function: str, message: str) -> None:
    with pytest.raises(InvalidModelError) as caught:
        load(PythonFunction(file, function))
    assert str(caught.value) == message


def test_a_file_that_does_not_even_import(file: Path) -> None:
    file.write_text("import torch\nx = = 1\n")
    with pytest.raises(InvalidModelError) as caught:
        load(PythonFunction(file, "net"))
    assert str(caught.value).startswith("'some_net.py:net', line 2: SyntaxError: invalid syntax")


def test_a_built_in_model_and_its_samples() -> None:
    source = BuiltInModel("autoencoder")
    loaded = load(source)
    assert [tuple(value.shape) for value in loaded.call.args] == [(1, 640)]
    assert len(samples(source, loaded, DataParameters(), None)) == 32


def test_an_unknown_built_in_model_names_the_nearest() -> None:
    with pytest.raises(InvalidModelError) as caught:
        check_early(BuiltInModel("mobilnet-v2"), DataParameters(), None)
    assert str(caught.value) == (
        "there is no built-in model 'mobilnet-v2'. Did you mean 'mobilenet_v2' or 'mobilenet_v1'? There are "
        "autoencoder, cifarnet, crnn, ds_cnn, gru_kws, lstm_kws, mobilenet_v1, mobilenet_v2, mobilenet_v3_small, "
        "noise_suppression, resnet8, speech_enhancement, streaming_lstm_kws, streaming_tcn, tcn, text_decoder, unet, "
        "transformer_encoder, vww, wake_word."
    )


def test_an_exported_program(tmp_path: Path) -> None:
    torch.export.save(torch.export.export(nn.ReLU(), (torch.zeros(2, 3),)), tmp_path / "net.pt2")
    loaded = load(ModelFile(tmp_path / "net.pt2", PT2))
    assert [tuple(value.shape) for value in loaded.call.args] == [(2, 3)]
    with pytest.raises(InvalidOptionError) as caught:
        load(ModelFile(tmp_path / "net.pt2", PT2), tmp_path / "w.pt")
    assert str(caught.value) == ("--weights: 'net.pt2' has its own weights in it; load others before torch.export.")


def _torch_script(path: Path) -> None:
    torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2)).save(path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("write", "what"),
    [
        (lambda path: path.write_bytes(b"not a zip file"), "is no file of PyTorch's, or damaged"),
        (_torch_script, "is a TorchScript file"),
        (
            lambda path: torch.save({"weight": torch.zeros(2)}, path),
            "has weights without a program (a state dict)",
        ),
    ],
)
def test_files_that_are_no_exported_programs(tmp_path: Path, write: Callable[[Path], None], what: str) -> None:
    write(tmp_path / "net.pt2")
    with pytest.raises(InvalidModelError) as caught:
        load(ModelFile(tmp_path / "net.pt2", PT2))
    assert str(caught.value) == (
        f"'net.pt2' {what}; a program that torch.export.save wrote is needed here: "
        "torch.export.save(torch.export.export(model, inputs), 'model.pt2')."
    )


def test_numbers_and_keywords_of_an_exported_program_are_part_of_it(tmp_path: Path) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor, factor: float, *, y: torch.Tensor) -> torch.Tensor:
            return x * factor + y

    program = torch.export.export(Net(), (torch.zeros(1, 2), 3.0), {"y": torch.zeros(1, 2)})
    torch.export.save(program, tmp_path / "net.pt2")
    source = ModelFile(tmp_path / "net.pt2", PT2)
    loaded = load(source)
    np.savez(tmp_path / "set.npz", input0=np.ones((4, 2), np.float32), input1=np.zeros((4, 2), np.float32))
    found = list(samples(source, loaded, DataParameters(str(tmp_path / "set.npz")), None))
    assert [(args[1], list(kwargs)) for args, kwargs in found] == [(3.0, ["y"])] * 4
    assert torch.equal(found[0][0][0], torch.ones(1, 2)) and torch.equal(found[0][1]["y"], torch.zeros(1, 2))


def test_weights_are_loaded(file: Path, tmp_path: Path) -> None:
    state = {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}
    for content in (state, {"state_dict": state, "epoch": 3}):
        torch.save(content, tmp_path / "w.pt")
        loaded = load(PythonFunction(file, "net"), tmp_path / "w.pt")
        assert isinstance(loaded.model, nn.Linear)
        assert torch.equal(loaded.model.weight, torch.ones(2, 3))
    save_file(state, tmp_path / "w.safetensors")
    again = load(PythonFunction(file, "net"), tmp_path / "w.safetensors").model
    assert isinstance(again, nn.Linear) and torch.equal(again.weight, torch.ones(2, 3))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"weight": torch.ones(2, 3)}, "lacks 'bias'. It must be a state_dict of this model."),
        (
            {"weight": torch.ones(2, 3), "bias": torch.zeros(2)} | {f"x{i}": torch.zeros(1) for i in range(6)},
            "has, and the model does not, 'x0', 'x1', 'x2', 'x3' and 2 more. It must be a state_dict of this model.",
        ),
        (
            {"weight": torch.ones(2, 4), "bias": torch.zeros(2)},
            "has in another shape 'weight'. It must be a state_dict of this model.",
        ),
        ([1, 2], "holds list; a state_dict is needed here."),
    ],
)
def test_weights_that_do_not_fit(file: Path, tmp_path: Path, content: object, message: str) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(InvalidOptionError) as caught:
        load(PythonFunction(file, "net"), tmp_path / "w.pt")
    assert str(caught.value) == f"--weights: '{tmp_path / 'w.pt'}' {message}"


def test_weights_that_are_none(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        check_early(PythonFunction(file, "net"), DataParameters(), tmp_path / "absent.pt")
    assert str(caught.value) == f"--weights: '{tmp_path / 'absent.pt'}' does not exist."
    (tmp_path / "w.pt").write_bytes(b"text")
    with pytest.raises(InvalidOptionError) as caught:
        load(PythonFunction(file, "net"), tmp_path / "w.pt")
    assert str(caught.value) == (
        f"--weights: '{tmp_path / 'w.pt'}' is no file of PyTorch's, or damaged; a state_dict is needed here: "
        "torch.save(model.state_dict(), 'weights.pt')."
    )


def test_calibration_samples_become_tensors(tmp_path: Path) -> None:
    np.savez(tmp_path / "set.npz", np.ones((4, 3), np.float32))
    loaded = Loaded(nn.Linear(3, 2), ModelInputs((torch.zeros(1, 3),), {}))
    found = samples(PythonFunction(tmp_path, "net"), loaded, DataParameters(str(tmp_path / "set.npz")), None)
    assert [tuple(value.shape) for (value,) in found] == [(1, 3)] * 4


def test_without_a_calibration_set_the_example_inputs_do(file: Path, tmp_path: Path) -> None:
    loaded = Loaded(nn.Linear(3, 2), ModelInputs((torch.zeros(1, 3),), {}))
    for source, weights in ((PythonFunction(file, "net"), None), (BuiltInModel("cifarnet"), tmp_path / "w.pt")):
        assert samples(source, loaded, DataParameters(), weights) == [loaded.call.args]


def test_the_names_known_without_pytorch_are_the_built_in_models() -> None:
    assert list(BUILT_IN) == models.names()


EXITS = """\
import sys
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        sys.exit(0)

def net():
    return Net(), (torch.zeros(1, 3),)

def leaves():
    sys.exit(0)

def interrupted():
    raise KeyboardInterrupt

class Base(torch.nn.Module):
    def forward(self, x):
        raise BaseException("one\\ntwo")

def base():
    return Base(), (torch.zeros(1, 3),)

def several_lines():
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("one\\ntwo") from error
"""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("leaves", "line 12: it calls sys.exit(0); it must return a module and example inputs."),
        ("several_lines", "line 28: ValueError: one (caused by KeyError: 'first')"),
    ],
)
def test_code_that_ends_the_process_or_raises_several_lines(tmp_path: Path, function: str, message: str) -> None:
    (tmp_path / "exits.py").write_text(EXITS)
    with pytest.raises(InvalidModelError) as caught:
        load(PythonFunction(tmp_path / "exits.py", function))
    assert str(caught.value) == f"'exits.py:{function}', {message}"


def test_an_interrupt_in_a_users_code_is_one(tmp_path: Path) -> None:
    (tmp_path / "exits.py").write_text(EXITS)
    with pytest.raises(KeyboardInterrupt):
        load(PythonFunction(tmp_path / "exits.py", "interrupted"))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("net", "its code calls sys.exit(0) when it runs. A model must return."),
        (
            "base",
            'one (BaseException), at exits.py, line 19: raise BaseException("one\\ntwo"). Does it run on the example inputs, and do '
            "without data-dependent Python?",
        ),
    ],
)
def test_a_forward_that_ends_the_process(tmp_path: Path, function: str, words: str) -> None:
    (tmp_path / "exits.py").write_text(EXITS)
    loaded = load(PythonFunction(tmp_path / "exits.py", function))
    with pytest.raises(InvalidModelError) as caught:
        aten_graph(Request(model=loaded.model, example_inputs=loaded.call.args, name="net"))
    assert str(caught.value) == f"'net' can't be exported: {words}"


@pytest.mark.parametrize("name", ["re.py", "torch.py", "json.py", "my.net.py"])
def test_a_file_named_like_a_module_does_not_shadow_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(NET.replace("import beside\n", "").replace("beside.WIDTH", "3"))
    before = sys.modules.get(Path(name).stem)
    assert isinstance(load(PythonFunction(tmp_path / name, "net")).model, nn.Linear)
    assert sys.modules.get(Path(name).stem) is before or before is None
    assert sys.modules["torch"] is torch


def test_modules_installed_come_before_those_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise AssertionError")
    (tmp_path / "colorsys.py").write_text("raise AssertionError")
    (tmp_path / "net.py").write_text(
        "import colorsys, numpy, torch\ndef net():\n    return torch.nn.ReLU(), (torch.zeros(1),)\n"
    )
    assert isinstance(load(PythonFunction(tmp_path / "net.py", "net")).model, nn.ReLU)
