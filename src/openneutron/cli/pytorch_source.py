# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch models that the command line names, with their example inputs, weights and calibration samples."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram

from openneutron.cli import calibration
from openneutron.cli.ending import said
from openneutron.cli.model_source import BuiltInModel, ExportedFile, PythonFunction, PyTorchModel
from openneutron.errors import InvalidModelError, InvalidOptionError, OpenNeutronError
from openneutron.files import nearest
from openneutron.pytorch.source import models
from openneutron.pytorch.source.exported_file import load_exported
from openneutron.pytorch.source.exporting import ModelInputs
from openneutron.pytorch.source.file_kind import what_it_is

Inputs = tuple[Any, ...]

BUILT_IN_SAMPLES = 32
"""Random inputs that a built-in model with its random weights is calibrated with."""

NAMES_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model and one call of it."""

    model: nn.Module | ExportedProgram = field(repr=False)
    call: ModelInputs = field(repr=False)


def as_sample(call: ModelInputs) -> Any:
    """Return the call as a calibration sample."""
    return (call.args, dict(call.kwargs)) if call.kwargs else call.args


def load(source: PyTorchModel, weights: Path | None = None) -> Loaded:
    """Return the model, in eval mode, with its weights loaded where a file of them is given.

    Raises InvalidModelError where the model does not exist or is of another type, InvalidOptionError where the weights
    don't fit.
    """
    if isinstance(source, ExportedFile):
        if weights is not None:
            raise InvalidOptionError(
                f"--weights: '{source}' has its own weights in it; load others before torch.export."
            )
        return _exported(source)
    model, inputs = models.get(source.name) if isinstance(source, BuiltInModel) else _from_function(source)
    if weights is not None:
        _load_weights(model, weights)
    return Loaded(model.eval(), ModelInputs(inputs, {}))


def samples(source: PyTorchModel, loaded: Loaded, path: Path | None, weights: Path | None) -> list[Any]:
    """Return calibration samples from a file or folder. Without one, return random samples for a built-in model with
    random weights, else the example inputs.

    Raises InvalidOptionError where they don't fit the model.
    """
    if path is not None:
        wanted = [calibration.Wanted(tuple(x.shape), _numpy_type(x)) for x in loaded.call.tensors]
        return [as_sample(_filled(loaded.call, arrays)) for arrays in calibration.load(path, wanted)]
    if isinstance(source, BuiltInModel) and weights is None:
        return models.samples(source.name, BUILT_IN_SAMPLES)
    return [as_sample(loaded.call)]


def _filled(call: ModelInputs, arrays: Sequence[np.ndarray]) -> ModelInputs:
    """Return the call with these for its tensors, in their order."""
    rest = iter(arrays)
    return call.rebuilt(
        [torch.from_numpy(next(rest)) if isinstance(leaf, torch.Tensor) else leaf for leaf in call.leaves]
    )


def _numpy_type(tensor: torch.Tensor) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = torch.empty(0, dtype=tensor.dtype).numpy().dtype
        return found
    except TypeError as error:
        raise InvalidModelError(f"the model takes {tensor.dtype}, which NumPy has no type for; use float32.") from error


def _from_function(source: PythonFunction) -> tuple[nn.Module, Inputs]:
    module = _run(source, lambda: _import(source.path))
    function = getattr(module, source.name, None)
    if function is None or not callable(function):
        hint = nearest(source.name, (name for name, value in vars(module).items() if callable(value)))
        raise InvalidModelError(f"'{source.path.name}' has no function '{source.name}'.{hint}")
    returned = _run(source, function)
    what = f"'{source}' returned {type(returned).__name__}; it must return a module and a tuple of example inputs."
    if not isinstance(returned, tuple) or len(returned) != 2 or not isinstance(returned[0], nn.Module):
        raise InvalidModelError(what)
    model, inputs = returned
    inputs = (inputs,) if isinstance(inputs, torch.Tensor) else inputs
    if not isinstance(inputs, (tuple, list)) or not inputs:
        raise InvalidModelError(
            f"'{source}' returned a module and {type(returned[1]).__name__}; example inputs are a tuple of the model's "
            "arguments."
        )
    return model, tuple(inputs)


def _import(path: Path) -> Any:
    with _search(path.resolve().parent):
        name = _module_name(path)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return module


def _module_name(path: Path) -> str:
    """Return the module name for the file: its stem, or another name where an installed module such as torch has that
    name."""
    try:
        there = importlib.util.find_spec(path.stem)
    except (ImportError, ValueError):  # no name of a module, or half a module
        there = None
    taken = there is not None and (there.origin is None or Path(there.origin) != path.resolve())
    return f"model_in_{path.stem}" if taken else path.stem


@contextmanager
def _search(folder: Path) -> Iterator[None]:
    """Add the file's folder to the end of the module search path: a file named re.py then hides no installed module."""
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _run(source: PythonFunction, call: Callable[[], Any]) -> Any:
    """Return the result of the user's code; report its exceptions as a message with the line that raised."""
    try:
        with _search(source.path.resolve().parent):
            return call()
    except (OpenNeutronError, KeyboardInterrupt):
        raise
    except BaseException as error:
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if Path(frame.filename).name == source.path.name
        ]
        line = f", line {frames[-1].lineno}" if frames else ""
        if isinstance(error, SyntaxError) and error.lineno is not None:
            line = f", line {error.lineno}"
        if isinstance(error, SystemExit):
            raise InvalidModelError(
                f"'{source}'{line}: it calls sys.exit({error.code!r}); it must return a module and example inputs."
            ) from error
        raise InvalidModelError(f"'{source}'{line}: {said(error)}") from error


def _exported(source: ExportedFile) -> Loaded:
    program = load_exported(source.path, source.trust, source.imports)
    inputs, keywords = program.example_inputs or ((), {})
    if not inputs and not keywords:
        raise InvalidModelError(
            f"'{source}' has no example inputs. Export it with a tuple of them: torch.export.export(model, inputs)."
        )
    return Loaded(program, ModelInputs(tuple(inputs), keywords))


def _load_weights(model: nn.Module, path: Path) -> None:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zipfile and torch each have errors of their own
        raise InvalidOptionError(
            f"--weights: '{path}' {what_it_is(path)}; a state_dict is needed here: "
            "torch.save(model.state_dict(), 'weights.pt')."
        ) from error
    state = found.get("state_dict", found) if isinstance(found, dict) else found
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise InvalidOptionError(f"--weights: '{path}' holds {type(found).__name__}; a state_dict is needed here.")
    wanted = model.state_dict()
    for what, names in (
        ("lacks", [name for name in wanted if name not in state]),
        ("has, and the model does not,", [name for name in state if name not in wanted]),
        ("has in another shape", [n for n in wanted if n in state and wanted[n].shape != state[n].shape]),
    ):
        if names:
            raise InvalidOptionError(
                f"--weights: '{path}' {what} {_listed(names)}. It must be a state_dict of this model."
            )
    model.load_state_dict(state)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:NAMES_SHOWN])
    return shown if len(names) <= NAMES_SHOWN else f"{shown} and {len(names) - NAMES_SHOWN} more"
