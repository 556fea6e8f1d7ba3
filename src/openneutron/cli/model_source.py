# SPDX-License-Identifier: BSD-3-Clause
"""The forms of MODEL on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.given_file import existing, obstacle
from openneutron.pytorch.source.file_kind import what_it_is

FORMS = "a built-in name, file.py:function, a .pt2 file or a .tflite file"
BUILT_IN = (
    "autoencoder", "cifarnet", "ds_cnn", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small", "resnet8", "tcn", "unet",
    "transformer_encoder", "vww",
)  # fmt: skip
"""The names in openneutron.pytorch.source.models, repeated here because importing that module takes PyTorch."""

OTHER_SUFFIXES = {
    ".pte": "it is compiled already; `openneutron run` runs it",
    ".pt": "PyTorch's own file has no program in it; give weights with --weights, beside file.py:function",
    ".pth": "PyTorch's own file has no program in it; give weights with --weights, beside file.py:function",
    ".onnx": "convert it to an int8 .tflite, or give the PyTorch model it was made from",
}


@dataclass(frozen=True, slots=True)
class LiteRTFile:
    """An int8 ``.tflite`` file."""

    path: Path

    def __str__(self) -> str:
        return self.path.name

    @property
    def stem(self) -> str:
        """Return the name that a result is called after."""
        return f"{self.path.stem}_neutron"


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A ``.pt2`` file: a program that torch.export saved; ``trust`` and ``imports`` are those of ``load_exported``."""

    path: Path
    trust: bool = False
    imports: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.path.name

    @property
    def stem(self) -> str:
        return self.path.stem


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function of a Python file; it takes nothing and returns a module and a tuple of example inputs."""

    path: Path
    function: str

    def __str__(self) -> str:
        return f"{self.path.name}:{self.function}"

    @property
    def stem(self) -> str:
        return self.function


@dataclass(frozen=True, slots=True)
class BuiltInModel:
    """One of this project's own networks."""

    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def stem(self) -> str:
        return self.name


PyTorchModel = ExportedFile | PythonFunction | BuiltInModel
ModelSource = LiteRTFile | PyTorchModel


def parse(model: str) -> ModelSource:
    """Return the form that MODEL names. Files exist; the name of a built-in model may be unknown.

    Raises InvalidModelError, with the nearest existing name, where MODEL has none of the forms or its file does not
    exist.
    """
    file, colon, function = model.rpartition(":")
    if colon and file.endswith(".py"):
        if not function.isidentifier():
            raise InvalidModelError(f"'{model}': '{function}' is no function's name. Write file.py:function.")
        return PythonFunction(existing(file), function)
    path = Path(model)
    if path.suffix == ".tflite":
        return LiteRTFile(existing(model))
    if path.suffix == ".pt2":
        return ExportedFile(existing(model))
    if path.suffix == ".py":
        raise InvalidModelError(
            f"'{model}' names no function. Write {model}:function; it returns a module and example inputs."
        )
    if path.suffix in (".pt", ".pth") and obstacle(path) is None and "TorchScript" in (kind := what_it_is(path)):
        raise InvalidModelError(f"'{model}' {kind}; TorchScript has no graph to quantize. MODEL is {FORMS}.")
    if path.suffix in OTHER_SUFFIXES:
        raise InvalidModelError(f"'{model}': {OTHER_SUFFIXES[path.suffix]}. MODEL is {FORMS}.")
    if not path.suffix and path.name == model:
        return BuiltInModel(model)
    raise InvalidModelError(f"'{model}' is no model: MODEL is {FORMS}.")


def only_for_pytorch(source: LiteRTFile, option: str, value: object) -> None:
    """Raise InvalidOptionError where a quantized file is given an option for PyTorch models."""
    if option == "--converter" and value is not None:
        raise InvalidOptionError(
            f"{option}: it is for PyTorch models; '{source}' is compiled here, and NXP's own tool takes such files itself."
        )
    if value is not None:
        raise InvalidOptionError(f"{option}: it is for PyTorch models; '{source}' is quantized and has its own types.")
