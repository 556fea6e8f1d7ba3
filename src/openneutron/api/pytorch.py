# SPDX-License-Identifier: BSD-3-Clause
"""One call from a PyTorch module to a program for the NPU."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import executorch.kernels.quantized  # noqa: F401  (registers the quantize and dequantize operators of the borders)
import torch
from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from openneutron import files
from openneutron.api.lowering import in_words, keep_state, lowered, partitions
from openneutron.compiler.search.budget import budget_bytes, over_budget
from openneutron.converter import OPEN, kernel_selections
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.hushed import hushed
from openneutron.options import CALLER, kib_in_bytes
from openneutron.pytorch.backend.custom_delegation_options import CustomDelegationOptions
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.edge_passes.remove_io_quant_ops_pass import RemoveIOQuantOpsPass
from openneutron.pytorch.graph.program import is_quantize
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import (
    CompiledPartition,
    ConvertedPartition,
    NeutronCompileSpecBuilder,
    PartitionOverBudget,
    intermediates_folder,
)
from openneutron.pytorch.partition.delegation import Delegation
from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.run.runner import Runner
from openneutron.pytorch.run.runtime_check import check_kernels
from openneutron.pytorch.source.exporting import AtenGraph, aten_graph, export, restore
from openneutron.pytorch.source.inputs import ModelInputs, samples
from openneutron.report import ConvertedSummary, Delegated, PartitionSummary, Summary
from openneutron.report.text import plain, summary_table
from openneutron.targets import Target

FLOAT32, INT8 = "float32", "int8"

Progress = Callable[[str, int, int], None]
"""Told what is being worked on, how much of it is done, and how much there is."""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "nothing"


def _silent(_step: str, _done: int, _total: int) -> None:
    """Tells nobody."""


@dataclass(frozen=True, eq=False)
class CompiledModel:
    """A compiled model.

    ``buffer`` is the ``.pte``; ``delegation`` says where each operator runs and why; ``partitions`` are the programs of the
    delegate calls, ``converted`` those that NXP's converter made; ``quantized`` is the quantized module in PyTorch's own
    arithmetic.
    """

    name: str
    target: Target
    buffer: bytes = field(repr=False)
    delegation: Delegation = field(repr=False)
    partitions: tuple[CompiledPartition, ...] = field(repr=False)
    quantized: GraphModule = field(repr=False)
    budget_bytes: int
    converted: tuple[ConvertedPartition, ...] = field(default=(), repr=False)
    keywords: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[CompiledPartition | ConvertedPartition, ...]:
        """What became of the delegate calls, whoever compiled them."""
        return (*self.partitions, *self.converted)

    def intermediates(self, folder: Path) -> dict[Path, bytes]:
        """The partitions' files for ``folder``: each as a ``.tflite`` before and after compiling."""
        return {path: data for part in self.parts for path, data in part.intermediates(folder).items()}

    def kernel_selections(self, path: Path) -> dict[Path, bytes]:
        """C files that register just the kernels the model calls: the one for the application at ``path``, and one of each
        partition beside it (``converter.kernel_selections.selection_files``). Partitions of NXP's converter are left out."""
        return kernel_selections.selection_files(path, {part.name: part.compiled.program for part in self.partitions})

    @property
    def report(self) -> Summary:
        """All figures as data: ``report.to_dict()`` is what ``--json`` prints."""
        modules = {item.node: item.name for item in self.delegation.on_npu}
        return Summary(
            model=self.name,
            target=self.target,
            delegated=tuple(
                Delegated(item.operator, item.name, item.partition, item.computes) for item in self.delegation.on_npu
            ),
            on_cpu=self.delegation.on_cpu,
            partitions=tuple(PartitionSummary(part.name, part.compiled.report, modules) for part in self.partitions),
            budget_bytes=self.budget_bytes,
            file_bytes=len(self.buffer),
            converted=tuple(_converted_summary(part) for part in self.converted),
        )

    def summary(self) -> str:
        """The figures as text."""
        return plain(summary_table(self.report))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the ``.pte``, whole or not at all. Raises InvalidOptionError where it can't be written."""
        files.write({Path(path): self.buffer})

    def run(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """What the model returns for these arguments, from ExecuTorch with the delegates on the simulated NPU: all that is in
        its tuples, lists and dicts, one after the other.

        Image inputs may lie in memory as they like. What the model keeps from run to run goes on from the last one. Raises
        InvalidOptionError where the arguments are not the model's, MissingToolError where the delegate can't be built.
        """
        if set(kwargs) != set(self.keywords):
            raise InvalidOptionError(
                f"'{self.name}' takes {_listed(self.keywords)} by keyword; there are {_listed(kwargs)}."
            )
        return self._runner.run(pytree.tree_leaves((args, [kwargs[key] for key in self.keywords])))

    @cached_property
    def _runner(self) -> Runner:
        return Runner(self.name, self.buffer)


def compile(
    model: nn.Module | ExportedProgram,
    example_inputs: Any = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    calibration: Iterable[Any] | None = None,
    target: str = "imxrt700",
    sram_budget: int | None = None,
    channels_last: bool | None = None,
    io: str = FLOAT32,
    operators_not_to_delegate: Sequence[str] = (),
    keep_float: Sequence[object] = (),
    train_fn: Callable[[GraphModule], None] | None = None,
    progress: Progress | None = None,
    name: str = "model",
    io_place: str = CALLER,
    fetch_constants_to_sram: bool = False,
    use_neutron_for_format_conversion: bool = True,
    allow_no_op_partitions: bool = False,
    preserve_ops: Sequence[torch._ops.OpOverload] = (),
    intermediates_dir: str | os.PathLike[str] | None = None,
    kernel_selection: str | os.PathLike[str] | None = None,
    converter: str = OPEN,
    extra_flags: str | Sequence[str] | None = None,
    must_delegate: bool = True,
    any_runtime: bool = False,
) -> CompiledModel:
    """The model quantized to int8 and compiled for ``target``.

    model: a module (it is exported in eval mode with ``example_inputs``), or an exported program; one that is quantized
    already is taken as it is and needs no calibration.
    example_inputs: the model's arguments in a tuple, or its only one; tensors, and numbers, strings and None, which become part
    of the program, alone or in tuples, lists and dicts. example_kwargs: those it takes by keyword.
    calibration: typical inputs, each a tensor or a tuple as ``example_inputs``, or (tuple, dict) where there are keywords;
    batches of them are taken apart where the example has a smaller batch. They set the int8 scales.
    sram_budget: KiB that arena, prefetch buffer, inputs and outputs of a delegate call may take; None is the target's SRAM.
    channels_last: whether the program takes and gives images channels innermost, which saves a transpose at each border;
    None: as the example inputs lie. ``run`` takes either.
    io: ``float32`` borders with quantization on the CPU, or ``int8`` ones.
    operators_not_to_delegate: operators (``aten.relu``, ``aten.add.Tensor``), nodes (``aten_convolution_default_1``) and modules
    (``features.3``) to leave on the CPU; ``*``, ``?`` and ``[...]`` are wildcards.
    preserve_ops: operators to keep whole where they can be delegated, beside those that are anyway. allow_no_op_partitions:
    whether what only renames values is worth a delegate call.
    keep_float: modules (names such as ``classifier.*``, or classes) and operators (``aten.softmax.int``) not to quantize.
    train_fn: trains the model with its quantization simulated, in place; it is given the model in training mode, and scales
    come from what it sees there (``calibration`` is not needed then). The model that was passed in stays as it is.
    converter: ``open``, or ``eiq`` for NXP's ``eiq_neutron_sdk`` where it is installed: the ``.pte`` then holds NXP's microcode,
    for the chip alone (docs/converters.md). extra_flags: the converter's own options, as on a command line.
    kernel_selection: a C file to write (``net_kernel_selection.c``) that registers just the kernels the model calls, for the
    linker to drop the others; beside it one of each partition, ``net_<partition>_kernel_selection.c`` (docs/kernel-selection.md).
    must_delegate: whether a model of which nothing can run on the NPU is an error; else it is compiled for the CPU.
    any_runtime: True permits operators on the CPU that ExecuTorch's runtime on this machine has no kernel for, for
    another runtime that has one. Otherwise such a program is an error, since it would not load here.
    progress: told of each step. name: what messages call the model. The others are those of
    ``generate_neutron_compile_spec`` (``io_place`` is its ``io``).

    Raises InvalidModelError where the model can't be exported or has no fixed shapes, where nothing of it can run on
    the NPU (with ``must_delegate``), or where an operator on the CPU has no kernel (without ``any_runtime``);
    InvalidOptionError for unusable options or calibration data; BudgetError where the budget is too small; MissingToolError
    and ConverterError where ``eiq`` is not there or fails.
    """
    tell = progress or _silent
    spec = NeutronTargetSpec(target)
    if io not in (FLOAT32, INT8):
        raise InvalidOptionError(f"io: '{io}' is no border type; there are '{FLOAT32}' and '{INT8}'.")
    selection = None if kernel_selection is None else Path(kernel_selection)
    if selection is not None:
        kernel_selections.check(selection, converter)
    folder = None if intermediates_dir is None else intermediates_folder(os.fspath(intermediates_dir))
    options = NeutronCompileSpecBuilder().neutron_compile_spec(
        target,
        extra_flags=extra_flags,
        operators_not_to_delegate=operators_not_to_delegate,
        use_neutron_for_format_conversion=use_neutron_for_format_conversion,
        fetch_constants_to_sram=fetch_constants_to_sram,
        sram_budget=kib_in_bytes(sram_budget),
        io=io_place,
        converter=converter,
        name=name,
        defer_budget=True,  # all partitions are measured before one that is too large is an error
    )
    budget = budget_bytes(kib_in_bytes(sram_budget), spec.neutron_target)
    tell("Exporting", 0, 1)
    with hushed():
        source = aten_graph(model, example_inputs, example_kwargs, channels_last, name)
    module = _int8(source, name, spec, calibration, keep_float, train_fn, tell)
    tell("Exporting the quantized model", 0, 1)
    with hushed():
        program = export(module, source.inputs, name, source.extents)
    tell("Lowering", 0, 1)
    partitioner = NeutronPartitioner(
        options.build(),
        spec,
        CustomDelegationOptions(allow_no_op_partitions),
        post_quantization_state_dict=module.state_dict(),
        preserve_ops=list(preserve_ops),
    )
    edge, partitioner = _delegated(program, partitioner, name, budget, io)
    tell("Writing", 0, 1)
    with hushed(), in_words(name, "write"):
        keep_state(edge.exported_program())
        executorch = edge.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False, delegate_alignment=16))
        buffer = bytes(executorch.buffer)
    if not any_runtime:
        check_kernels(executorch.executorch_program, partitioner.delegations[-1], name)
    result = CompiledModel(
        name=name,
        target=spec.neutron_target,
        buffer=buffer,
        delegation=partitioner.delegations[-1],
        partitions=tuple(partitions(edge, CompiledPartition)),
        quantized=module,
        budget_bytes=budget,
        converted=tuple(partitions(edge, ConvertedPartition)),
        keywords=tuple(source.inputs.kwargs),
    )
    if must_delegate:
        _check_delegation(result)
    made = {} if folder is None else result.intermediates(folder)
    files.write(made if selection is None else made | result.kernel_selections(selection))
    return result


