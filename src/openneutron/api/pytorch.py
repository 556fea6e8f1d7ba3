# SPDX-License-Identifier: BSD-3-Clause
"""One call from a PyTorch module to a program for the NPU."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch  # noqa: F401  # isort: skip  (a message names the first package that is not installed)
import executorch.kernels.quantized  # noqa: F401  (registers the quantize and dequantize operators of the borders)
from executorch.exir import ExecutorchBackendConfig
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from openneutron import files
from openneutron.api.lowering import in_words, keep_state, lowered, partitions
from openneutron.compiler.search.fit import budget_bytes
from openneutron.converter import kernel_selections
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.hushed import hushed
from openneutron.model_options import INT8, DelegationOptions, OutputOptions, Progress, QuantizationOptions, silent
from openneutron.options import CompileOptions
from openneutron.pytorch.backend.custom_delegation_options import CustomDelegationOptions
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.edge_passes.remove_io_quant_ops_pass import RemoveIOQuantOpsPass
from openneutron.pytorch.graph.program import is_quantize
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import (
    CompiledPartition,
    ConvertedPartition,
    generate_neutron_compile_spec,
    intermediates_folder,
)
from openneutron.pytorch.partition.delegation import Delegation, check_kernels
from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.run.runner import Runner
from openneutron.pytorch.source.exporting import AtenGraph, ModelInputs, aten_graph, export, restore, samples
from openneutron.pytorch.source.lifting import lifted
from openneutron.report import ConvertedSummary, Delegated, PartitionSummary, Summary
from openneutron.report.text import plain, summary_table
from openneutron.targets import Target


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "nothing"


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
        """Return the results of the delegate calls, of either compiler."""
        return (*self.partitions, *self.converted)

    def intermediates(self, folder: Path) -> dict[Path, bytes]:
        """Return the partitions' files for ``folder``: each as a ``.tflite`` before and after compiling."""
        return {path: data for part in self.parts for path, data in part.intermediates(folder).items()}

    def kernel_selections(self, path: Path) -> dict[Path, bytes]:
        """C files that register just the kernels the model calls: the one for the application at ``path``, and one of
        each partition beside it (``converter.kernel_selections.selection_files``). Partitions of NXP's converter are
        left out."""
        return kernel_selections.selection_files(path, {part.name: part.compiled.program for part in self.partitions})

    @property
    def report(self) -> Summary:
        """Return all figures as data: ``report.to_dict()`` is what ``--json`` prints."""
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
        """Return the figures as text."""
        return plain(summary_table(self.report))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the ``.pte``, whole or not at all. Raises InvalidOptionError where it can't be written."""
        files.write({Path(path): self.buffer})

    def run(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return what the model returns for these arguments, from ExecuTorch with the delegates on the simulated NPU:
        all that is in its tuples, lists and dicts, one after the other.

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
    options: CompileOptions = CompileOptions(),
    quantization: QuantizationOptions = QuantizationOptions(),
    delegation: DelegationOptions = DelegationOptions(),
    outputs: OutputOptions = OutputOptions(),
    name: str = "model",
    progress: Progress = silent,
) -> CompiledModel:
    """Return the model, quantized to int8 and compiled. Parameters and errors are those of ``openneutron.compile``."""
    spec = NeutronTargetSpec(options.target)
    selection = None if outputs.kernel_selection is None else Path(outputs.kernel_selection)
    if selection is not None:
        kernel_selections.check(selection, options.converter)
    folder = None if outputs.intermediates_dir is None else intermediates_folder(os.fspath(outputs.intermediates_dir))
    partitioner = _partitioner(spec, options, delegation, name)
    progress("Exporting", 0, 1)
    with hushed():
        source = aten_graph(model, example_inputs, example_kwargs, quantization.channels_last, name)
    module = _int8(source, name, spec, calibration, quantization, progress)
    progress("Exporting the quantized model", 0, 1)
    with hushed():
        program = lifted(module, source.inputs) or export(module, source.inputs, name, source.extents)
    progress("Lowering", 0, 1)
    partitioner.post_quantization_state_dict = module.state_dict()
    with hushed(), in_words(name, "lower"):
        edge, partitioner = lowered(program, partitioner)
        if quantization.io_dtype == INT8:
            edge = edge.transform([RemoveIOQuantOpsPass(edge_program_manager=edge)])
    progress("Writing", 0, 1)
    with hushed(), in_words(name, "write"):
        keep_state(edge.exported_program())
        executorch = edge.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False, delegate_alignment=16))
        buffer = bytes(executorch.buffer)
    if not delegation.any_runtime:
        check_kernels(executorch.executorch_program, partitioner.delegations[-1], name)
    result = CompiledModel(
        name=name,
        target=spec.neutron_target,
        buffer=buffer,
        delegation=partitioner.delegations[-1],
        partitions=tuple(partitions(edge, CompiledPartition)),
        quantized=module,
        budget_bytes=budget_bytes(options.sram_budget, spec.neutron_target),
        converted=tuple(partitions(edge, ConvertedPartition)),
        keywords=tuple(source.inputs.kwargs),
    )
    if delegation.must_delegate:
        _check_delegated(result)
    made = {} if folder is None else result.intermediates(folder)
    files.write(made if selection is None else made | result.kernel_selections(selection))
    return result


