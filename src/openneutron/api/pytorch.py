# SPDX-License-Identifier: BSD-3-Clause
"""A PyTorch model compiled with one call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import openneutron.pytorch  # noqa: F401  # isort: skip  (before torch and ExecuTorch, whose warnings on import it turns off)
import torch  # noqa: F401  # isort: skip  (a message names the first package that is not installed)
import executorch.kernels.quantized  # noqa: F401  (registers the quantize and dequantize operators of inputs and outputs)
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from openneutron.api import unquantized
from openneutron.api.compile import compiled
from openneutron.api.frame import Frame, backend_config, in_words, keep_state, lowered
from openneutron.api.result import CompiledResult
from openneutron.api.unquantized import Unquantized
from openneutron.device.cache import current
from openneutron.device.converter import kernel_selections
from openneutron.device.third_party import older_objects_kept, suppressed
from openneutron.device.timings import Timings, measured, step
from openneutron.errors import InvalidModelError, InvalidOptionError, warn
from openneutron.features.report import ConvertedSummary, Delegated, PartitionSummary, Summary
from openneutron.features.report.latency import host_operators
from openneutron.features.report.outputs import OutputAccuracy, accuracy_warning
from openneutron.features.report.summary import conversions_in
from openneutron.ir import Graph
from openneutron.options import CALLER, FLOAT32, CompileOptions, DelegationOptions, Request, budget_bytes, with_changes
from openneutron.pytorch.backend.compile_spec import decode
from openneutron.pytorch.backend.custom_delegation_options import CustomDelegationOptions
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.edge_passes.remove_io_quant_ops_pass import RemoveIOQuantOpsPass
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import generate_neutron_compile_spec
from openneutron.pytorch.partition.compiled import CompiledPartition, recompiled
from openneutron.pytorch.partition.delegation import Delegation, check_kernels, check_nodes, check_operators
from openneutron.pytorch.run.runner import Runner
from openneutron.pytorch.source.calibration_data import Calibrated
from openneutron.pytorch.source.exporting import aten_graph, export, lifted
from openneutron.targets import Target


@dataclass(frozen=True, eq=False)
class CompiledModel(CompiledResult):
    """The result of ``openneutron.compile`` for a PyTorch model.

    ``buffer`` is the ``.pte``. ``delegation`` has the side of each operator, with the reasons of the CPU fallbacks.
    ``partitions`` are the delegate calls with programs of this project's compiler, ``converted`` those of NXP's converter.
    ``frame`` is the program after ExecuTorch's passes, without payloads; ``quantizing`` returns ``quantized``. ``calibrated`` has
    the preprocessing of the calibration data and their first sample, ``timings`` the times of the compile's steps. ``outputs`` is the
    accuracy of the float results, measured on a few calibration samples; empty without a float model.

    >>> import openneutron
    >>> program = openneutron.compile(model, example, calibration=batches)  # doctest: +SKIP
    >>> program.run(*example)  # doctest: +SKIP
    """

    name: str
    target: Target = field(repr=False)
    options: CompileOptions
    buffer: bytes = field(repr=False)
    delegation: Delegation = field(repr=False)
    partitions: tuple[CompiledPartition, ...] = field(repr=False)
    budget_bytes: int
    frame: Frame = field(repr=False)
    quantizing: Callable[[], GraphModule] = field(repr=False)
    delegation_options: DelegationOptions = field(default=DelegationOptions(), repr=False)
    converted: tuple[CompiledPartition, ...] = field(default=(), repr=False)
    keywords: tuple[str, ...] = ()
    calibrated: Calibrated = field(default=Calibrated(), repr=False)
    timings: Timings = field(default=Timings(), repr=False)
    outputs: tuple[OutputAccuracy, ...] = field(default=(), repr=False)

    @property
    def quantized(self) -> GraphModule:
        """Return the quantized module in PyTorch's own arithmetic. It is made here where the model came from a cache.

        Raises InvalidModelError where the weights or the calibration samples have changed since such a compile.
        """
        return self.quantizing()

    @property
    def parts(self) -> tuple[CompiledPartition, ...]:
        """Return ``partitions`` and ``converted``."""
        return (*self.partitions, *self.converted)

    def as_fields(self) -> dict[str, Any]:
        """Return the fields for a pickle, which has neither the quantized module nor the nodes of the exported program."""
        parts = {
            name: tuple(dataclasses.replace(part, origins=dict, lowered=None) for part in getattr(self, name))
            for name in ("partitions", "converted")
        }
        return {**super().as_fields(), **parts, "quantizing": partial(_not_in_pickles, self.name)}

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
        with measured() as clock, suppressed(), older_objects_kept():
            made, specs = self._recompiled(with_changes(self.options, changes, "recompile"))
            with in_words(self.name, "write"), step("Writing"):
                buffer = self.frame.to_bytes([part.payload for part in made.parts], specs)
        return dataclasses.replace(made, buffer=buffer, timings=clock.timings)

    def _figures(self, changes: Mapping[str, Any]) -> Summary:
        with suppressed(), older_objects_kept():
            made, _ = self._recompiled(with_changes(self.options, changes, "figures"))
        return dataclasses.replace(made.report, file_bytes=None)  # options of the compiler change nothing on the CPU

    def _recompiled(self, options: CompileOptions) -> tuple[CompiledModel, list[CompileSpec]]:
        """Return the model with the programs of other options, but the bytes of the file of these ones, and its compile specs."""
        spec = NeutronTargetSpec(options.target)
        specs = _compile_spec(options, self.delegation_options, self.name)
        made = dataclasses.replace(
            self,
            target=spec.neutron_target,
            options=options,
            budget_bytes=budget_bytes(options.sram_budget, spec.neutron_target),
            **_parts(recompiled(self.parts, decode(specs))),
        )
        return made, specs

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
        modules = {item.node: item.module for item in self.delegation.on_npu if item.module}
        return Summary(
            model=self.name,
            target=self.target,
            delegated=tuple(
                Delegated(item.operator, item.name, item.partition, item.computes) for item in self.delegation.on_npu
            ),
            on_cpu=self.delegation.on_cpu,
            partitions=tuple(
                PartitionSummary(
                    part.name, part.compiled.report, part.layers, modules, conversions_in(part.compiled.graph), number
                )
                for number, part in enumerate(self.partitions)
            ),
            budget_bytes=self.budget_bytes,
            file_bytes=len(self.buffer),
            host=host_operators(self.buffer),
            converted=tuple(ConvertedSummary.of(part.name, part.conversion.program) for part in self.converted),
            outputs=self.outputs,
        )

    @property
    def compile_options(self) -> CompileOptions:
        """Return ``options``, with the place of inputs and outputs."""
        return self.options.placed(CALLER)

    def run(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model in ExecuTorch's runtime, with the delegates on the simulated NPU.

        State of the model is kept from run to run, until ``reset``. Images may have either memory format.

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

    def reset(self) -> None:
        """Set the model's state to its value before the first run: of delegates and of operators on the CPU."""
        self.__dict__.pop("_runner", None)  # a method that is loaded anew has its first state

    @cached_property
    def _runner(self) -> Runner:
        return Runner(self.name, self.buffer)


