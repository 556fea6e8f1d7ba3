# SPDX-License-Identifier: BSD-3-Clause
"""Compile a PyTorch model with one call. A cache keeps the results of the steps that no option of the compiler changes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, cached_property, partial
from operator import length_hint
from pathlib import Path
from typing import Any

import openneutron.pytorch  # noqa: F401  # isort: skip  (before torch and ExecuTorch, whose warnings on import it turns off)
import torch  # isort: skip  (a message names the first package that is not installed)
import executorch.kernels.quantized  # noqa: F401  (registers the quantize and dequantize operators of inputs and outputs)
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from openneutron.api.compile import compiled
from openneutron.api.frame import Frame, backend_config, in_words, keep_state, lowered
from openneutron.api.result import CompiledResult, check_partitions, check_recompile
from openneutron.device import converter as converters
from openneutron.device import pte
from openneutron.device.cache import UNREADABLE, Digest, Store, caching, code, current, packed, record, unpacked
from openneutron.device.converter import kernel_selections
from openneutron.device.converter.releases import Release
from openneutron.device.third_party import older_objects_kept, suppressed
from openneutron.device.timings import Timings, advance, measured, step
from openneutron.errors import InvalidModelError, InvalidOptionError, OpenNeutronError, warn
from openneutron.features.report import ConvertedSummary, Delegated, PartitionSummary, Summary
from openneutron.features.report.as_nxp import AsNxp, as_nxp
from openneutron.features.report.latency import host_operators
from openneutron.features.report.outputs import OutputAccuracy, accuracy_warning
from openneutron.features.report.summary import conversions_in
from openneutron.ir import Graph
from openneutron.ir import graph as graph_module
from openneutron.isa import Program
from openneutron.isa.payload import Format
from openneutron.options import (
    CALLER,
    EIQ,
    FLOAT32,
    XNNPACK,
    CompileOptions,
    DelegationOptions,
    Request,
    budget_bytes,
    changed,
    with_changes,
)
from openneutron.pytorch.backend.custom_delegation_options import CustomDelegationOptions
from openneutron.pytorch.backend.neutron_target_spec import (
    DelegateOptions,
    NeutronTargetSpec,
    decode_specs,
    encode_specs,
)
from openneutron.pytorch.edge_passes.remove_io_quant_ops_pass import RemoveIOQuantOpsPass
from openneutron.pytorch.graph.digests import add_node, add_samples, is_known, machine
from openneutron.pytorch.graph.program import is_quantize
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import CompiledPartition, Interface, LoweredPartition, recompiled
from openneutron.pytorch.partition.delegation import (
    COST,
    Delegation,
    check_kernels,
    check_nodes,
    check_operators,
    of_stages,
    registered,
)
from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize, measures_in, quantized_with, quantizer_for
from openneutron.pytorch.run.runner import Runner
from openneutron.pytorch.source.calibration_data import Calibrated, Calibration
from openneutron.pytorch.source.exporting import (
    METADATA,
    SAMPLES,
    AtenGraph,
    FirstSamples,
    ModelInputs,
    Staged,
    as_read,
    aten_graph,
    export,
    lifted,
    restore,
)
from openneutron.targets import Target


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """A quantized module. ``samples`` are the first calibration samples.

    ``real`` is the float module that the quantized one was made from; None where the accuracy is not measured. ``types`` has the types of
    activations of the target's NPU; empty where the quantized module is the same for every NPU.
    """

    module: GraphModule
    real: GraphModule | None = None
    samples: Sequence[ModelInputs] = ()
    types: tuple[str, ...] = ()

    def accuracy(self) -> tuple[OutputAccuracy, ...]:
        """Return the accuracy of the results on the samples; empty without a float module or samples."""
        if self.real is None or not self.samples:
            return ()
        from openneutron.features.accuracy.analysis import measured

        return measured(self.real, self.module, self.samples)


@dataclass(frozen=True, slots=True, eq=False)
class Unquantized:
    """An exported model, with everything that its quantization depends on.

    ``samples`` are the calibration samples; None without calibration data. ``total`` is their number; 0 if the number is not known.
    """

    source: AtenGraph
    request: Request
    target: NeutronTargetSpec
    samples: Iterable[ModelInputs] | None
    total: int
    calibration: Calibration | None

    @classmethod
    def of(cls, source: AtenGraph, request: Request, target: NeutronTargetSpec) -> Unquantized:
        """Return the model of a request. Calibration samples are read when they are needed. Raises as ``Calibration.of`` does."""
        found = Calibration.of(request.calibration, source.inputs, request.data)
        return cls(source, request, target, found, 0 if found is None else length_hint(found), found)

    @property
    def calibrated(self) -> Calibrated:
        """Return the facts of the calibration. They include the first sample after it was read."""
        return Calibrated() if self.calibration is None else self.calibration.calibrated

    @property
    def facts(self) -> dict[str, str]:
        """Return the texts that the compiled file stores, by the names of the methods that return them."""
        metadata = getattr(self.request.model, METADATA, None)
        return {**self.calibrated.facts, **({pte.METADATA: json.dumps(metadata)} if metadata else {})}

    @property
    def is_quantized(self) -> bool:
        """Return whether the exported model is quantized already."""
        return any(is_quantize(node) for node in self.source.module.graph.nodes)

    def with_all_samples(self) -> Unquantized:
        """Return the model with all calibration samples in memory; itself where it has none or is quantized already.

        Raises InvalidOptionError for an unusable sample.
        """
        return self if self.samples is None or self.is_quantized else replace(self, samples=list(self.samples))

    def quantized(self) -> Quantized:
        """Return the quantized module. This method can be called once, because calibration changes the exported module in place.

        A module that is quantized already is returned unchanged. Quantization-aware training trains a copy of the module. The result has
        ``real`` and ``samples`` only if the model is calibrated. Raises InvalidOptionError where an option or the calibration data is
        unusable.
        """
        options = self.request.quantization
        module, train_fn = self.source.module, options.train_fn
        measures = measures_in(options)
        quantizer = quantizer_for(options, self.target, converter=self.request.options.converter)
        if self.is_quantized:
            given = ("keep_float", "train_fn", "activations", "layer_activations", *measures)
            for option in [name for name in given if name in changed(options)]:
                raise InvalidOptionError(f"{option}: '{self.request.name}' is quantized already. Pass the float model.")
        elif train_fn is not None:
            # Train a copy: an exported module shares its parameters with the model.
            module = calibrate_and_quantize(copy.deepcopy(module), (), quantizer, is_qat=True, train_fn=train_fn)
        elif self.samples is None:
            raise InvalidOptionError(
                "calibration: there are no samples; int8 scales come from typical inputs. Pass calibration=[...], each item a tuple of the "
                "model's arguments (--calibration on the command line)."
            )
        else:
            total = self.total
            samples = FirstSamples(self.samples)
            real, module = quantized_with(
                module,
                quantizer,
                samples,
                options,
                lambda done: advance(done, total if done <= total else done + 1),
            )
            if self.source.state:
                restore(real, self.source.state)
                restore(module, self.source.state)
            types = self.target.neutron_target.npu.data_types.value if quantizer.depends_on_types else ()
            return Quantized(module, real, samples.first(SAMPLES), types)
        if self.source.state:
            restore(module, self.source.state)
        return Quantized(module)


KIND = "model"

LIBRARIES = ("torch", "torchao", "executorch", "flatbuffers", "numpy", "ortools")

READ_AT_THE_END = ("must_delegate", "any_runtime")
"""The delegation options that are only checked against the finished program, and so are no part of a cache key."""

FROM_WHERE = ("stack_trace", "torch_fn", "custom")
"""The metadata of nodes that quantization and delegation read beside the module stack. A user's notes are in ``custom`` too."""


