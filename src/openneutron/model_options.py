# SPDX-License-Identifier: BSD-3-Clause
"""The options of ``openneutron.compile`` for a model: quantization, delegation, loading and outputs.

``openneutron.options`` has those of the compiler itself.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openneutron.flags import check_choice
from openneutron.options import CompileOptions

FLOAT32, INT8 = "float32", "int8"
IO_DTYPES = (FLOAT32, INT8)
"""The types of a compiled PyTorch model's inputs and outputs."""

Progress = Callable[[str, int, int], None]
"""A function that is called with the name of a step, the number of its finished parts, and the number of all."""


def silent(_step: str, _done: int, _total: int) -> None:
    """Ignore the progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationOptions:
    """The quantization of a PyTorch model.

    Raises InvalidOptionError for an unknown ``io_dtype``.

    >>> QuantizationOptions(io_dtype="int8", keep_float=["classifier.*"]).io_dtype
    'int8'
    """

    keep_float: Sequence[object] = ()
    """Modules (names such as ``classifier.*``, or classes) and operators (``aten.softmax.int``) that stay float."""

    train_fn: Callable[[Any], None] | None = None
    """A function that trains a model (a GraphModule) with its quantization simulated, in place. The model is in
    training mode; int8 scales come from the values it sees there, and ``calibration`` is not needed. The original model stays as it
    is."""

    io_dtype: str = FLOAT32
    """The type of inputs and outputs: ``float32``, with quantization on the CPU, or ``int8``."""

    channels_last: bool | None = None
    """True: the program takes and returns images with the channels innermost, which saves a transpose at each input and
    output. None: as the example inputs are in memory. ``run`` accepts either."""

    def __post_init__(self) -> None:
        check_choice("io_dtype", self.io_dtype, IO_DTYPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationOptions:
    """The operators that run on the NPU. All but the first two fields are for PyTorch models only.

    >>> DelegationOptions(operators_not_to_delegate=["aten.relu"]).must_delegate
    True
    """

    operators_not_to_delegate: Sequence[str] = ()
    """Operators (``aten.relu``, ``aten.add.Tensor``), nodes (``aten_convolution_default_1``) and modules
    (``features.3``) of a PyTorch model that stay on the CPU; ``*``, ``?`` and ``[...]`` are wildcards. Of a
    ``.tflite``: operators (``CONV_2D``) and names of output tensors."""

    must_delegate: bool = True
    """True: a model without any operator for the NPU is an error. False: such a model is compiled for the CPU."""

    preserve_ops: Sequence[Any] = ()
    """Operators (OpOverload) to keep whole where they can be delegated, beside those that the lowering rules keep."""

    allow_no_op_partitions: bool = False
    """True delegates partitions that only rename values."""

    use_neutron_for_format_conversion: bool = True
    """True transposes contiguous images at inputs and outputs on the NPU, False in ExecuTorch's runtime."""

    any_runtime: bool = False
    """True permits CPU fallbacks for which ExecuTorch's runtime on this machine has no kernel, for another runtime that
    has one. Otherwise such a program is an error, since it would not load here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadingOptions:
    """The loading of a ``.pt2`` file.

    >>> LoadingOptions(imports=["my_operators"]).trust
    False
    """

    trust: bool = False
    """True permits code in the file to run."""

    imports: Sequence[str] = ()
    """Modules to import first: those that register the file's classes or operators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Files that a compile writes beside its result.

    >>> OutputOptions(kernel_selection="net_kernel_selection.c").intermediates_dir is None
    True
    """

    intermediates_dir: str | os.PathLike[str] | None = None
    """A folder for each partition's files, before and after compiling."""

    kernel_selection: str | os.PathLike[str] | None = None
    """A C file (``net_kernel_selection.c``) that registers only the kernels that the model calls, for the linker to drop
    the others; beside it one file for each partition (docs/kernel-selection.md)."""


def changed(options: object) -> list[str]:
    """Return the names of a dataclass's fields that are not at their defaults."""
    assert dataclasses.is_dataclass(options)
    return [item.name for item in dataclasses.fields(options) if getattr(options, item.name) != item.default]


GROUPS: Mapping[str, type] = {
    "options": CompileOptions,
    "quantization": QuantizationOptions,
    "delegation": DelegationOptions,
    "loading": LoadingOptions,
    "outputs": OutputOptions,
}
"""The parameters whose values are objects with options, and the classes of these objects."""


def suggestion(keyword: str, parameters: Collection[str]) -> str:
    """Return the end of a message about an unknown keyword: the object that the keyword belongs to, or the nearest
    known one; empty where none is near.

    >>> suggestion("sram_buget", ["options", "name"])
    ' Did you mean options=CompileOptions(sram_budget=...)?'
    """
    known = {parameter: parameter for parameter in parameters}
    for parameter, group in GROUPS.items():
        if parameter in parameters:
            known |= {item.name: f"{parameter}={group.__name__}({item.name}=...)" for item in dataclasses.fields(group)}
    if keyword in known:
        return f" Pass {known[keyword]}."
    near = difflib.get_close_matches(keyword, known, 1)
    return f" Did you mean {known[near[0]]}?" if near else ""
