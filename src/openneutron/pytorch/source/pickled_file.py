# SPDX-License-Identifier: BSD-3-Clause
"""Read a module that torch.save has pickled, where the user trusts its author, and make a program of it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from openneutron.device.third_party import suppressed
from openneutron.errors import InvalidModelError
from openneutron.litert.input_shapes import check_names
from openneutron.pytorch.source.exported_file import TRUST, example_input, import_module
from openneutron.pytorch.source.file_kind import Kind, what_it_is

WHAT_TO_DO = {
    Kind.TORCHSCRIPT: "torch.export can't trace it. Export the Python module that it was made from",
    Kind.WEIGHTS: "Give file.py:function, which makes the module, and this file with --weights",
}

SAVE = "torch.export.save(torch.export.export(model, inputs), 'model.pt2')"


def read_pickled(
    path: Path,
    trust: bool = False,
    imports: Sequence[str] = (),
    input_shapes: Mapping[str, Sequence[int]] | None = None,
) -> ExportedProgram:
    """Return the program of a pickled module, with random example inputs.

    Loading a pickle may run code of its author, so that nothing is loaded without ``trust``. ``imports`` are modules to import first.
    ``input_shapes`` has the shape of each input by the name of ``forward``'s parameter; the inputs are float32.

    Raises InvalidModelError for a file that can't be used, InvalidOptionError for a module that can't be imported or an input that the
    module does not have.
    """
    found = what_it_is(path)
    if found.kind is not Kind.MODULE:
        raise InvalidModelError(f"'{path.name}' {found}. {WHAT_TO_DO.get(found.kind, 'Export the model: ' + SAVE)}.")
    if not trust:
        raise InvalidModelError(
            f"'{path.name}' {found}, and is not loaded: a pickle may run code of whoever made it. {TRUST}, or export the model: {SAVE}."
        )
    for module in imports:
        import_module(module)
    try:
        with suppressed():
            loaded = torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:  # a pickle may raise anything
        raise InvalidModelError(f"'{path.name}' can't be loaded: {_first(error)}.") from error
    if isinstance(loaded, dict):  # a checkpoint of a training, which has the module beside the optimizer's state
        loaded = next((value for value in loaded.values() if isinstance(value, nn.Module)), loaded)
    if not isinstance(loaded, nn.Module):
        raise InvalidModelError(f"'{path.name}' holds {type(loaded).__name__}; a module is needed here.")
    module = loaded.float().eval()
    names = _inputs(module)
    shapes = input_shapes or {}
    check_names(shapes, names, path.name)
    if missing := [name for name in _inputs(module, needed=True) if name not in shapes]:
        raise InvalidModelError(
            f"'{path.name}': the shape of the input '{missing[0]}' is not known. Give it, such as --input-shape {missing[0]}=1x3x224x224."
        )
    inputs = {name: example_input(name, path.name, shapes[name], shapes[name]) for name in names if name in shapes}
    leading = list(takewhile(inputs.__contains__, names))
    arguments = tuple(inputs.pop(name) for name in leading)
    try:
        with suppressed(), torch.no_grad():
            return torch.export.export(module, arguments, inputs, strict=False)
    except Exception as error:  # torch.export has errors of its own for each thing that it can't trace
        raise InvalidModelError(f"'{path.name}': torch.export can't export it: {_first(error)}.") from error


def _inputs(module: nn.Module, needed: bool = False) -> list[str]:
    """Return the names of the parameters of a module's ``forward``; with ``needed``, those without a default."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        item.name
        for item in parameters
        if item.kind not in (item.VAR_KEYWORD, item.VAR_POSITIONAL) and not (needed and item.default is not item.empty)
    ]


def _first(error: Exception) -> Any:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