@dataclass(frozen=True, slots=True, eq=False)
class CachedModel:
    """A model in the cache: its partitions before the compile, and everything that does not change with options of the compiler."""

    partitions: tuple[LoweredPartition, ...]
    delegation: Delegation
    frame: Frame
    outputs: tuple[OutputAccuracy, ...] = ()
    types: tuple[str, ...] = ()


def has_key(model: Unquantized) -> bool:
    """Return whether a model can have a cache entry: whether ``key_of`` can hash all that the entry depends on.

    The result is False for quantization-aware training, for NXP's converter, and with ``profile``, which names nodes of the exported
    program. It is also False for a float model without calibration samples, and for graphs with a user's operators, random operators,
    control flow or dynamic shapes. It is False too if ``keep_float`` or ``preserve_ops`` has anything but strings, types and PyTorch's
    operators.
    """
    source, quantization, options = model.source, model.request.quantization, model.request.options
    if options.converter == EIQ or options.profile or quantization.train_fn is not None:
        return False
    if not model.is_quantized and model.samples is None:
        return False
    plain = (str, type, torch._ops.OpOverload, torch._ops.OpOverloadPacket)
    if not all(isinstance(item, plain) for item in (*quantization.keep_float, *model.request.delegation.preserve_ops)):
        return False
    nodes = source.module.graph.nodes
    return all(is_known(node, source.module) and _is_fixed(node.meta.get("val")) for node in nodes)