def analyse(
    model: nn.Module | ExportedProgram,
    example_inputs: Any = None,
    *,
    delegation: DelegationOptions = DelegationOptions(),
    **others: Any,
) -> CompiledModel:
    """Compile like ``compile``, but accept a model of which nothing can run on the NPU, or that needs another runtime."""
    accepting = dataclasses.replace(delegation, must_delegate=False, any_runtime=True)
    return compile(model, example_inputs, delegation=accepting, **others)


def _partitioner(
    spec: NeutronTargetSpec, options: CompileOptions, delegation: DelegationOptions, name: str
) -> NeutronPartitioner:
    compile_spec = generate_neutron_compile_spec(
        options.target,
        operators_not_to_delegate=delegation.operators_not_to_delegate,
        use_neutron_for_format_conversion=delegation.use_neutron_for_format_conversion,
        options=options,
        name=name,
    )
    return NeutronPartitioner(
        compile_spec,
        spec,
        CustomDelegationOptions(delegation.allow_no_op_partitions),
        preserve_ops=list(delegation.preserve_ops),
    )


def _check_delegated(result: CompiledModel) -> None:
    """Raise InvalidModelError where nothing of the model runs on the NPU."""
    if not result.parts:
        cpu = result.delegation.on_cpu
        first = f" For one, {cpu[0]}" if cpu else ""
        raise InvalidModelError(f"'{result.name}': none of its {len(cpu)} operators can run on the NPU.{first}")


def _int8(
    source: AtenGraph,
    name: str,
    target: NeutronTargetSpec,
    calibration: Iterable[Any] | None,
    options: QuantizationOptions,
    progress: Progress,
) -> GraphModule:
    """Return the quantized module: the given one where it is not trained, and unchanged where it was quantized
    already."""
    module = source.module
    if not any(is_quantize(node) for node in module.graph.nodes):
        quantizer = NeutronQuantizer(target, is_qat=options.train_fn is not None).keep_float(*options.keep_float)
        module = _quantized(module, source.inputs, calibration, quantizer, options.train_fn, progress)
    elif options.keep_float or options.train_fn is not None:
        raise InvalidOptionError(
            f"{'keep_float' if options.keep_float else 'train_fn'}: '{name}' is quantized already. Pass the float model."
        )
    restore(module, source.state)
    return module


def _converted_summary(part: ConvertedPartition) -> ConvertedSummary:
    program = part.conversion.program
    return ConvertedSummary(part.name, len(program.microcode), len(program.weights), len(program.kernels))


def _quantized(
    module: GraphModule,
    inputs: ModelInputs,
    calibration: Iterable[Any] | None,
    quantizer: NeutronQuantizer,
    train_fn: Callable[[GraphModule], None] | None,
    progress: Progress,
) -> GraphModule:
    if train_fn is not None:
        progress("Training", 0, 1)
        # A copy: an exported module's parameters are the model's own.
        return calibrate_and_quantize(copy.deepcopy(module), (), quantizer, is_qat=True, train_fn=train_fn)
    if calibration is None:
        raise InvalidOptionError(
            "calibration: there are no samples; int8 scales come from typical inputs. "
            "Pass calibration=[...], each item a tuple of the model's arguments (--calibration on the command line)."
        )
    total = len(calibration) if isinstance(calibration, Sized) else 0
    progress("Calibrating", 0, total)
    return calibrate_and_quantize(
        module,
        samples(calibration, inputs),
        quantizer,
        after_sample=lambda done: progress("Calibrating", done, max(total, done)),
    )


__all__ = ["CompiledModel", "analyse", "compile"]