def _delegated(
    program: ExportedProgram, partitioner: NeutronPartitioner, name: str, budget: int, io: str
) -> tuple[EdgeProgramManager, NeutronPartitioner]:
    """Return the program with its partitions compiled, and the partitioner that made them."""
    with hushed(), in_words(name, "lower"):
        edge, partitioner = lowered(program, partitioner)
        _check_budget(edge, name, budget)
        if io == INT8:
            edge = edge.transform([RemoveIOQuantOpsPass(edge_program_manager=edge)])
    return edge, partitioner


def _check_delegation(result: CompiledModel) -> None:
    """Raise InvalidModelError where nothing of the model runs on the NPU."""
    cpu = result.delegation.on_cpu
    if not result.parts:
        first = f" For one, {cpu[0]}" if cpu else ""
        raise InvalidModelError(f"'{result.name}': none of its {len(cpu)} operators can run on the NPU.{first}")


analyse = partial(compile, must_delegate=False, any_runtime=True)
"""Like ``compile``, but accepts a model of which nothing can run on the NPU, or that needs another runtime."""


def _int8(
    source: AtenGraph,
    name: str,
    target: NeutronTargetSpec,
    calibration: Iterable[Any] | None,
    keep_float: Sequence[object],
    train_fn: Callable[[GraphModule], None] | None,
    tell: Progress,
) -> GraphModule:
    """The module quantized, in place where it is not trained; as it is where it came quantized."""
    module = source.module
    if not any(is_quantize(node) for node in module.graph.nodes):
        quantizer = NeutronQuantizer(target, is_qat=train_fn is not None).keep_float(*keep_float)
        module = _quantized(module, source.inputs, calibration, quantizer, train_fn, tell)
    elif keep_float or train_fn is not None:
        raise InvalidOptionError(
            f"{'keep_float' if keep_float else 'train_fn'}: '{name}' is quantized already. Pass the float model."
        )
    restore(module, source.state)
    return module