def key_of(model: Unquantized) -> str:
    """Return the key of a model's cache entry: a hash of all that the entry depends on.

    The calibration samples must be in memory, since they are read here and again for the quantization.
    """
    source, quantization, delegation = model.source, model.request.quantization, model.request.delegation
    asked = {
        **{item.name: _plain(getattr(quantization, item.name)) for item in fields(quantization)},
        "facts": model.facts,
        "types": model.target.neutron_target.npu.data_types.value,
        "takes_int16": model.request.options.takes_int16,
        "cpu": model.request.options.cpu_kernels,
        "cuts": model.request.options.target if model.request.options.cuts_by_cost else "",
        **{item.name: _plain(getattr(delegation, item.name)) for item in fields(delegation)},
    }
    asked = {name: value for name, value in asked.items() if name not in READ_AT_THE_END}
    digest = Digest(KIND, code(*LIBRARIES), machine(), json.dumps(asked), repr(sorted(registered())))
    for node in source.module.graph.nodes:
        add_node(digest, node, source.module)
        # Only the values of module stacks are hashed: the keys may be addresses.
        modules = list((node.meta.get("nn_module_stack") or {}).values())
        noted = [repr(node.meta.get(name)) for name in FROM_WHERE]
        digest.add(repr((_outline(node.meta.get("val")), modules, noted)).encode())
    digest.add(repr(source.module.graph._codegen.pytree_info).encode())
    digest.add(repr(sorted(name for name, _ in source.module.named_modules())).encode())
    digest.add(repr((source.inputs.structure, [_outline(leaf) for leaf in source.inputs.leaves])).encode())
    if not model.is_quantized:
        add_samples(digest, model.samples or ())
    return digest.hex()


def _name(item: object) -> str:
    return f"{item.__module__}.{item.__qualname__}" if isinstance(item, type) else str(item)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else [_name(item) for item in value]


def _is_fixed(value: Any) -> bool:
    values = value if isinstance(value, (list, tuple)) else (value,)
    return all(
        all(isinstance(extent, int) for extent in (*item.shape, *item.stride()))
        if isinstance(item, torch.Tensor)
        else not isinstance(item, (torch.SymInt, torch.SymFloat, torch.SymBool))
        for item in values
    )


def _outline(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_outline(item) for item in value]
    return (value.dtype, tuple(value.shape), value.stride()) if isinstance(value, torch.Tensor) else value


def load(store: Store, key: str) -> CachedModel | None:
    """Return the model of a cache entry; None where there is no entry with this key, or none that can be read."""
    data = store.get(KIND, key)
    return None if data is None else read(data)


def save(
    store: Store,
    key: str,
    delegation: Delegation,
    frame: Frame,
    parts: Sequence[CompiledPartition],
    specs: Sequence[CompileSpec],
    buffer: bytes,
    outputs: Sequence[OutputAccuracy] = (),
    types: Sequence[str] = (),
) -> None:
    """Write the cache entry of a model. Nothing is written unless the entry reproduces the compiled file ``buffer``."""
    lowered = [LoweredPartition(part.name, part.graph, part.interface, part.layers) for part in parts]
    try:
        data = written(CachedModel(tuple(lowered), delegation, frame, tuple(outputs), tuple(types)))
    except TypeError:  # a graph can't be written as data
        return
    found = read(data)
    if found is not None and found.frame.to_bytes([part.payload for part in parts], specs) == buffer:
        store.put(KIND, key, data)


def written(model: CachedModel) -> bytes:
    """Return the bytes of a model's cache entry. Raises TypeError where a graph can't be written as data."""
    partitions = []
    blobs = [model.frame.to_bytes([b""] * len(model.partitions), [])]
    for part in model.partitions:
        graph, constants = graph_module.written(part.graph)
        blobs += constants
        partitions.append(
            {
                "name": part.name,
                "graph": graph,
                "constants": len(constants),
                "interface": asdict(part.interface),
                "layers": dict(part.layers),
            }
        )
    facts = {
        "partitions": partitions,
        "places": model.frame.places,
        "delegation": asdict(model.delegation),
        "outputs": [item.to_dict() for item in model.outputs],
        "types": model.types,
    }
    return packed(facts, blobs)