def _not_in_pickles(name: str) -> GraphModule:
    raise InvalidModelError(
        f"'{name}': a pickle has the compiled program without the quantized module. Compile the model again for that."
    )


def compile_module(request: Request) -> CompiledModel:
    """Return the model of a request, a module or an ExportedProgram, quantized to int8 and compiled. Raises as ``openneutron.compile``
    does."""
    options, quantization, delegation, name = request.options, request.quantization, request.delegation, request.name
    spec = NeutronTargetSpec(options.target)
    specs = _compile_spec(options, delegation, name)
    with suppressed(), step("Exporting"):
        source = aten_graph(request)
    asked = Unquantized.of(source, request, spec)
    made = _made_with_cache(asked, specs)
    if not delegation.any_runtime:
        with step("Checking kernels"):
            check_kernels(made.frame.file.program, made.delegation, name)
    result = CompiledModel(
        name=name,
        target=spec.neutron_target,
        options=options,
        buffer=made.buffer,
        delegation=made.delegation,
        budget_bytes=budget_bytes(options.sram_budget, spec.neutron_target),
        frame=made.frame,
        quantizing=made.quantizing,
        delegation_options=delegation,
        **_parts(made.parts),
        keywords=tuple(source.inputs.kwargs),
        calibrated=asked.calibrated,
        outputs=made.outputs,
    )
    if delegation.must_delegate and not result.parts:
        cpu, cause = result.delegation.on_cpu, result.delegation.cause
        first = f" For one, {cause}" if cause else ""
        count = sum(item.computes for item in cpu)
        words = "its one operator can't" if count == 1 else f"none of its {count} operators can"
        raise InvalidModelError(f"'{name}': {words} run on the NPU.{first}")
    inaccurate = accuracy_warning(
        name, result.outputs, None if quantization.io_dtype == FLOAT32 else quantization.io_dtype
    )
    if inaccurate is not None:
        warn(inaccurate)
    return result


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    """The compiled file and its parts; see ``CompiledModel``."""

    buffer: bytes
    delegation: Delegation
    frame: Frame
    parts: Sequence[CompiledPartition]
    quantizing: Callable[[], GraphModule]
    outputs: tuple[OutputAccuracy, ...] = ()


