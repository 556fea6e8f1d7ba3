# SPDX-License-Identifier: BSD-3-Clause
"""Find out which form of model MODEL on the command line is."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypeGuard

from openneutron.device.data.python_function import PythonFunction
from openneutron.device.files import content, existing, nearest, obstacle
from openneutron.device.forms import LITERT, MODELS, SAVED_MODEL, Form, Kind, form_of, listed, model_form, of_content
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.options import DataOptions, LoadingOptions, changed

DASH = "-"


def given_file(name: str) -> Path:
    """Return the file of this name; for ``-`` the bytes of standard input as a temporary file, which Python deletes when it
    exits.

    Raises InvalidModelError where there is no such file, or nothing on standard input.
    """
    return from_standard_input() if name == DASH else existing(name)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="openneutron-stdin-")


def from_standard_input() -> Path:
    """Return the bytes of standard input as a temporary file, with the suffix of their format. Raises InvalidModelError
    where there are none."""
    data = sys.stdin.buffer.read() if sys.stdin is not None else b""
    if not data:
        raise InvalidModelError("standard input is empty; '-' reads a file from there.")
    path = Path(_folder().name) / "stdin"
    path.write_bytes(data)
    form = of_content(path)
    return path if form is None else path.rename(path.with_suffix(form.suffix))


BUILT_IN = (
    "autoencoder", "cifarnet", "crnn", "ds_cnn", "gru_kws", "lstm_kws", "mobilenet_v1", "mobilenet_v2",
    "mobilenet_v3_small", "noise_suppression", "resnet8", "speech_enhancement", "streaming_lstm_kws", "streaming_tcn",
    "tcn", "text_decoder", "unet", "transformer_encoder", "vww", "wake_word",
)  # fmt: skip
"""The names in openneutron.pytorch.source.models, repeated here because importing that module takes PyTorch."""

NEUTRON_GRAPH = b"NeutronGraph"
"""The code of the custom operator that compiled ``.tflite`` files have, repeated here because importing its module takes
LiteRT."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file with a model, or with a compiled model. ``loading`` has the options of the forms that take any."""

    path: Path
    form: Form
    loading: LoadingOptions = LoadingOptions()
    is_compiled: bool = False

    def __str__(self) -> str:
        return self.path.name

    @property
    def name(self) -> str:
        """Return the name, without a suffix, that result files get: the file's stem, followed by ``_neutron`` for a
        model of kind ``Kind.LITERT``."""
        return f"{self.path.stem}_neutron" if self.form.kind is Kind.LITERT else self.path.stem


@dataclass(frozen=True, slots=True)
class BuiltInModel:
    """One of this project's own networks."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class DataParameters:
    """Calibration data on the command line: ``path`` is a path or ``file.py:loader``, None without data."""

    path: str | None = None
    options: DataOptions = DataOptions()


ModelSource = ModelFile | PythonFunction | BuiltInModel


def is_litert(source: ModelSource) -> TypeGuard[ModelFile]:
    """Return whether a model needs no PyTorch: a LiteRT file, or a compiled file."""
    return isinstance(source, ModelFile) and source.form.kind is not Kind.PYTORCH


def is_float_file(source: ModelSource) -> bool:
    """Return whether a model is a float ``.tflite``, which is quantized here. Raises InvalidModelError for a damaged one."""
    if not is_litert(source) or source.is_compiled:
        return False
    from openneutron import litert

    # The shapes of inputs may be open here, which the form's reader refuses.
    return (
        litert.read(source.path) if source.form is LITERT else source.form.read(source.path, source.loading)
    ).is_float


def parse(model: str, compiled: bool = False) -> ModelSource:
    """Return the form of model that MODEL names. With ``compiled``, a compiled file is such a form too.

    A file that MODEL names exists; a built-in model of the name may not exist.

    Raises InvalidModelError, with the nearest existing name, where MODEL has none of the forms or its file does not
    exist.
    """
    if model == DASH:
        read = from_standard_input()
        if read.suffix != LITERT.suffix:
            raise InvalidModelError("standard input is no .tflite; models of other forms have to be files.")
        return ModelFile(read, LITERT)
    file, colon, function = model.rpartition(":")
    if colon and file.endswith(".py"):
        if not function.isidentifier():
            raise InvalidModelError(f"'{model}': '{function}' is no function's name. Write file.py:function.")
        return PythonFunction(existing(file), function)
    path = Path(model)
    if path.suffix == ".py":
        raise InvalidModelError(
            f"'{model}' names no function. Write {model}:function; it returns a module and example inputs."
        )
    form = form_of(path)
    words = f"a built-in name, file.py:function, or a {listed(MODELS)} file"
    if form is None and not path.suffix and path.name == model and (model in BUILT_IN or not path.exists()):
        return BuiltInModel(model)
    if form is not None and compiled and is_compiled(form, path):
        return ModelFile(existing(model), form, is_compiled=True)
    return ModelFile(path, model_form(path, "MODEL", words, on_command_line=True))


def is_compiled(form: Form, path: Path) -> bool:
    """Return whether a file is compiled: a ``.pte``, or a ``.tflite`` with NeutronGraphs."""
    return form.kind is Kind.COMPILED or (
        form.kind is Kind.LITERT and form is not SAVED_MODEL and NEUTRON_GRAPH in content(existing(str(path)))
    )


# -- checks of a PyTorch model that run before PyTorch is loaded --------------------------------------------------------


def check_early(
    source: ModelSource, samples: DataParameters, weights: Path | None, compared: str | None = None
) -> None:
    """Check before PyTorch is loaded, which takes seconds, that the named files exist and that a model's file
    contains the function. ``compared`` is the data of ``--data``, from which scales come too if ``samples`` has none.

    Raises InvalidModelError where the built-in model or function does not exist, InvalidOptionError where ``samples``
    or ``weights`` can't be read, and MissingToolError where a package for the samples is not installed.
    """
    if isinstance(source, BuiltInModel) and source.name not in BUILT_IN:
        raise InvalidModelError(
            f"there is no built-in model '{source}'.{nearest(source.name, BUILT_IN)} There are {', '.join(BUILT_IN)}."
        )
    if isinstance(source, PythonFunction):
        source.check()
    if weights is not None and (problem := obstacle(weights)) is not None:
        raise InvalidOptionError(f"--weights: '{weights}' {problem}.")
    if samples.path is None and compared is not None:
        check_data(replace(samples, path=compared), "--data")
    else:
        check_data(samples)


def check_data(samples: DataParameters, option: str = "--calibration") -> None:
    """Check the data of an option as far as that is possible without the model.

    Raises InvalidOptionError where the data can't be used, or an option of data is given without data, MissingToolError
    where a package for its files is not installed.
    """
    options = samples.options
    if samples.path is None:
        for name in changed(options):
            spelled = f"--{name.replace('_', '-')}"
            raise InvalidOptionError(
                f"{spelled}: there is no calibration data that it is about. Give --calibration too."
            )
        return
    from openneutron.device import data

    assert not callable(options.preprocess)
    data.check(samples.path, options.preprocess, options.sample_rate, options.calibration_samples, option)
