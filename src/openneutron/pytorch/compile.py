# SPDX-License-Identifier: BSD-3-Clause
"""One call from a PyTorch module to a program for the NPU."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import executorch.kernels.quantized  # noqa: F401  (registers the quantize and dequantize operators of the borders)
import torch
from executorch.exir import EdgeCompileConfig, EdgeProgramManager, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule

from openneutron import files
from openneutron.compiler.budget import over_budget
from openneutron.compiler.layout import CALLER
from openneutron.converter import OPEN
from openneutron.errors import InvalidModelError, InvalidOptionError, OpenNeutronError
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.compile_spec import decode, encode
from openneutron.pytorch.delegation import Delegation
from openneutron.pytorch.edge_passes.remove_io_quant_ops_pass import RemoveIOQuantOpsPass
from openneutron.pytorch.lower.program import is_quantize
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import (
    CompiledPartition,
    ConvertedPartition,
    PartitionOverBudget,
    core_aten_ops_exception_list,
    generate_neutron_compile_spec,
    intermediates_folder,
)
from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.runner import Runner
from openneutron.report import ConvertedSummary, Delegated, PartitionSummary, Summary
from openneutron.report.text import plain, summary_table
from openneutron.targets import Target

FLOAT32, INT8 = "float32", "int8"

Progress = Callable[[str, int, int], None]
"""Told what is being worked on, how much of it is done, and how much there is."""

Inputs = tuple[Any, ...]

Info = TypeVar("Info", CompiledPartition, ConvertedPartition, PartitionOverBudget)


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

    @property
    def report(self) -> Summary:
        """All figures as data: ``report.to_dict()`` is what ``--json`` prints."""
        return Summary(
            model=self.name,
            target=self.target,
            delegated=tuple(Delegated(item.operator, item.name, item.partition) for item in self.delegation.on_npu),
            on_cpu=self.delegation.on_cpu,
            partitions=tuple(PartitionSummary(part.name, part.compiled.report) for part in self.partitions),
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

    def run(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The outputs for these inputs, from ExecuTorch with the delegates on the simulated NPU.

        Image inputs may lie in memory as they like. Raises InvalidOptionError where number, shape or type of the inputs is
        not the model's, MissingToolError where the delegate can't be built.
        """
        return self._runner.run(inputs)

    @cached_property
    def _runner(self) -> Runner:
        return Runner(self.name, self.buffer)


def compile(
    model: nn.Module | ExportedProgram,
    example_inputs: Inputs | None = None,
    *,
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
    intermediates_dir: str | os.PathLike[str] | None = None,
    converter: str = OPEN,
) -> CompiledModel:
    """The model quantized to int8 and compiled for ``target``.

    model: a module (it is exported in eval mode with ``example_inputs``), or an exported program; one that is quantized
    already is taken as it is and needs no calibration.
    calibration: typical inputs, each a tensor or a tuple as ``example_inputs``; batches of them are taken apart where the
    example has a smaller batch. They set the int8 scales.
    sram_budget: KiB that arena, prefetch buffer, inputs and outputs of a delegate call may take; None is the target's SRAM.
    channels_last: whether the program takes and gives images channels innermost, which saves a transpose at each border;
    None: as the example inputs lie. ``run`` takes either.
    io: ``float32`` borders with quantization on the CPU, or ``int8`` ones.
    operators_not_to_delegate: parts of operator names (``aten::relu``) or of single nodes' names to leave on the CPU;
    ``aten::add`` is part of ``aten_addmm`` too, ``aten::add_Tensor`` is not. ``delegation`` says which part matched.
    keep_float: modules (names such as ``classifier.*``, or classes) and operators (``aten.softmax.int``) not to quantize.
    train_fn: trains the model with its quantization simulated, in place; it is given the model in training mode, and scales
    come from what it sees there (``calibration`` is not needed then). The model that was passed in stays as it is.
    converter: ``open``, or ``eiq`` for NXP's ``eiq_neutron_sdk`` where it is installed: the ``.pte`` then holds NXP's microcode,
    for the chip alone (docs/converters.md).
    progress: told of each step. name: what messages call the model. The others are those of
    ``generate_neutron_compile_spec`` (``io_place`` is its ``io``).

    Raises InvalidModelError where the model can't be exported, has no fixed shapes, or nothing of it can run on the NPU;
    InvalidOptionError for unusable options or calibration data; BudgetError where the budget is too small; MissingToolError
    and ConverterError where ``eiq`` is not there or fails.
    """
    result = analyse(
        model,
        example_inputs,
        calibration=calibration,
        target=target,
        sram_budget=sram_budget,
        channels_last=channels_last,
        io=io,
        operators_not_to_delegate=operators_not_to_delegate,
        keep_float=keep_float,
        train_fn=train_fn,
        progress=progress,
        name=name,
        io_place=io_place,
        fetch_constants_to_sram=fetch_constants_to_sram,
        use_neutron_for_format_conversion=use_neutron_for_format_conversion,
        intermediates_dir=intermediates_dir,
        converter=converter,
    )
    if not result.partitions and not result.converted:
        cpu = result.delegation.on_cpu
        first = f" For one, {cpu[0]}" if cpu else ""
        raise InvalidModelError(f"'{name}': none of its {len(cpu)} operators can run on the NPU.{first}")
    return result