def read(data: bytes) -> CachedModel | None:
    """Return the model in the bytes of a cache entry; None where this version can't read them."""
    try:
        facts, blobs = unpacked(data)
        frame = Frame.from_bytes(blobs.pop(0), facts["places"])
        partitions = []
        for part in facts["partitions"]:
            constants, blobs = blobs[: part["constants"]], blobs[part["constants"] :]
            graph = graph_module.read(part["graph"], constants)
            graph.verify()
            layers = {str(name): str(words) for name, words in part["layers"].items()}
            partitions.append(LoweredPartition(part["name"], graph, _interface(part["interface"]), layers))
        outputs = tuple(record(OutputAccuracy, item) for item in facts["outputs"])
        delegation, types = record(Delegation, facts["delegation"]), tuple(map(str, facts["types"]))
        return CachedModel(tuple(partitions), delegation, frame, outputs, types)
    except (*UNREADABLE, OpenNeutronError):
        return None


def _interface(facts: dict[str, Any]) -> Interface:
    return replace(
        record(Interface, {**facts, "formats": {}}),
        formats={tensor: Format(value) for tensor, value in facts["formats"].items()},
    )


def quantized_later(store: Store, key: str, model: Unquantized) -> GraphModule:
    """Quantize a model whose compile used the cache entry ``key``, and return the quantized module.

    Raises InvalidModelError where the weights or the calibration samples have changed since the compile.
    """
    if key_of(model) != key:
        raise InvalidModelError(
            f"'{model.request.name}': its weights or calibration samples have changed since it was compiled. With a cache the "
            "quantized module is made when it is first read; read it before, or compile without a cache."
        )
    with caching(store):
        return model.quantized().module


@dataclass(frozen=True, eq=False)
class CompiledModel(CompiledResult):
    """The result of ``openneutron.compile`` for a PyTorch model.

    ``buffer`` has the bytes of the ``.pte``. ``delegation`` states whether each operator runs on the NPU or on the CPU, with the reasons
    of the CPU fallbacks. ``partitions`` are the delegate calls with programs of this project's compiler, ``converted`` those with
    programs of NXP's converter. ``frame`` is the program after ExecuTorch's passes, without payloads. ``quantizing`` is the function that
    returns ``quantized``. ``calibrated`` has the preprocessing of the calibration data and the first sample. ``timings`` has the times of
    the compile's steps. ``later`` is a float module with steps after the quantized module, such as a detector's non-maximum suppression.
    It is None where there are none. ``outputs`` is the accuracy of the float results on a few calibration samples; empty without a float
    model. ``types`` has the types of activations of the NPU where the quantization depends on them, or else nothing.

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
    later: nn.Module | None = field(default=None, repr=False)
    types: tuple[str, ...] = field(default=(), repr=False)

    @property
    def whole(self) -> nn.Module:
        """Return the quantized module with the steps behind it that stay float, as the file computes them."""
        quantized = self.quantized
        return quantized if self.later is None else Staged(quantized, (), self.later)

    @property
    def quantized(self) -> GraphModule:
        """Return the quantized module, which computes in PyTorch's own arithmetic.

        Where the model came from a cache, the module is quantized at the first read. Raises InvalidModelError where
        the weights or the calibration samples have changed since such a compile, and for a model from a pickle, which
        has no quantized module.
        """
        return self.quantizing()

    @property
    def parts(self) -> tuple[CompiledPartition, ...]:
        """Return ``partitions`` and ``converted``."""
        return (*self.partitions, *self.converted)

    def as_fields(self) -> dict[str, Any]:
        """Return the fields for a pickle by name, without the quantized module and the nodes of the exported program."""
        parts = {
            name: tuple(replace(part, origins=dict, lowered=None) for part in getattr(self, name))
            for name in ("partitions", "converted")
        }
        return {**super().as_fields(), **parts, "later": None, "quantizing": partial(_not_in_pickles, self.name)}

    def recompile(self, **changes: Any) -> CompiledModel:
        """Return the same compiled quantized program with other options of the compiler.

        The compiler runs and the file is written again. Export, calibration and ExecuTorch's passes are not repeated. The search for a
        schedule reuses the results of earlier calls, which stay in memory as long as a model of this quantized program exists.

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
        return replace(made, buffer=buffer, timings=clock.timings)

    def _figures(self, changes: Mapping[str, Any]) -> Summary:
        with suppressed(), older_objects_kept():
            made, _ = self._recompiled(with_changes(self.options, changes, "figures"))
        return replace(made.report, file_bytes=None)  # the figures of the CPU do not depend on options of the compiler

    def _recompiled(self, options: CompileOptions) -> tuple[CompiledModel, list[CompileSpec]]:
        """Return the model with its programs compiled with other options, and the compile spec of these options.

        ``buffer`` of the returned model is still the file of this model.
        """
        self._check_same(options)
        spec, specs = NeutronTargetSpec(options.target), _compile_spec(options, self.delegation_options, self.name)
        made = replace(
            self,
            target=spec.neutron_target,
            options=options,
            budget_bytes=budget_bytes(options.sram_budget, spec.neutron_target),
            **_parts(recompiled(self.parts, decode_specs(specs))),
        )
        return made, specs

    def _check_same(self, options: CompileOptions) -> None:
        found, before = self.delegation, self.options
        check_partitions(self.name, before, options, self.graphs, found.on_cpu)
        rules = [item.rule for item in found.on_cpu if item.computes]
        check_recompile(self.name, before, options, self.types, bool(rules), found.has_islands, COST in rules)

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
    def programs(self) -> tuple[Program, ...]:
        """Return the programs of ``partitions``."""
        return tuple(part.compiled.program for part in self.partitions)

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
            cpu_parts=self.delegation.cpu_parts,
        )

    def as_nxp(self, release: Release) -> AsNxp:
        """Return which operators of the partitions NXP's own tools would run on the NPU. The limits are those that NXP publishes for
        ``release`` of its SDK."""
        others = sum(item.computes for item in self.delegation.on_cpu)
        return as_nxp([part.graph for part in self.parts], (), release, self.target.name, others)

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
            DriverError: The driver ends the run, for example because an index has no row in its table.
            MissingToolError: The delegate can't be built on this machine.
        """
        if set(kwargs) != set(self.keywords):
            wanted, there = (", ".join(map(repr, names)) or "nothing" for names in (self.keywords, kwargs))
            names = ", ".join(("...", *(f"{name}=..." for name in self.keywords)))
            raise InvalidOptionError(
                f"'{self.name}' takes {wanted} by keyword, and was given {there}. Call run({names})."
            )
        return self._runner.run(pytree.tree_leaves((args, [kwargs[key] for key in self.keywords])))

    def reset(self) -> None:
        """Set the model's state, on the NPU and on the CPU, to its value before the first run."""
        self.__dict__.pop("_runner", None)  # loading the method again restores the initial state

    @cached_property
    def _runner(self) -> Runner:
        return Runner(self.name, self.buffer)