def _converted_summary(part: ConvertedPartition) -> ConvertedSummary:
    program = part.conversion.program
    return ConvertedSummary(part.name, len(program.microcode), len(program.weights), len(program.kernels))


def _check_budget(edge: EdgeProgramManager, name: str, budget: int) -> None:
    too_large = list(partitions(edge, PartitionOverBudget))
    if too_large:
        raise over_budget(name, too_large, len(too_large) + len(list(partitions(edge, CompiledPartition))), budget)


def _quantized(
    module: GraphModule,
    inputs: ModelInputs,
    calibration: Iterable[Any] | None,
    quantizer: NeutronQuantizer,
    train_fn: Callable[[GraphModule], None] | None,
    tell: Progress,
) -> GraphModule:
    if train_fn is not None:
        tell("Training", 0, 1)
        # A copy: an exported module's parameters are the model's own.
        return calibrate_and_quantize(copy.deepcopy(module), (), quantizer, is_qat=True, train_fn=train_fn)
    if calibration is None:
        raise InvalidOptionError(
            "calibration: there are no samples; int8 scales come from typical inputs. "
            "Pass calibration=[...], each item a tuple of the model's arguments (--calibration on the command line)."
        )
    total = len(calibration) if isinstance(calibration, Sized) else 0
    tell("Calibrating", 0, total)
    return calibrate_and_quantize(
        module,
        samples(calibration, inputs),
        quantizer,
        after_sample=lambda done: tell("Calibrating", done, max(total, done)),
    )


__all__ = ["CompiledModel", "analyse", "compile"]
