# SPDX-License-Identifier: BSD-3-Clause
"""Load PyTorch models that the command line names, with their example inputs, weights and calibration samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from openneutron.cli.model_source import BuiltInModel, DataParameters, ModelFile, ModelSource
from openneutron.device.data.python_function import PythonFunction
from openneutron.device.forms import SAFETENSORS, form_of
from openneutron.errors import InvalidModelError, InvalidOptionError, MissingToolError
from openneutron.options import InputOptions, Request, changed
from openneutron.pytorch.source import models
from openneutron.pytorch.source.calibration_data import CalibrationData, ExampleInputs
from openneutron.pytorch.source.exporting import ModelInputs
from openneutron.pytorch.source.file_kind import what_it_is

Inputs = tuple[Any, ...]

BUILT_IN_SAMPLES = 32
"""The number of random inputs with which a built-in model with random weights is calibrated."""

NAMES_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded model and the example inputs of one call. ``in_form`` brings samples of a built-in network into the form of these
    inputs."""

    model: nn.Module | ExportedProgram = field(repr=False)
    call: ModelInputs = field(repr=False)
    in_form: Callable[[Iterable[Any]], Iterable[Any]] = field(default=list, repr=False)


def load(source: ModelSource, weights: Path | None = None, inputs: InputOptions = InputOptions()) -> Loaded:
    """Return the model with its example inputs. A module is in eval mode, and has the weights of the file ``weights``
    where one is given. With options in ``inputs``, the model takes a camera's frames.

    Raises InvalidModelError where the model does not exist or is of another type, InvalidOptionError where the
    weights or the options don't fit, or where weights are given for a model's file, and MissingToolError where the
    package for the weights is not installed.
    """
    loaded = _loaded(source, weights)
    if not changed(inputs):
        return loaded
    from openneutron.pytorch.frames import of_frames

    model, frames = of_frames(loaded.model, loaded.call, inputs, str(source))
    return Loaded(model.eval(), frames.example, frames.samples)


def _loaded(source: ModelSource, weights: Path | None) -> Loaded:
    if isinstance(source, ModelFile):
        if weights is not None:
            raise InvalidOptionError(
                f"--weights: '{source}' has its own weights in it; load others before torch.export."
            )
        return _from_file(source)
    model, inputs = models.get(source.name) if isinstance(source, BuiltInModel) else _from_function(source)
    if weights is not None:
        _load_weights(model, weights)
    return Loaded(model.eval(), ModelInputs(inputs, {}))


def samples(source: ModelSource, loaded: Loaded, data: DataParameters, weights: Path | None) -> Iterable[Any]:
    """Return calibration samples from the data on the command line. Without data, return random samples for a built-in model with
    random weights, else the example inputs.

    Raises InvalidOptionError where they don't fit the model.
    """
    if data.path is not None:
        return CalibrationData.of(data.path, loaded.call, data.options, "--calibration")
    if isinstance(source, BuiltInModel) and weights is None:
        return loaded.in_form(models.samples(source.name, BUILT_IN_SAMPLES))
    return example_samples(loaded)


def requested(request: Request, loaded: Loaded, calibration: Any) -> Request:
    """Return a request with a loaded model, its inputs and its calibration samples."""
    call = loaded.call
    return replace(
        request, model=loaded.model, example_inputs=call.args, example_kwargs=call.kwargs, calibration=calibration
    )


def example_samples(loaded: Loaded) -> Iterable[Any]:
    """Return the example inputs as the only calibration sample."""
    return ExampleInputs([loaded.call.as_sample()])


def _from_function(source: PythonFunction) -> tuple[nn.Module, Inputs]:
    purpose = "it must return a module and example inputs"
    returned = source.run(source.load(purpose), purpose)
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


def _from_file(source: ModelFile) -> Loaded:
    program = source.form.read(source.path, source.loading)
    inputs, keywords = getattr(program, "example_inputs", None) or ((), {})
    if not inputs and not keywords:
        raise InvalidModelError(
            f"'{source}' has no example inputs. Export it with a tuple of them: torch.export.export(model, inputs)."
        )
    return Loaded(program, ModelInputs(tuple(inputs), keywords))


def _load_weights(model: nn.Module, path: Path) -> None:
    try:
        found = (
            _safetensors(path)
            if form_of(path) is SAFETENSORS
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except MissingToolError:
        raise
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


def _safetensors(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a ``.safetensors`` file. Raises MissingToolError where its package is not installed."""
    try:
        from safetensors.torch import load_file
    except ModuleNotFoundError as error:
        raise MissingToolError(
            "A .safetensors takes safetensors, which is not installed: pip install safetensors."
        ) from error
    return load_file(path)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:NAMES_SHOWN])
    return shown if len(names) <= NAMES_SHOWN else f"{shown} and {len(names) - NAMES_SHOWN} more"