def _not_in_pickles(name: str) -> GraphModule:
    raise InvalidModelError(
        f"'{name}': a pickle has the compiled program without the quantized module. Compile the model again for that."
    )


def compile_module(request: Request) -> CompiledModel:
    """Return the compiled model of a request. The request has a module or an ExportedProgram, which is quantized if it is float.

    Raises as ``openneutron.compile`` does.
    """
    request = as_read(request)
    graph_of = aten_graph
    if changed(request.inputs):
        from openneutron.pytorch.frames import framed, graph_of_frames

        request, graph_of = framed(request), graph_of_frames
    options, quantization, delegation, name = request.options, request.quantization, request.delegation, request.name
    spec, specs = NeutronTargetSpec(options.target), _compile_spec(options, delegation, name)
    with suppressed(), step("Exporting"):
        source = graph_of(request)
    asked = Unquantized.of(source, request, spec)
    store = current()
    made = _made_with_cache(store, asked, specs) if store is not None and has_key(asked) else _made(asked, specs)
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
        later=getattr(request.model, "later", None) if isinstance(request.model, Staged) else None,
        types=made.types,
    )
    if delegation.must_delegate and not result.parts:
        cpu, cause = result.delegation.on_cpu, result.delegation.cause
        first = f" For one, {cause}" if cause else ""
        count = sum(item.computes for item in cpu)
        words = (
            "its one operator can't"
            if count == 1
            else f"none of its {count} operators can"
            if count
            else "it has no operator to"
        )
        raise InvalidModelError(f"'{name}': {words} run on the NPU.{first}")
    inaccurate = accuracy_warning(
        name, result.outputs, None if quantization.io_dtype == FLOAT32 else quantization.io_dtype
    )
    if inaccurate is not None:
        warn(inaccurate)
    return result


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    """The compiled file and its parts. The fields are those of ``CompiledModel``; ``parts`` are ``partitions`` and ``converted``."""

    buffer: bytes
    delegation: Delegation
    frame: Frame
    parts: Sequence[CompiledPartition]
    quantizing: Callable[[], GraphModule]
    outputs: tuple[OutputAccuracy, ...] = ()
    types: tuple[str, ...] = ()


