# SPDX-License-Identifier: BSD-3-Clause
"""A PyTorch model compiled with one call."""

from __future__ import annotations

import copy
import dataclasses
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch  # noqa: F401  # isort: skip  (a message names the first package that is not installed)
import executorch.kernels.quantized  # noqa: F401  (registers the quantize and dequantize operators of inputs and outputs)
from executorch.exir import EdgeCompileConfig, EdgeProgramManager, to_edge_transform_and_lower
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from openneutron.api.compile import compile
from openneutron.api.recompiling import PlannedProgram, backend_config
from openneutron.api.result import CompiledResult
from openneutron.compiler.search.fit import budget_bytes
from openneutron.converter import kernel_selections
from openneutron.errors import InvalidModelError, InvalidOptionError, OpenNeutronError
from openneutron.ir import Graph
from openneutron.options import INT8, CompileOptions, DelegationOptions, QuantizationOptions, with_changes
from openneutron.pytorch.backend.custom_delegation_options import CustomDelegationOptions
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.edge_passes.remove_io_quant_ops_pass import RemoveIOQuantOpsPass
from openneutron.pytorch.graph.program import is_quantize
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import core_aten_ops_exception_list, generate_neutron_compile_spec
from openneutron.pytorch.partition.compiled import CompiledPartition
from openneutron.pytorch.partition.delegation import Delegation, check_kernels
from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.run.runner import Runner
from openneutron.pytorch.source.exporting import AtenGraph, aten_graph, export, first_line, restore, samples
from openneutron.pytorch.source.lifting import lifted
from openneutron.report import ConvertedSummary, Delegated, PartitionSummary, Summary
from openneutron.targets import Target
from openneutron.third_party import suppressed
from openneutron.timings import Timings, advance, measured, step