def analyse(
    model: nn.Module | ExportedProgram,
    example_inputs: Inputs | None = None,
    *,
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
    intermediates_dir: str | os.PathLike[str] | None = None,
    converter: str = OPEN,
) -> CompiledModel:
    """As ``compile``, which see; but a model of which nothing can run on the NPU is a result too."""
    tell = progress or _silent
    spec = NeutronTargetSpec(target)
    if io not in (FLOAT32, INT8):
        raise InvalidOptionError(f"io: '{io}' is no border type; there are '{FLOAT32}' and '{INT8}'.")
    folder = None if intermediates_dir is None else intermediates_folder(os.fspath(intermediates_dir))
    compile_spec = generate_neutron_compile_spec(
        target,
        operators_not_to_delegate=operators_not_to_delegate,
        use_neutron_for_format_conversion=use_neutron_for_format_conversion,
        fetch_constants_to_sram=fetch_constants_to_sram,
        sram_budget=None if sram_budget is None else sram_budget * 1024,
        io=io_place,
        converter=converter,
        name=name,
    )
    # All partitions are measured before one that is too large is an error.
    compile_spec = encode(dataclasses.replace(decode(compile_spec), defer_budget=True))
    budget = sram_budget * 1024 if sram_budget is not None else int(spec.neutron_target.sram.value * 1024)
    tell("Exporting", 0, 1)
    module, inputs = _exported(model, example_inputs, channels_last, name)
    if not any(is_quantize(node) for node in module.graph.nodes):
        quantizer = NeutronQuantizer(spec, is_qat=train_fn is not None).keep_float(*keep_float)
        module = _quantized(module, inputs, calibration, quantizer, train_fn, tell)
    elif keep_float or train_fn is not None:
        raise InvalidOptionError(
            f"{'keep_float' if keep_float else 'train_fn'}: '{name}' is quantized already. Pass the float model."
        )
    for node in module.graph.nodes:
        # Each pass of ExecuTorch copies all of a node's history, a quarter of the time that lowering takes.
        node.meta.pop("from_node", None)
    tell("Exporting the quantized model", 0, 1)
    program = _export(module, inputs, name)
    tell("Lowering", 0, 1)
    partitioner = NeutronPartitioner(compile_spec, spec, post_quantization_state_dict=module.state_dict())
    edge = to_edge_transform_and_lower(
        program,
        partitioner=[partitioner],
        compile_config=EdgeCompileConfig(_core_aten_ops_exception_list=list(core_aten_ops_exception_list)),
    )
    _check_budget(edge, name, budget)
    if io == INT8:
        edge = edge.transform([RemoveIOQuantOpsPass(edge_program_manager=edge)])
    tell("Writing", 0, 1)
    executorch = edge.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False, delegate_alignment=16))
    partitions = tuple(_infos(edge, CompiledPartition))
    converted = tuple(_infos(edge, ConvertedPartition))
    if folder is not None:
        parts: list[CompiledPartition | ConvertedPartition] = [*partitions, *converted]
        files.write({path: data for part in parts for path, data in part.intermediates(folder).items()})
    return CompiledModel(
        name=name,
        target=spec.neutron_target,
        buffer=bytes(executorch.buffer),
        delegation=partitioner.delegations[-1],
        partitions=partitions,
        quantized=module,
        budget_bytes=budget,
        converted=converted,
    )


