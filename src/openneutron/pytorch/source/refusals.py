# SPDX-License-Identifier: BSD-3-Clause
"""Models that torch.export can't take, in words: the fact, and the line or the module of the user's model."""

from __future__ import annotations

import functools
import importlib.util
import io
import linecache
import logging
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from types import TracebackType

import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from openneutron.errors import InvalidModelError
from openneutron.third_party import PACKAGES

QUANTIZED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.ao.nn.sparse.quantized")
QAT = ("torch.ao.nn.qat", "torch.ao.nn.intrinsic.qat")
PREPARED = ("torch.ao.quantization.", "torchao.quantization.")
"""The packages of modules that are quantized, trained with quantization, and that observe or quantize values."""

FLOAT_MODEL = "Pass the float model with calibration=[...], or an ExportedProgram that NeutronQuantizer and convert_pt2e quantized"


def check_float(model: nn.Module, name: str) -> None:
    """Raise InvalidModelError for a model that PyTorch's eager or FX quantization has quantized or prepared, wholly or in part."""
    if isinstance(model, torch.jit.ScriptModule):
        raise InvalidModelError(
            f"'{name}' is a TorchScript module, which torch.export can't trace. Pass the Python module that it was made from."
        )
    for path, module in model.named_modules():
        place, kind = path or type(model).__name__, f"{type(module).__module__}.{type(module).__qualname__}"
        if isinstance(module, torch.jit.ScriptModule):
            raise InvalidModelError(
                f"'{name}': its module '{place}' is a TorchScript module, which torch.export can't trace. Pass the Python module "
                "that it was made from."
            )
        if kind.startswith(QUANTIZED) or kind.startswith(QAT) or _observes(module, kind):
            state = "is quantized already" if kind.startswith(QUANTIZED) else "is prepared for another quantization"
            raise InvalidModelError(f"'{name}' {state}: '{place}' is a {kind}. {FLOAT_MODEL}.")
        for own, parameter in module.named_parameters(recurse=False):
            if type(parameter.data).__module__.startswith("torchao."):
                where = f"{path}.{own}" if path else own
                raise InvalidModelError(
                    f"'{name}' is quantized already: '{where}' is a {type(parameter.data).__name__}. {FLOAT_MODEL}."
                )


def _observes(module: nn.Module, kind: str) -> bool:
    return kind.startswith(PREPARED) and hasattr(module, "calculate_qparams")


@contextmanager
def silenced() -> Iterator[io.StringIO]:
    """Keep what torch logs and prints about an exception, which has the same in it, away from stderr. Yield what was printed."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.ERROR))
    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            yield printed
    finally:
        logging.disable(before)


def refusal(name: str, model: nn.Module, error: BaseException) -> InvalidModelError:
    """Return the error for an exception of torch.export or of the model's own code."""
    place = _place(model, error.__traceback__)
    if isinstance(error, SystemExit):
        return InvalidModelError(
            f"'{name}' can't be exported: its code calls sys.exit({error.code!r}) when it runs. A model must return."
        )
    if isinstance(error, GuardOnDataDependentSymNode):
        return InvalidModelError(
            f"'{name}' can't be exported: its code decides on a value that only a run computes{place}. Write that with "
            "operators on tensors, such as torch.where, or end the model before it."
        )
    while type(error).__module__ == "torch._dynamo.exc" and error.__cause__ is not None:
        error = error.__cause__
    return InvalidModelError(
        f"'{name}' can't be exported: {first_line(error)} ({type(error).__name__}){place}. "
        "Does it run on the example inputs, and do without data-dependent Python?"
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's text, without a full stop at its end."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line.rstrip(".")


LONGEST_CODE = 80
"""The number of characters of a line of source that messages show."""


def _place(model: nn.Module, trace: TracebackType | None) -> str:
    """Return the line of source where the exception comes from; where none is the user's, the module of the model."""
    names: Mapping[int, str] = {id(module): path for path, module in model.named_modules() if path}
    line, inside = "", ""
    for frame, number in traceback.walk_tb(trace):
        file = frame.f_code.co_filename
        module = frame.f_locals.get("self")
        if isinstance(module, nn.Module) and id(module) in names:
            inside = f", in its module '{names[id(module)]}' ({type(module).__name__})"
        if not file.startswith("<") and not file.startswith(_libraries()):
            code = linecache.getline(file, number).strip()
            shown = code if len(code) <= LONGEST_CODE else f"{code[:LONGEST_CODE]}..."
            line = f", at {Path(file).name}, line {number}" + (f": {shown}" if shown else "")
    return line or inside


@functools.cache
def _libraries() -> tuple[str, ...]:
    """Return the folders of code that is not the model's."""
    found = (importlib.util.find_spec(package) for package in PACKAGES)
    packages = [place for spec in found if spec is not None for place in spec.submodule_search_locations or ()]
    own = str(Path(__file__).parents[2])
    return (*packages, own, sysconfig.get_paths()["stdlib"] + "/", sys.prefix + "/bin")