@dataclass(frozen=True, eq=False)
class CompiledModel(CompiledResult):
    """The result of ``openneutron.compile`` for a PyTorch model.

    ``buffer`` is the ``.pte``. ``delegation`` has the side of each operator, with the reasons of the CPU fallbacks.
    ``partitions`` are the delegate calls with programs of this project's compiler, ``converted`` those of NXP's converter.
    ``quantized`` is the quantized module in PyTorch's own arithmetic, ``planned`` the program after ExecuTorch's passes. ``timings`` has the times of the compile's steps.

    >>> import openneutron
    >>> program = openneutron.compile(model, example, calibration=batches)  # doctest: +SKIP
    >>> program.run(*example)  # doctest: +SKIP
    """

    name: str
    target: Target
    options: CompileOptions
    buffer: bytes = field(repr=False)
    delegation: Delegation = field(repr=False)
    partitions: tuple[CompiledPartition, ...] = field(repr=False)
    quantized: GraphModule = field(repr=False)
    budget_bytes: int
    planned: PlannedProgram = field(repr=False)
    delegation_options: DelegationOptions = field(default=DelegationOptions(), repr=False)
    converted: tuple[CompiledPartition, ...] = field(default=(), repr=False)
    keywords: tuple[str, ...] = ()
    timings: Timings = field(default=Timings(), repr=False)

    @property
    def parts(self) -> tuple[CompiledPartition, ...]:
        """Return ``partitions`` and ``converted``."""
        return (*self.partitions, *self.converted)

    def recompile(self, **changes: Any) -> CompiledModel:
        """Return the same quantized program compiled with other options of the compiler.

        Only the compiler runs, and the writing of the file: no export, no calibration, none of ExecuTorch's passes. The
        search for a schedule goes on with what the calls before have found, which takes memory as long as a model of this
        quantized program is there.

        Args:
            changes: Fields of CompileOptions, with their new values.

        Returns:
            The compiled model, with the bytes of a fresh compile; operators keep their names where ``profile`` changes.

        Raises:
            InvalidOptionError: An option is unusable.
            BudgetError: The SRAM budget is too small.
            MissingToolError: The converter is not installed.
            ConverterError: The converter ``eiq`` failed.
            TypeError: A keyword is unknown.

        >>> program = openneutron.compile(model, example, calibration=batches)  # doctest: +SKIP
        >>> smaller = program.recompile(sram_budget=64 * 1024)  # doctest: +SKIP
        """
        options = with_changes(self.options, changes, "recompile")
        spec = NeutronTargetSpec(options.target)
        with measured() as clock, suppressed():
            planned = self.planned.recompiled(_compile_spec(options, self.delegation_options, self.name))
            with in_words(self.name, "write"), step("Writing"):
                buffer = planned.to_bytes()
        made = dataclasses.replace(
            self,
            target=spec.neutron_target,
            options=options,
            buffer=buffer,
            planned=planned,
            budget_bytes=budget_bytes(options.sram_budget, spec.neutron_target),
            **_parts(planned),
        )
        return dataclasses.replace(made, timings=clock.timings)

    def intermediates(self, folder: Path) -> dict[Path, bytes]:
        """Return each partition as a ``.tflite`` before and after compiling.

        Args:
            folder: The folder of the returned paths.

        Returns:
            The contents of the files by path.
        """
        return {path: data for part in self.parts for path, data in part.intermediates(folder).items()}

    def kernel_selections(self, path: Path) -> dict[Path, bytes]:
        """Return C files that register only the kernels that the model calls (docs/kernel-selection.md).

        Args:
            path: The path of the file for the application, which ends in ``.c``.

        Returns:
            The contents of this file, and of one file for each of ``partitions`` beside it, by path.

        Raises:
            InvalidOptionError: ``path`` can't be the path of such a file.
        """
        return kernel_selections.selection_files(path, {part.name: part.compiled.program for part in self.partitions})

    @property
    def graphs(self) -> list[Graph]:
        """Return the graphs of ``partitions``."""
        return [part.compiled.graph for part in self.partitions]

    @property
    def report(self) -> Summary:
        """Return the figures of the compile as data; ``report.to_dict()`` is the output of ``--json``."""
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
            converted=tuple(ConvertedSummary.of(part.name, part.conversion.program) for part in self.converted),
        )

    @property
    def compile_options(self) -> CompileOptions:
        """Return ``options``."""
        return self.options

    def run(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model in ExecuTorch's runtime, with the delegates on the simulated NPU.

        State of the model is kept from run to run. Images may have either memory format.

        Args:
            args: The positional arguments of the model: tensors or NumPy arrays, as in the example inputs.
            kwargs: The keyword arguments of the model.

        Returns:
            The outputs of the model: the leaves of its tuples, lists and dicts, in order.

        Raises:
            InvalidOptionError: The arguments are not those of the model.
            InvalidModelError: ExecuTorch can't run an operator on the CPU.
            MissingToolError: The delegate can't be built on this machine.
        """
        if set(kwargs) != set(self.keywords):
            wanted, there = (", ".join(map(repr, names)) or "nothing" for names in (self.keywords, kwargs))
            raise InvalidOptionError(f"'{self.name}' takes {wanted} by keyword; there are {there}.")
        return self._runner.run(pytree.tree_leaves((args, [kwargs[key] for key in self.keywords])))

    @cached_property
    def _runner(self) -> Runner:
        return Runner(self.name, self.buffer)


def compile_module(
    model: nn.Module | ExportedProgram,
    example_inputs: Any,
    example_kwargs: Mapping[str, Any] | None,
    calibration: Iterable[Any] | None,
    options: CompileOptions,
    quantization: QuantizationOptions,
    delegation: DelegationOptions,
    name: str,
) -> CompiledModel:
    """Return the model, quantized to int8 and compiled. Parameters and errors are those of ``openneutron.compile``."""
    spec = NeutronTargetSpec(options.target)
    partitioner = _partitioner(spec, options, delegation, name)
    with suppressed(), step("Exporting"):
        source = aten_graph(model, example_inputs, example_kwargs, quantization.channels_last, name)
    module = _int8(source, name, spec, calibration, quantization)
    with suppressed(), step("Exporting the quantized model"):
        program = lifted(module, source.inputs) or export(module, source.inputs, name, source.extents)
    partitioner.post_quantization_state_dict = module.state_dict()
    with suppressed(), in_words(name, "lower"), step("Running ExecuTorch's passes"):
        edge, partitioner = lowered(program, partitioner)
        if quantization.io_dtype == INT8:
            edge = edge.transform([RemoveIOQuantOpsPass(edge_program_manager=edge)])
    with suppressed(), in_words(name, "write"), step("Writing"):
        keep_state(edge.exported_program())
        executorch = edge.to_executorch(backend_config())
        buffer = bytes(executorch.buffer)
    if not delegation.any_runtime:
        with step("Checking kernels"):
            check_kernels(executorch.executorch_program, partitioner.delegations[-1], name)
    planned = PlannedProgram.of(executorch)
    result = CompiledModel(
        name=name,
        target=spec.neutron_target,
        options=options,
        buffer=buffer,
        delegation=partitioner.delegations[-1],
        quantized=module,
        budget_bytes=budget_bytes(options.sram_budget, spec.neutron_target),
        planned=planned,
        delegation_options=delegation,
        **_parts(planned),
        keywords=tuple(source.inputs.kwargs),
    )
    if delegation.must_delegate and not result.parts:
        cpu, cause = result.delegation.on_cpu, result.delegation.cause
        first = f" For one, {cause}" if cause else ""
        raise InvalidModelError(f"'{name}': none of its {len(cpu)} operators can run on the NPU.{first}")
    return result


def analyse(
    model: nn.Module | ExportedProgram,
    *arguments: Any,
    delegation: DelegationOptions = DelegationOptions(),
    **others: Any,
) -> CompiledModel:
    """Compile like ``compile``, but accept a model of which nothing can run on the NPU, or that needs another runtime."""
    accepting = dataclasses.replace(delegation, must_delegate=False, any_runtime=True)
    result: CompiledModel = compile(model, *arguments, delegation=accepting, **others)
    return result


def _compile_spec(options: CompileOptions, delegation: DelegationOptions, name: str) -> list[CompileSpec]:
    return generate_neutron_compile_spec(
        options.target,
        operators_not_to_delegate=delegation.operators_not_to_delegate,
        use_neutron_for_format_conversion=delegation.use_neutron_for_format_conversion,
        options=options,
        name=name,
    )


def _partitioner(
    spec: NeutronTargetSpec, options: CompileOptions, delegation: DelegationOptions, name: str
) -> NeutronPartitioner:
    return NeutronPartitioner(
        _compile_spec(options, delegation, name),
        spec,
        CustomDelegationOptions(delegation.allow_no_op_partitions),
        preserve_ops=list(delegation.preserve_ops),
    )


def _int8(
    source: AtenGraph,
    name: str,
    target: NeutronTargetSpec,
    calibration: Iterable[Any] | None,
    options: QuantizationOptions,
) -> GraphModule:
    """Return the quantized module: the given module itself where it is not trained, unchanged where it is quantized already."""
    module, train_fn = source.module, options.train_fn
    quantizer = NeutronQuantizer(target, is_qat=train_fn is not None).keep_float(*options.keep_float)
    if any(is_quantize(node) for node in module.graph.nodes):
        if options.keep_float or train_fn is not None:
            option = "keep_float" if options.keep_float else "train_fn"
            raise InvalidOptionError(f"{option}: '{name}' is quantized already. Pass the float model.")
    elif train_fn is not None:
        # A copy: an exported module's parameters are the model's own.
        module = calibrate_and_quantize(copy.deepcopy(module), (), quantizer, is_qat=True, train_fn=train_fn)
    elif calibration is None:
        raise InvalidOptionError(
            "calibration: there are no samples; int8 scales come from typical inputs. "
            "Pass calibration=[...], each item a tuple of the model's arguments (--calibration on the command line)."
        )
    else:
        total = len(calibration) if isinstance(calibration, Sized) else 0
        module = calibrate_and_quantize(
            module,
            samples(calibration, source.inputs),
            quantizer,
            after_sample=lambda done: advance(done, total if done <= total else done + 1),
        )
    restore(module, source.state)
    return module


PACKAGE = Path(__file__).parents[2]


def lowered(program: ExportedProgram, partitioner: NeutronPartitioner) -> tuple[EdgeProgramManager, NeutronPartitioner]:
    """Return the program with its delegate calls, and the partitioner of the last attempt: an operator that was kept whole,
    but is not delegated, is decomposed in another attempt where the CPU can't run it whole."""
    while True:
        edge = to_edge_transform_and_lower(
            program,
            partitioner=[partitioner],
            compile_config=EdgeCompileConfig(
                _core_aten_ops_exception_list=list(core_aten_ops_exception_list),
                # ExecuTorch's runtime accepts or refuses operators that are no core operators or mix types.
                _check_ir_validity=False,
            ),
        )
        if not partitioner.left_whole:
            return edge, partitioner
        partitioner = partitioner.taking_apart(partitioner.left_whole)


def _parts(planned: PlannedProgram) -> dict[str, Any]:
    """Return the partitions of a program by the fields of ``CompiledModel``."""
    parts = planned.partitions
    return {
        "partitions": tuple(part for part in parts if part.conversion.compiled is not None),
        "converted": tuple(part for part in parts if part.conversion.compiled is None),
    }


@contextmanager
def in_words(name: str, doing: str) -> Iterator[None]:
    """Raise an exception of ExecuTorch as an InvalidModelError with its first line. Exceptions from this project's code are
    bugs and stay as they are."""
    try:
        yield
    except OpenNeutronError:
        raise
    # ExecuTorch raises RuntimeErrors, SpecViolationErrors, InternalErrors, AssertionErrors and any other exception of
    # its passes.
    except Exception as error:
        *_, (last, _) = traceback.walk_tb(error.__traceback__)
        if Path(last.f_code.co_filename).is_relative_to(PACKAGE):  # a mistake of this package, no message
            raise
        said = f"{first_line(error)} ({type(error).__name__})"
        for pattern, words in _PLAIN:
            said = re.sub(pattern, words, said)
        raise InvalidModelError(f"'{name}': ExecuTorch can't {doing} it: {said}.") from error


_PLAIN = (
    (r"Missing out variants: \{(.*)\}.*", r"it has no kernel for \1. Replace the operator in the model"),
    (
        r".*mem_offset \d+ does not fit.*",
        "the size of a tensor is known only when the model runs. Give it a fixed shape",
    ),
)
"""ExecuTorch's messages that name neither cause nor remedy, and their replacements."""


def keep_state(program: ExportedProgram) -> None:
    """Mark the program's initial state, so that ExecuTorch writes it to the file. Unmarked state is undefined at the start."""
    signature = program.graph_signature
    changed = set(signature.buffers_to_mutate.values())
    for node in program.graph.nodes:
        if node.op == "placeholder" and signature.inputs_to_buffers.get(node.name) in changed:
            node.meta["et_init_buffer"] = True
