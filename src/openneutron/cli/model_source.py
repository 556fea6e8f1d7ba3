# SPDX-License-Identifier: BSD-3-Clause
"""The forms of MODEL on the command line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from openneutron.cli import calibration
from openneutron.cli.standard_input import DASH, from_standard_input
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.files import existing, nearest, obstacle

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
    """An int8 ``.tflite`` file. A result is called after ``name``, of every form of a model."""

    path: Path

    def __str__(self) -> str:
        return self.path.name

    @property
    def name(self) -> str:
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
    def name(self) -> str:
        return self.path.stem


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function of a Python file; it takes nothing and returns a module and a tuple of example inputs."""

    path: Path
    name: str

    def __str__(self) -> str:
        return f"{self.path.name}:{self.name}"


@dataclass(frozen=True, slots=True)
class BuiltInModel:
    """One of this project's own networks."""

    name: str

    def __str__(self) -> str:
        return self.name


PyTorchModel = ExportedFile | PythonFunction | BuiltInModel
ModelSource = LiteRTFile | PyTorchModel


def parse(model: str) -> ModelSource:
    """Return the form that MODEL names. Files exist; the name of a built-in model may be unknown.

    Raises InvalidModelError, with the nearest existing name, where MODEL has none of the forms or its file does not
    exist.
    """
    if model == DASH:
        read = from_standard_input()
        if read.suffix != ".tflite":
            raise InvalidModelError("standard input is no .tflite; models of other forms have to be files.")
        return LiteRTFile(read)
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
    if path.suffix in (".pt", ".pth") and obstacle(path) is None:
        from openneutron.pytorch.source.file_kind import what_it_is

        if "TorchScript" in (kind := what_it_is(path)):
            raise InvalidModelError(f"'{model}' {kind}; TorchScript has no graph to quantize. MODEL is {FORMS}.")
    if path.suffix in OTHER_SUFFIXES:
        raise InvalidModelError(f"'{model}': {OTHER_SUFFIXES[path.suffix]}. MODEL is {FORMS}.")
    if not path.suffix and path.name == model:
        return BuiltInModel(model)
    raise InvalidModelError(f"'{model}' is no model: MODEL is {FORMS}.")


# -- checks of a PyTorch model that run before PyTorch is loaded --------------------------------------------------------

MADE_WHILE_IT_RUNS = ("globals", "vars", "locals", "exec", "eval", "setattr")
"""A file that uses one of these may define names that its text does not show."""


def check_early(source: PyTorchModel, samples: Path | None, weights: Path | None) -> None:
    """Check before PyTorch is loaded, which takes seconds, that the named files exist, and that the text of a model's file contains the function.

    Raises InvalidModelError where the built-in model or function does not exist, InvalidOptionError where ``samples``
    or ``weights`` can't be read.
    """
    if isinstance(source, BuiltInModel) and source.name not in BUILT_IN:
        raise InvalidModelError(
            f"there is no built-in model '{source}'.{nearest(source.name, BUILT_IN)} There are {', '.join(BUILT_IN)}."
        )
    if isinstance(source, PythonFunction):
        _check_function(source)
    if weights is not None and (problem := obstacle(weights)) is not None:
        raise InvalidOptionError(f"--weights: '{weights}' {problem}.")
    if samples is not None:
        calibration.files_in(samples)


def _check_function(source: PythonFunction) -> None:
    try:
        tree = ast.parse(source.path.read_bytes())
    except SyntaxError as error:
        line = "" if error.lineno is None else f", line {error.lineno}"
        raise InvalidModelError(f"'{source}'{line}: SyntaxError: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes, nesting without end
        raise InvalidModelError(f"'{source}' is no Python file: {str(error) or type(error).__name__}.") from error
    nodes = list(ast.walk(tree))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    elsewhere = any(isinstance(node, ast.Global) for node in nodes) or bool(used & set(MADE_WHILE_IT_RUNS))
    names = set(_names(tree.body))
    if source.name in names or names & {"*", "__getattr__"} or elsewhere:
        return
    functions = (node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    raise InvalidModelError(f"'{source.path.name}' has no function '{source.name}'.{nearest(source.name, functions)}")


def _names(body: list[ast.stmt]) -> Iterator[str]:
    """Return the names that a module's statements assign, including those in nested blocks; ``*`` for a wildcard
    import."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield statement.name
            continue
        for node in ast.walk(statement):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield node.name
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, ast.alias):
                yield (node.asname or node.name).partition(".")[0]