def _made_with_cache(store: Store, asked: Unquantized, specs: list[CompileSpec]) -> _Made:
    """Return the compiled file and its parts. Use the model's cache entry if there is one, or else write it."""
    with step("Looking up the model"):
        asked = asked.with_all_samples()
        key = key_of(asked)
        found = load(store, key)
    if found is None:
        made = _made(asked, specs)
        with suppressed(), step("Writing"):
            save(store, key, made.delegation, made.frame, made.parts, specs, made.buffer, made.outputs, made.types)
        return made
    parts = recompiled(found.partitions, decode_specs(specs))
    with suppressed(), in_words(asked.request.name, "write"), step("Writing"):
        buffer = found.frame.to_bytes([part.payload for part in parts], specs)
    quantizing = partial(quantized_later, store, key, asked)
    return _Made(buffer, found.delegation, found.frame, parts, cache(quantizing), found.outputs, found.types)


def _made(asked: Unquantized, specs: list[CompileSpec]) -> _Made:
    """Quantize, partition and compile a model without its cache entry. Return the compiled file and its parts."""
    name, inputs, delegation = asked.request.name, asked.source.inputs, asked.request.delegation
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
    staged = asked.request.model if isinstance(asked.request.model, Staged) else None
    if staged is not None and quantized.real is not None:
        from openneutron.features.accuracy.boxes import warn_of_lost_boxes

        warn_of_lost_boxes(staged, name, quantized.real, module, quantized.samples)
    with suppressed(), step("Exporting the quantized model"):
        if staged is not None and staged.later is not None:
            program = export(Staged(module, inputs.tensors, staged.later), inputs, name)
        else:
            program = lifted(module, inputs) or export(module, inputs, name)
    partitioner.post_quantization_state_dict = module.state_dict()
    with suppressed(), in_words(name, "lower", program.graph), step("Running ExecuTorch's passes"):
        edge, partitioner = lowered(program, partitioner, asked.facts)
        found = partitioner.delegations[-1]
        if staged is not None:
            found = of_stages(found)
        if asked.request.quantization.io_dtype != FLOAT32:
            edge = edge.transform([RemoveIOQuantOpsPass(edge, asked.request.quantization.io_dtype)])
        if islands := {item.node for item in found.on_cpu if item.rule == COST}:
            from openneutron.pytorch.partition.islands import in_float

            edge = in_float(edge, islands)
        if asked.request.options.cpu_kernels == XNNPACK and found.on_cpu:
            from openneutron.pytorch.partition.xnnpack import with_xnnpack

            edge, found = with_xnnpack(edge, found)
        if found.on_cpu:
            from openneutron.pytorch.partition.memory_order import with_contiguous_operands

            edge = with_contiguous_operands(edge)
    with suppressed(), in_words(name, "write", program.graph), step("Writing"):
        if edge.exported_program().graph_signature.buffers_to_mutate:
            keep_state(edge.exported_program())
        executorch = edge.to_executorch(backend_config(delegation.any_runtime and not delegation.must_delegate))
        frame, parts = Frame.of(executorch)
        return _Made(bytes(executorch.buffer), found, frame, parts, lambda: module, outputs, quantized.types)


def analyse(model: nn.Module | ExportedProgram, example_inputs: Any = None, **others: Any) -> CompiledModel:
    """Compile like ``compile``, but accept a model of which nothing can run on the NPU, or that needs another runtime."""
    result = compiled(Request(model=model, example_inputs=example_inputs, **others).for_figures())
    assert isinstance(result, CompiledModel)
    return result


def _compile_spec(options: CompileOptions, delegation: DelegationOptions, name: str) -> list[CompileSpec]:
    """Return the compile spec of a model. Raises as the converter's ``check`` does."""
    converters.get(options.converter).check(options)
    patterns, formats = tuple(delegation.operators_not_to_delegate), delegation.use_neutron_for_format_conversion
    return encode_specs(DelegateOptions(options.placed(CALLER), patterns, formats, name=name))


def _parts(parts: Iterable[CompiledPartition]) -> dict[str, Any]:
    """Return the fields ``partitions`` and ``converted`` of ``CompiledModel`` for the partitions of a program."""
    parts = tuple(parts)
    return {
        "partitions": tuple(part for part in parts if part.conversion.compiled is not None),
        "converted": tuple(part for part in parts if part.conversion.compiled is None),
    }