def _made_with_cache(asked: Unquantized, specs: list[CompileSpec]) -> _Made:
    """Return the compiled model, with the work that the cache of the compile that runs has."""
    store = current()
    if store is None or not unquantized.has_key(asked):
        return _made(asked, specs)
    with step("Looking up the model"):
        asked = asked.with_all_samples()
        key = unquantized.key_of(asked)
        found = unquantized.load(store, key)
    if found is None:
        made = _made(asked, specs)
        with suppressed(), step("Writing"):
            unquantized.save(store, key, made.delegation, made.frame, made.parts, specs, made.buffer, made.outputs)
        return made
    parts = recompiled(found.partitions, decode(specs))
    with suppressed(), in_words(asked.name, "write"), step("Writing"):
        buffer = found.frame.to_bytes([part.payload for part in parts], specs)
    quantizing = partial(unquantized.quantized_later, store, key, asked)
    return _Made(buffer, found.delegation, found.frame, parts, cache(quantizing), found.outputs)


def _made(asked: Unquantized, specs: list[CompileSpec]) -> _Made:
    """Return the compiled model: quantized, partitioned, compiled and written."""
    name, inputs, delegation = asked.name, asked.source.inputs, asked.request.delegation
    partitioner = NeutronPartitioner(
        specs,
        asked.target,
        CustomDelegationOptions(delegation.allow_no_op_partitions),
        preserve_ops=list(delegation.preserve_ops),
        check_on_cpu=None if delegation.any_runtime else partial(check_nodes, name=name),
    )
    quantized = asked.quantized()
    module = quantized.module
    if not delegation.any_runtime:
        with step("Checking kernels"):
            check_operators(module.graph, name)
    with suppressed():
        outputs = quantized.accuracy()
    with suppressed(), step("Exporting the quantized model"):
        program = lifted(module, inputs) or export(module, inputs, name)
    partitioner.post_quantization_state_dict = module.state_dict()
    with suppressed(), in_words(name, "lower", program.graph), step("Running ExecuTorch's passes"):
        edge, partitioner = lowered(program, partitioner, asked.calibrated.facts)
        if asked.request.quantization.io_dtype != FLOAT32:
            edge = edge.transform([RemoveIOQuantOpsPass(edge, asked.request.quantization.io_dtype)])
    with suppressed(), in_words(name, "write", program.graph), step("Writing"):
        if edge.exported_program().graph_signature.buffers_to_mutate:
            keep_state(edge.exported_program())
        executorch = edge.to_executorch(backend_config(delegation.any_runtime and not delegation.must_delegate))
        frame, parts = Frame.of(executorch)
        return _Made(bytes(executorch.buffer), partitioner.delegations[-1], frame, parts, lambda: module, outputs)


def analyse(model: nn.Module | ExportedProgram, example_inputs: Any = None, **others: Any) -> CompiledModel:
    """Compile like ``compile``, but accept a model of which nothing can run on the NPU, or that needs another runtime."""
    result = compiled(Request(model=model, example_inputs=example_inputs, **others).for_figures())
    assert isinstance(result, CompiledModel)
    return result


def _compile_spec(options: CompileOptions, delegation: DelegationOptions, name: str) -> list[CompileSpec]:
    return generate_neutron_compile_spec(
        options.target,
        operators_not_to_delegate=delegation.operators_not_to_delegate,
        use_neutron_for_format_conversion=delegation.use_neutron_for_format_conversion,
        options=options,
        name=name,
    )


def _parts(parts: Iterable[CompiledPartition]) -> dict[str, Any]:
    """Return the partitions of a program by the fields of ``CompiledModel``."""
    parts = tuple(parts)
    return {
        "partitions": tuple(part for part in parts if part.conversion.compiled is not None),
        "converted": tuple(part for part in parts if part.conversion.compiled is None),
    }
