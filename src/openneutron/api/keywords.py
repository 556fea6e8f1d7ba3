# SPDX-License-Identifier: BSD-3-Clause
"""The options of ``openneutron.compile``, without importing torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, cast

from openneutron.errors import InvalidOptionError

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule


class FileOptions(TypedDict, total=False):
    """The options for a ``.tflite`` file; PyTorch models accept them too."""

    target: str
    sram_budget: int | None
    operators_not_to_delegate: Sequence[str]
    progress: Callable[[str, int, int], None] | None
    name: str
    io_place: str
    fetch_constants_to_sram: bool
    intermediates_dir: str | os.PathLike[str] | None
    kernel_selection: str | os.PathLike[str] | None
    extra_flags: str | Sequence[str] | None
    must_delegate: bool


class ModelOptions(FileOptions, total=False):
    """The options for a PyTorch model: the parameters of ``openneutron.api.pytorch.compile``."""

    example_kwargs: Mapping[str, Any] | None
    calibration: Iterable[Any] | None
    channels_last: bool | None
    io: str
    keep_float: Sequence[object]
    train_fn: Callable[[GraphModule], None] | None
    use_neutron_for_format_conversion: bool
    allow_no_op_partitions: bool
    preserve_ops: Sequence[torch._ops.OpOverload]
    converter: str
    any_runtime: bool


class ExportedOptions(ModelOptions, total=False):
    """Those for the path of a ``.pt2`` file: the parameters of ``openneutron.pytorch.source.exported_file.load_exported`` too."""

    trust: bool
    imports: Sequence[str]


LOADING = ("trust", "imports")
"""The options of a ``.pt2`` file that say how it is loaded."""


def without_loading(options: ExportedOptions) -> ModelOptions:
    """Return the options of what a ``.pt2`` file holds, or of a model that is in memory."""
    return cast(ModelOptions, {option: value for option, value in options.items() if option not in LOADING})


def check_module_options(options: ExportedOptions) -> None:
    """Raises InvalidOptionError where a model in memory is given an option that only the loading of a ``.pt2`` has use for."""
    for option in LOADING:
        if options.get(option):
            raise InvalidOptionError(
                f"{option}: it is for the path of a .pt2 file; the model is in memory. Leave it out."
            )


def check_file_options(name: str, example_inputs: object, options: Mapping[str, object]) -> None:
    """Raise InvalidOptionError for an option that does not apply to a ``.tflite`` file, TypeError for an unknown
    option."""
    given = dict(options) if example_inputs is None else {"example_inputs": example_inputs, **options}
    for option, value in given.items():
        if option in FileOptions.__annotations__:
            continue
        if option not in ExportedOptions.__annotations__ and option != "example_inputs":
            raise TypeError(f"compile() got an unexpected keyword argument '{option}'")
        if option in LOADING:
            if value:
                raise InvalidOptionError(
                    f"{option}: this option is for .pt2 files, which '{name}' is not. Leave it out."
                )
        elif option == "converter":
            if value != "open":
                raise InvalidOptionError(
                    f"converter: it is for PyTorch models; '{name}' is compiled here, and NXP's own tool takes such files "
                    "itself."
                )
        elif value is not None:
            raise InvalidOptionError(
                f"{option}: it is for PyTorch models; '{name}' is quantized and has its own types. Leave it out."
            )