def _converted_summary(part: ConvertedPartition) -> ConvertedSummary:
    program = part.conversion.program
    return ConvertedSummary(part.name, len(program.microcode), len(program.weights), len(program.kernels))


def _check_budget(edge: EdgeProgramManager, name: str, budget: int) -> None:
    too_large = [part.least_bytes for part in _infos(edge, PartitionOverBudget)]
    if too_large:
        raise over_budget(name, too_large, len(too_large) + len(list(_infos(edge, CompiledPartition))), budget)


def _infos(edge: EdgeProgramManager, kind: type[Info]) -> Iterator[Info]:
    """What became of the partitions, where it is of this kind."""
    module = edge.exported_program().graph_module
    for child in module.children():
        if isinstance(child, LoweredBackendModule) and isinstance(child.meta, dict):
            info = child.meta.get("_delegate_info_meta")
            if isinstance(info, kind):
                yield info


def _exported(
    model: nn.Module | ExportedProgram, example_inputs: Inputs | None, channels_last: bool | None, name: str
) -> tuple[GraphModule, Inputs]:
    """The model as an ATen graph, and its example inputs in the layout asked for."""
    if not isinstance(model, (nn.Module, ExportedProgram)):
        raise InvalidModelError(
            f"'{name}' is a {type(model).__name__}; a torch.nn.Module or an ExportedProgram is needed."
        )
    if example_inputs is None and isinstance(model, ExportedProgram) and model.example_inputs is not None:
        example_inputs = model.example_inputs[0]
    if example_inputs is None:
        raise InvalidOptionError(f"'{name}': there are no example inputs. Pass a tuple of the model's arguments.")
    inputs = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    if not all(isinstance(item, torch.Tensor) for item in inputs):
        kinds = ", ".join(type(item).__name__ for item in inputs)
        raise InvalidOptionError(
            f"'{name}': its example inputs are ({kinds}); tensors are what can be passed to a program."
        )
    if isinstance(model, ExportedProgram):
        inputs = tuple(_laid_out(item, channels_last) for item in inputs)
        graph_module = model.module(check_guards=False)
    else:
        if channels_last:
            # A copy: the layout is changed in place, and the model is the caller's.
            model = copy.deepcopy(model).to(memory_format=torch.channels_last)
        inputs = tuple(_laid_out(item, channels_last) for item in inputs)
        modes = {module: module.training for module in model.modules()}
        try:
            graph_module = _export(model.eval(), inputs, name).module(check_guards=False)
        finally:
            for module, training in modes.items():
                module.training = training
    assert isinstance(graph_module, GraphModule)
    _check_shapes(graph_module, name)
    return graph_module, inputs


def _laid_out(item: torch.Tensor, channels_last: bool | None) -> torch.Tensor:
    if item.dim() != 4 or channels_last is None:
        return item
    return item.contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)


def _export(module: nn.Module, inputs: Inputs, name: str) -> ExportedProgram:
    try:
        return torch.export.export(module, inputs, strict=False)
    except OpenNeutronError:
        raise
    # torch.export raises whatever the model's own code raises, and a good many types of its own.
    except Exception as error:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InvalidModelError(
            f"'{name}' can't be exported: {first.rstrip('.')} ({type(error).__name__}). "
            "Does it run on the example inputs, and do without data-dependent Python?"
        ) from error


