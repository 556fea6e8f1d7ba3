# SPDX-License-Identifier: BSD-3-Clause
"""Files of torch.save: what they are is known without loading them, and a pickled module compiles with ``trust``."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import openneutron
from openneutron.device.forms import PT, form_of
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.options import LoadingOptions
from openneutron.pytorch.source.file_kind import what_it_is


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)

    def forward(self, image: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        found: torch.Tensor = self.layer(image).relu()
        return found if scale is None else found * scale


class Harmful:
    """An object whose loading runs code."""

    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('code ran')",)


def _script(path: Path) -> None:
    torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2)).save(path)  # type: ignore[no-untyped-call]


def _saved(make: Callable[[], Any], **options: Any) -> Callable[[Path], None]:
    return lambda path: torch.save(make(), path, **options)


def _weights() -> dict[str, torch.Tensor]:
    return nn.Linear(2, 2).state_dict()


MODULE = f"has a pickled module of '{__name__}.Net'"
TRUST = (
    ", and is not loaded: a pickle may run code of whoever made it. If you know who made the file, load it with --trust "
    "(trust=True), or export the model: torch.export.save(torch.export.export(model, inputs), 'model.pt2')."
)
WEIGHTS = " has weights without a program (a state dict). Give file.py:function, which makes the module, and this file with --weights."
OLD = {"_use_new_zipfile_serialization": False}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            _script,
            " is a TorchScript file. torch.export can't trace it. Export the Python module that it was made from.",
        ),
        (_saved(_weights), WEIGHTS),
        (_saved(lambda: {"epoch": 3, "model": _weights(), "lr": {torch.float16: torch.Size([1])}}), WEIGHTS),
        (_saved(_weights, **OLD), WEIGHTS),
        (_saved(Net), f" {MODULE}{TRUST}"),
        (_saved(Net, pickle_protocol=4), f" {MODULE}{TRUST}"),
        (_saved(lambda: {"model": Net()}, **OLD), f" {MODULE}{TRUST}"),
        (_saved(Harmful), f" has a pickled module of '__builtin__.exec'{TRUST}"),
    ],
)
def test_a_file_is_not_loaded_and_the_message_says_what_it_is(
    write: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "net.pt"
    write(path)
    assert form_of(path) is PT
    with pytest.raises(InvalidModelError) as caught:
        openneutron.compile(path)
    assert str(caught.value) == f"'net.pt'{message}"


def test_weights_of_safetensors_name_the_option(tmp_path: Path) -> None:
    path = tmp_path / "net.safetensors"
    path.write_bytes((2).to_bytes(8, "little") + b"{}")
    with pytest.raises(InvalidModelError, match="weights have no program; make the module, load the weights into it"):
        openneutron.compile(path)


def test_a_trusted_module_compiles(tmp_path: Path) -> None:
    torch.save({"epoch": 1, "model": Net().half()}, tmp_path / "net.pt")
    loading = LoadingOptions(trust=True, input_shapes={"image": (1, 3, 6, 6)})
    samples = [torch.linspace(-1, 1, 108).reshape(1, 3, 6, 6)]
    compiled = openneutron.compile(tmp_path / "net.pt", calibration=samples, loading=loading)
    assert len(compiled.programs) == 1
    for shapes, error, message in (
        (
            {},
            InvalidModelError,
            "'net.pt': the shape of the input 'image' is not known. Give it, such as --input-shape image=1x3x224x224.",
        ),
        (
            {"picture": (1,)},
            InvalidOptionError,
            "input_shapes: 'net.pt' has no input 'picture'; its inputs are 'image', 'scale'.",
        ),
    ):
        with pytest.raises(error) as caught:
            openneutron.compile(tmp_path / "net.pt", loading=LoadingOptions(trust=True, input_shapes=shapes))
        assert str(caught.value) == message


def test_a_class_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("gone")
    module.Gone = type("Gone", (nn.Module,), {"__module__": "gone"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gone", module)
    torch.save(module.Gone(), tmp_path / "net.pt")
    monkeypatch.delitem(sys.modules, "gone")
    with pytest.raises(InvalidModelError, match=r"^'net\.pt' can't be loaded: No module named 'gone'\.$"):
        openneutron.compile(tmp_path / "net.pt", loading=LoadingOptions(trust=True))


def test_damage_is_no_raw_exception(tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    torch.save(Net(), path)
    data = path.read_bytes()
    for end in range(0, len(data), len(data) // 40):
        path.write_bytes(data[:end])
        assert str(what_it_is(path))
