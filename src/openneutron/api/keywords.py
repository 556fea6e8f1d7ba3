# SPDX-License-Identifier: BSD-3-Clause
"""Checks of the arguments of ``openneutron.compile``, without importing torch."""

from __future__ import annotations

from collections.abc import Mapping

from openneutron.errors import InvalidOptionError
from openneutron.model_options import (
    DelegationOptions,
    LoadingOptions,
    QuantizationOptions,
    changed,
)
from openneutron.options import OPEN, CompileOptions

OF_FILES = ("operators_not_to_delegate", "must_delegate")
"""The delegation options that a ``.tflite`` file has too."""


def check_not_loaded(loading: LoadingOptions) -> None:
    """Raise InvalidOptionError where a model in memory is given options for the loading of a file."""
    for option in changed(loading):
        raise InvalidOptionError(f"{option}: it is for the path of a .pt2 file; the model is in memory. Leave it out.")


def check_for_file(
    name: str,
    arguments: Mapping[str, object],
    options: CompileOptions,
    quantization: QuantizationOptions,
    delegation: DelegationOptions,
    loading: LoadingOptions,
) -> None:
    """Raise InvalidOptionError for an option that does not apply to a ``.tflite`` file."""
    for option in changed(loading):
        raise InvalidOptionError(f"{option}: this option is for .pt2 files, which '{name}' is not. Leave it out.")
    given = [argument for argument, value in arguments.items() if value is not None]
    given += [*changed(quantization), *(option for option in changed(delegation) if option not in OF_FILES)]
    for option in given:
        raise InvalidOptionError(
            f"{option}: it is for PyTorch models; '{name}' is quantized and has its own types. Leave it out."
        )
    if options.converter != OPEN:
        raise InvalidOptionError(
            f"converter: it is for PyTorch models; '{name}' is compiled here, and NXP's own tool takes such files itself."
        )