def _check_shapes(module: GraphModule, name: str) -> None:
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if node.op != "placeholder" or not isinstance(value, torch.Tensor):
            continue
        if any(not isinstance(extent, int) for extent in value.shape):
            shape = ", ".join(str(extent) if isinstance(extent, int) else "?" for extent in value.shape)
            raise InvalidModelError(
                f"'{name}': its input '{node.name}' has shape [{shape}]; programs for the NPU have fixed shapes. "
                "Export the model without dynamic_shapes."
            )
        if value.is_floating_point() and value.dtype != torch.float32:
            raise InvalidModelError(
                f"'{name}': its input '{node.name}' is {value.dtype}; what can be quantized is torch.float32. "
                "Convert model and example inputs with .float()."
            )


def _quantized(
    module: GraphModule,
    inputs: Inputs,
    calibration: Iterable[Any] | None,
    quantizer: NeutronQuantizer,
    train_fn: Callable[[GraphModule], None] | None,
    tell: Progress,
) -> GraphModule:
    if train_fn is not None:
        tell("Training", 0, 1)
        return calibrate_and_quantize(module, (), quantizer, is_qat=True, train_fn=train_fn)
    if calibration is None:
        raise InvalidOptionError(
            "calibration: there are no samples; int8 scales come from typical inputs. "
            "Pass calibration=[...], each item a tuple of the model's arguments (--calibration on the command line)."
        )
    total = len(calibration) if isinstance(calibration, Sized) else 0
    tell("Calibrating", 0, total)
    samples = _samples(calibration, inputs)
    return calibrate_and_quantize(
        module, samples, quantizer, after_sample=lambda done: tell("Calibrating", done, max(total, done))
    )


def _samples(calibration: Iterable[Any], inputs: Inputs) -> Iterator[Inputs]:
    """The samples in the shapes and layouts of the example inputs; larger batches are taken apart."""
    for index, item in enumerate(calibration):
        sample = (item,) if isinstance(item, torch.Tensor) else tuple(item)
        if len(sample) != len(inputs) or not all(isinstance(part, torch.Tensor) for part in sample):
            raise InvalidOptionError(
                f"calibration: sample {index} has {len(sample)} parts; the model has {len(inputs)} tensor inputs."
            )
        for place, (part, example) in enumerate(zip(sample, inputs, strict=True)):
            if part.shape[1:] != example.shape[1:] or part.dim() != example.dim() or part.dtype != example.dtype:
                raise InvalidOptionError(
                    f"calibration: sample {index} has {part.dtype} {list(part.shape)} for input {place}; "
                    f"the example input is {example.dtype} {list(example.shape)}."
                )
        yield from _batches(index, sample, inputs)


def _batches(index: int, sample: Inputs, inputs: Inputs) -> Iterator[Inputs]:
    if all(part.shape == example.shape for part, example in zip(sample, inputs, strict=True)):
        yield tuple(_like(part, example) for part, example in zip(sample, inputs, strict=True))
        return
    counts = {
        part.shape[0] // example.shape[0] if part.shape[0] % example.shape[0] == 0 else 0
        for part, example in zip(sample, inputs, strict=True)
    }
    if len(counts) != 1 or 0 in counts:
        raise InvalidOptionError(
            f"calibration: sample {index} has batches of {[part.shape[0] for part in sample]}; the model takes "
            f"{[example.shape[0] for example in inputs]}. Pass whole multiples."
        )
    for number in range(counts.pop()):
        yield tuple(
            _like(part[number * len(example) : (number + 1) * len(example)], example)
            for part, example in zip(sample, inputs, strict=True)
        )


def _like(part: torch.Tensor, example: torch.Tensor) -> torch.Tensor:
    """The tensor in the example's memory layout: the exported graph has it built in."""
    if example.dim() == 4 and example.is_contiguous(memory_format=torch.channels_last):
        return part.contiguous(memory_format=torch.channels_last)
    return part.contiguous()


__all__ = ["CompiledModel", "analyse", "compile"]
