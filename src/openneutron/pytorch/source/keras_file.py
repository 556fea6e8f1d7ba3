# SPDX-License-Identifier: BSD-3-Clause
"""Read a ``.keras`` file with Keras on PyTorch, and make a program of PyTorch of it."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from openneutron.device.third_party import suppressed
from openneutron.errors import InvalidModelError
from openneutron.litert.input_shapes import check_names
from openneutron.options import LoadingOptions
from openneutron.pytorch.source.exported_file import example_input, import_module

BACKEND = "KERAS_BACKEND"
"""The environment variable that selects Keras' backend when Keras is imported."""


class _Inference(nn.Module):
    """A Keras model in inference, with its inputs as positional arguments."""

    def __init__(self, model: Any, names: Sequence[str]) -> None:
        super().__init__()
        self.model, self.names = model, tuple(names)

    def forward(self, *inputs: Tensor) -> Any:
        return self.model(inputs[0] if len(inputs) == 1 else list(inputs), training=False)


def read_keras(
    path: Path,
    trust: bool = False,
    imports: Sequence[str] = (),
    input_shapes: Mapping[str, Sequence[int]] | None = None,
) -> ExportedProgram:
    """Return the program of a ``.keras`` file, with random example inputs.

    Nothing in the file is executed, unless ``trust`` permits it: it may have Python functions in Lambda layers. ``imports`` are modules that
    register the file's classes. ``input_shapes`` has the shape of each input by name, for axes beside the batch that the file does not fix.

    Raises InvalidModelError for a file that can't be used, InvalidOptionError for a module that can't be imported or a shape that does not fit.
    """
    keras = _keras(path.name)
    if not zipfile.is_zipfile(path):
        raise InvalidModelError(
            f"'{path.name}' is no .keras file, or is cut: it has no end of a zip archive. Save or copy it again."
        )
    for module in imports:
        import_module(module)
    try:
        with suppressed(), _with_suffix(path) as named:
            model = keras.saving.load_model(str(named), compile=False, safe_mode=not trust)
    except Exception as error:  # Keras, zipfile and h5py have errors of their own
        if found := re.search(r"Could not locate class '([^']*)'", str(error)):
            raise InvalidModelError(
                f"'{path.name}' can't be read: no module has registered its class '{found[1]}'. Name the module with --import, or compile the "
                "model in Python."
            ) from error
        raise InvalidModelError(f"'{path.name}' can't be read: {_why(error)}.") from error
    return program_of(model, path.name, LoadingOptions(input_shapes=input_shapes))


def program_of(model: Any, name: str, loading: LoadingOptions = LoadingOptions()) -> ExportedProgram:
    """Return the program of a Keras model in memory, with random example inputs. Raises as ``read_keras`` does."""
    _keras(name)
    if not getattr(model, "inputs", None):
        raise InvalidModelError(
            f"'{name}' has no fixed inputs. Make it a functional or sequential model, or pass it with example inputs."
        )
    check_names(loading.input_shapes or {}, [item.name for item in model.inputs], name)
    inputs = [_example(item, name, loading.input_shapes or {}) for item in model.inputs]
    module = _Inference(model, [item.name for item in model.inputs]).eval()
    try:
        with suppressed(), torch.no_grad():
            return torch.export.export(module, tuple(inputs), strict=False)
    except Exception as error:
        raise InvalidModelError(f"'{name}': torch.export can't export it: {_why(error)}.") from error


@contextmanager
def _with_suffix(path: Path) -> Iterator[Path]:
    """Yield a path of the file that ends in ``.keras``: Keras reads no other."""
    if path.suffix == ".keras":
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder) / f"{path.name}.keras"
        link.symlink_to(path.resolve())
        yield link


def _keras(name: str) -> Any:
    """Import Keras with its PyTorch backend, and return the module. Raises InvalidModelError if this process has
    already imported Keras with another backend. ``name``: the file's name in that message."""
    if "keras" not in sys.modules:
        os.environ[BACKEND] = "torch"
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras

    if (backend := keras.config.backend()) != "torch":
        raise InvalidModelError(
            f"'{name}' is read with Keras on PyTorch; this process has imported Keras on {backend}. Set KERAS_BACKEND=torch before the import."
        )
    return keras


def _example(item: Any, name: str, shapes: Mapping[str, Sequence[int]]) -> Tensor:
    """Return a random tensor for an input of a model; a batch is 1."""
    sizes = tuple(item.shape)
    if len(sizes) == 1 and sizes[0] is None:
        sizes = (1,)
    dtype = getattr(torch, str(item.dtype)) if "int" in str(item.dtype) else torch.float32
    return example_input(item.name, name, sizes, shapes.get(item.name), dtype)


def _why(error: Exception) -> str:
    """Return the reason of an error, and what to do where code in the file is the reason."""
    first = " ".join(str(error).split())[:240].rstrip(".")
    if "safe_mode" in str(error) or "unsafe" in str(error).lower():
        return "it has a function in a Lambda layer, which is code. Give --trust for a file whose author you trust"
    return first or type(error).__name__
