# SPDX-License-Identifier: BSD-3-Clause
"""The ExecuTorch backend: it compiles a partition of an edge program to a delegate payload.

``CompiledPartition`` has such a payload with the origins of its kernel calls in the model, and compiles it again with other options.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar, final

import torch
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram
from torch.fx import Node

from openneutron import litert, targets
from openneutron.compiler import Compiled, Prepared, prepared
from openneutron.compiler.search.fitted import over_budget
from openneutron.compiler.select.calls import in_words, node_of
from openneutron.compiler.select.select import Trial
from openneutron.device import converter as converters
from openneutron.device import files
from openneutron.device.converter import Conversion
from openneutron.device.timings import advance, step
from openneutron.errors import BudgetError, InvalidOptionError
from openneutron.ir import Graph
from openneutron.isa import Program, decode
from openneutron.isa.microcode import OperatorFacts, calls, event_name, facts_of, with_facts
from openneutron.isa.payload import Format, pack
from openneutron.litert.neutron_graph import NeutronNode, splice
from openneutron.options import CompileOptions, budget_bytes
from openneutron.pytorch.backend.neutron_target_spec import (
    DelegateOptions,
    decode_specs,
    encode_specs,
    is_flavor,
    is_ours,
    warn_of_flavor,
    with_upstream,
)
from openneutron.pytorch.graph.program import (
    Constants,
    is_compute,
    is_getitem,
    model_name,
    module_path,
    source_line,
    title,
)
from openneutron.pytorch.lower.lower import Lowered, Lowering, Refusal, states_of
from openneutron.pytorch.lower.units import Unit, find_units
from openneutron.pytorch.partition.gather import HANDOVER, Handover


@dataclass(frozen=True, slots=True)
class Origin:
    """The operators of the user's model that one node of a partition's graph computes.

    name: the first operator's name, as messages show it. module: the path of that operator's module. operators: the
    kinds of all operators, such as ``aten.relu``. lines: the source lines of all operators. handles: ExecuTorch's
    debug handles of all operators.
    """

    name: str
    module: str
    operators: tuple[str, ...]
    lines: tuple[str, ...]
    handles: tuple[int, ...]

    @classmethod
    def of(cls, owner: Node, others: Sequence[Node]) -> Origin:
        """Return the origin with the name of the operator ``owner``, and with the operators ``others`` that the same node computes."""
        nodes = (owner, *others)
        return cls(
            model_name(owner),
            module_path(owner),
            tuple(dict.fromkeys(title(node) for node in nodes if is_compute(node))),
            tuple(dict.fromkeys(filter(None, map(source_line, nodes)))),
            tuple(dict.fromkeys(handle for node in nodes for handle in _handles(node))),
        )


Origins = Callable[[], Mapping[str, Origin]]
"""A function that computes the origin of each node of a graph, by the node's result."""


def _handles(node: Node) -> tuple[int, ...]:
    handle = node.meta.get("debug_handle", ())
    return (handle,) if isinstance(handle, int) else tuple(handle)


def origins_of(units: Iterable[Unit], lowered: Lowered) -> dict[str, Origin]:
    """Return the origin of each node of the lowered graph, by the name of the node's result.

    An operator that is fused into another one, such as a ReLU, belongs to the origin of the last node of its unit.
    """
    owners = {result: _computed(node) for result, node in lowered.owners.items()}
    owned: dict[Node, list[str]] = {}
    for result, node in owners.items():
        owned.setdefault(node, []).append(result)
    with_it: dict[str, list[Node]] = {}
    for unit in units:
        compute = [node for node in unit.nodes if is_compute(node)]
        last = next((owned[node][-1] for node in reversed(compute) if node in owned), None)
        if last is not None:
            with_it[last] = [node for node in compute if node not in owned]
    return {result: Origin.of(node, with_it.get(result, ())) for result, node in owners.items()}


def _computed(node: Node) -> Node:
    """Return the operator whose result a quantize, dequantize or getitem node passes on.

    Return the node itself if it is an operator, or if its operand comes from outside of the partition.
    """
    source = node
    while not is_compute(source) or is_getitem(source):
        before = source.args[0] if source.args else None
        if not isinstance(before, Node) or before.op != "call_function":
            return node
        source = before
    return source


def with_origins(conversion: Conversion, origins: Mapping[str, Origin]) -> Conversion:
    """Return a conversion whose program has the origins in the facts of its kernel calls. The conversion is of this project's compiler."""
    assert conversion.compiled is not None
    program = with_facts(conversion.program, [_traced(item, origins) for item in facts_of(conversion.program)])
    return replace(conversion, program=program, compiled=replace(conversion.compiled, program=program))


def _traced(facts: OperatorFacts, origins: Mapping[str, Origin]) -> OperatorFacts:
    node = node_of(facts.layer, origins)
    if not node:
        return facts
    origin = origins[node]
    layer = in_words(facts.layer, node, origin.name)
    return replace(facts, layer=layer, module=origin.module, operators=origin.operators, lines=origin.lines)


def debug_handle_map(program: Program, origins: Mapping[str, Origin]) -> dict[int | str, tuple[int, ...]]:
    """Return the debug handles of each event that a delegate logs in a run of the program. The result is empty if the
    program was compiled without profiling.

    There are two keys for each event, because ExecuTorch's NXP delegate logs an event's number and this project's
    delegate logs its name. NXP's delegate logs one more event at the end of a run, which has no handles.
    """
    facts = facts_of(program)
    if not facts:
        return {}
    nodes = [node_of(item.layer, origins) for item in facts]
    handles = [origins[node].handles if node else () for node in nodes]
    titles = [_traced(item, origins).layer for item in facts]
    events = [step.operator for step in calls(decode(program))]
    numbered: dict[int | str, tuple[int, ...]] = {index: handles[call] for index, call in enumerate(events)}
    named: dict[int | str, tuple[int, ...]] = {
        event_name(index, titles[call]): handles[call] for index, call in enumerate(events)
    }
    return {**numbered, len(events): (), **named}


@dataclass(frozen=True, slots=True)
class Interface:
    """The inputs and outputs of a delegate call.

    sources: the position of each input among the arguments, by tensor. results: the position of each output among the results, by
    tensor. formats: the memory format of each of these tensors. arguments: the number of arguments.
    """

    sources: Mapping[str, int]
    results: Mapping[str, int]
    formats: Mapping[str, Format]
    arguments: int

    @classmethod
    def of(cls, program: ExportedProgram, lowered: Lowered) -> Interface:
        """Return the interface of a delegated program."""
        arguments = {node: place for place, node in enumerate(user_inputs(program))}
        return cls(
            {item.tensor: arguments[item.node] for item in lowered.inputs},
            {item.tensor: place for place, item in enumerate(lowered.outputs)},
            {
                item.tensor: Format.CHANNELS_LAST if item.channels_last else Format.CONTIGUOUS
                for item in (*lowered.inputs, *lowered.outputs)
            },
            len(arguments),
        )

    def payload(self, conversion: Conversion) -> bytes:
        """Return the payload of a compiled partition. Raises InvalidProgramError if the partition has more inputs or outputs than a
        payload holds."""
        if conversion.compiled is not None:
            conversion.program.verify()
        return pack(
            conversion.program,
            [self.formats[tensor] for tensor in conversion.inputs],
            [self.formats[tensor] for tensor in conversion.outputs],
            [self.sources[tensor] for tensor in conversion.inputs],
            [self.results[tensor] for tensor in conversion.outputs],
            self.arguments,
            conversion.payload_version,
        )


@dataclass(frozen=True, slots=True, eq=False)
class LoweredPartition:
    """A partition that is lowered to a graph and not compiled. layers: the name of each node of the graph in messages."""

    name: str
    graph: Graph = field(repr=False)
    interface: Interface = field(repr=False)
    layers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def recompiled(self, delegate: DelegateOptions) -> CompiledPartition:
        """Return the partition compiled with these options. Raises as ``Converter.convert`` does."""
        graph = replace(self.graph, name=graph_name(delegate, self.name))
        with in_modules(lambda: self.layers):
            conversion = converters.get(delegate.options.converter).convert(graph, delegate.options)
        return CompiledPartition(self.name, graph, conversion, self.interface, None, known_layers=self.layers)


def graph_name(delegate: DelegateOptions, partition: str) -> str:
    """Return the name of a partition's graph in messages."""
    return " ".join(filter(None, (delegate.name, partition)))


@dataclass(frozen=True, eq=False)
class CompiledPartition:
    """A compiled partition. The lowered module in the ExecuTorch program holds it as ``_delegate_info_meta``.

    Only ``conversion``, the result of the compiler, depends on the compiler's options. first_stages: results of the
    compiler's first stages, which a compile with other options reuses. origins: a function that returns the operators
    of the model behind each node of the graph. lowered: the graph with the edge node of each tensor. known_layers:
    the name in messages of each node of the graph. It is set only for a model from the cache, which has neither
    origins nor ``lowered``.
    """

    name: str
    graph: Graph = field(repr=False)
    conversion: Conversion = field(repr=False)
    interface: Interface = field(repr=False)
    first_stages: Trial | Prepared | None = field(repr=False)
    origins: Origins = field(default=dict, repr=False)
    lowered: Lowered | None = field(default=None, repr=False)
    known_layers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledPartition:
        # ExecuTorch copies the lowered module several times, and a compiled partition never changes.
        return self

    @property
    def payload(self) -> bytes:
        """Return the payload of the delegate call."""
        return self.interface.payload(self.conversion)

    @property
    def compiled(self) -> Compiled:
        """Return the result of this project's compiler. A partition that NXP's converter compiled must not be asked for it."""
        assert self.conversion.compiled is not None
        return self.conversion.compiled

    @cached_property
    def _origins(self) -> Mapping[str, Origin]:
        return self.origins()

    @property
    def layers(self) -> dict[str, str]:
        """Return the name of each node of the graph in messages; see ``layers_of``."""
        return layers_of(self._origins) or dict(self.known_layers)

    def profiled(self) -> tuple[CompiledPartition, dict[int | str, tuple[int, ...]]]:
        """Return the partition and the debug handles of the events that a run of it logs. The program of this
        partition names, for each kernel call, the operators of the model that the call computes.

        A partition that was compiled without profiling is returned unchanged, without debug handles.
        """
        if self.conversion.compiled is None or not facts_of(self.conversion.program):
            return self, {}
        conversion = with_origins(self.conversion, self._origins)
        return replace(self, conversion=conversion), debug_handle_map(self.conversion.program, self._origins)

    @cached_property
    def _prepared(self) -> Prepared:
        """Return the first stages of the compile. They are kept, so that a compile with other options does not repeat their searches."""
        known = self.first_stages
        return known if isinstance(known, Prepared) else prepared(self.graph, known, kept=True)

    def recompiled(self, delegate: DelegateOptions) -> CompiledPartition:
        """Return the partition compiled with other options of the compiler. Raises as ``Converter.convert`` does."""
        converter = converters.get(delegate.options.converter)
        with in_modules(lambda: self.layers):
            conversion = converter.convert(self.graph, delegate.options, trial=self._prepared)
        return replace(self, conversion=conversion, first_stages=self._prepared).profiled()[0]

    def intermediates(self, folder: Path) -> dict[Path, bytes]:
        """Return the partition's files for ``folder``: its ``.tflite`` before and after compiling."""
        pure, made = litert.write(self.graph), self.conversion.file
        if made is None:
            node = NeutronNode(self.name, self.graph.inputs, self.graph.outputs, self.compiled.program)
            model = litert.read(pure)
            main = model.model.subgraphs[0]
            # A stock file has the old and new values of states after the other tensors; a program keeps states itself.
            main.inputs, main.outputs = main.inputs[: len(node.inputs)], main.outputs[: len(node.outputs)]
            made = splice(model, [node])
        return {folder / f"{self.name}_pure.et.tflite": pure, folder / f"{self.name}_neutron.et.tflite": made}


def recompiled(
    parts: Sequence[LoweredPartition | CompiledPartition], delegate: DelegateOptions
) -> list[CompiledPartition]:
    """Compile the partitions of a model with these options. Raises as ``all_compiled`` does."""
    return all_compiled([(partial(part.recompiled, delegate), lambda: delegate) for part in parts])


@contextmanager
def in_modules(layers: Callable[[], Mapping[str, str]]) -> Iterator[None]:
    """Return a context manager that catches a BudgetError and raises it with the names that ``layers`` returns for the graph's nodes."""
    try:
        yield
    except BudgetError as error:
        known = layers()
        named = tuple(dict.fromkeys(known.get(name) or name for name in error.layers))
        raise BudgetError(str(error), error.least_bytes, error.suggestions, named) from error


def layers_of(origins: Mapping[str, Origin]) -> dict[str, str]:
    """Return the name of each node of a graph, and of each input, in messages."""
    return {name: origin.name for name, origin in origins.items()}


Made = TypeVar("Made")


def all_compiled(compiles: Sequence[tuple[Callable[[], Made], Callable[[], DelegateOptions]]]) -> list[Made]:
    """Compile all partitions of a model and return the results. ``compiles`` has two functions for each partition:
    one compiles it, the other returns its options.

    If partitions need more SRAM than the budget, one BudgetError for all of these is raised after the last compile.
    """
    made: list[Made] = []
    over: list[BudgetError] = []
    delegate: DelegateOptions | None = None
    with step("Compiling", len(compiles)):
        for done, (compiles_one, options) in enumerate(compiles, 1):
            try:
                made.append(compiles_one())
            except BudgetError as error:
                over.append(error)
                delegate = delegate or options()
            advance(done, len(compiles))
    if delegate is not None:
        target = targets.get(delegate.options.target)
        budget = budget_bytes(delegate.options.sram_budget, target)
        raise over_budget(delegate.name or "model", over, len(compiles), budget, target)
    return made


def user_inputs(program: ExportedProgram) -> list[Node]:
    """Return the inputs of a program that its user passes."""
    names = set(program.graph_signature.user_inputs)
    return [node for node in program.graph_module.graph.nodes if node.op == "placeholder" and node.name in names]


core_aten_ops_exception_list = [torch.ops.aten.prelu.default]
"""Operators without a core ATen decomposition, which ``EdgeCompileConfig`` has to accept as they are."""


def generate_neutron_compile_spec(
    config: str,
    system_config: str | None = None,
    extra_flags: str | Sequence[str] | None = None,
    intermediates_dir: str | None = None,
    operators_not_to_delegate: Sequence[str] | None = None,
    use_neutron_for_format_conversion: bool = True,
    fetch_constants_to_sram: bool = False,
    dump_kernel_selection_code: bool = False,
    use_profiling: bool = False,
    *,
    options: CompileOptions = CompileOptions(),
    name: str = "",
    neutron_converter_flavor: str | None = None,
) -> list[CompileSpec]:
    """Return the compile spec for a target.

    The parameters before ``options`` are those of ExecuTorch's NXP backend.

    Args:
        config: The target.
        system_config: Ignored with a warning, as in ExecuTorch's NXP backend. ExecuTorch 1.0 and 1.1 have
            ``neutron_converter_flavor`` in this position: a text such as ``SDK_25_09`` is taken as the flavor.
        extra_flags: The converter's flags as on a command line, in one text or a list. This project's compiler takes
            the flags of ``CompileOptions``, such as ``--sram-budget=KIB`` and ``--io-place=arena``. It also takes the
            fields of NXP's compilationOpts, and warns of those that have no effect in it. NXP's converter takes the
            fields of its compilationOpts.
        intermediates_dir: A folder for each partition's ``.tflite``, before and after compiling.
        operators_not_to_delegate: Operators (``aten::relu``, ``aten.add.Tensor``), nodes (``aten_relu_default_1``) and
            modules (``features.3``); ``*``, ``?`` and ``[...]`` are wildcards.
        use_neutron_for_format_conversion: True transposes contiguous images at inputs and outputs on the NPU, False in
            the runtime.
        fetch_constants_to_sram: ``prefetch_constants`` of ``CompileOptions``.
        dump_kernel_selection_code: True writes a C file for each partition to the working directory. The file
            registers only the kernels that the partition calls.
        use_profiling: ``profile`` of ``CompileOptions``: each kernel call of a run leaves an event in the ETDump.
        options: The compiler's options. Their target is ``config``. The caller provides the memory of inputs and
            outputs, unless ``io_place`` is set.
        name: The model's name in messages.
        neutron_converter_flavor: Ignored with a warning (ExecuTorch 1.0 and 1.1 had it).

    Returns:
        The list for ``NeutronPartitioner``.

    Raises:
        InvalidTargetError: The target is unknown.
        InvalidOptionError: An option is unusable, or two contradict each other.
        MissingToolError: The converter is NXP's, whose SDK is not installed.

    >>> from openneutron import CompileOptions
    >>> from openneutron.pytorch import NeutronPartitioner
    >>> spec = generate_neutron_compile_spec("imxrt700", options=CompileOptions(sram_budget=64 * 1024))
    >>> partitioner = NeutronPartitioner(spec)
    """
    if system_config is not None and is_flavor(system_config):
        neutron_converter_flavor = system_config
    elif system_config is not None:
        warnings.warn(
            f"system_config: '{system_config}' changes nothing, here as in ExecuTorch's NXP backend; "
            "the target says all there is to say of a chip.",
            UserWarning,
            stacklevel=2,
        )
    if neutron_converter_flavor is not None:
        warn_of_flavor(neutron_converter_flavor, stacklevel=2)
    return encode_specs(
        _delegate_options(
            with_upstream(options, config, extra_flags, fetch_constants_to_sram, use_profiling, stacklevel=3),
            operators_not_to_delegate,
            use_neutron_for_format_conversion,
            intermediates_dir,
            dump_kernel_selection_code,
            name,
        )
    )


class NeutronCompileSpecBuilder:
    """Makes a compile spec in two steps. ``generate_neutron_compile_spec`` makes the same compile spec in one call.
    >>> spec = NeutronCompileSpecBuilder().neutron_compile_spec("imxrt700").build()
    >>> spec == generate_neutron_compile_spec("imxrt700")
    True
    """

    def __init__(self) -> None:
        self._delegate: DelegateOptions | None = None

    def neutron_compile_spec(
        self,
        config: str,
        intermediates_dir: str | None = None,
        extra_flags: str | Sequence[str] | None = None,
        operators_not_to_delegate: Sequence[str] | None = None,
        use_neutron_for_format_conversion: bool = True,
        fetch_constants_to_sram: bool = False,
        dump_kernel_selection_code: bool = False,
        use_profiling: bool = False,
        *,
        options: CompileOptions = CompileOptions(),
        name: str = "",
        neutron_converter_flavor: str | None = None,
    ) -> NeutronCompileSpecBuilder:
        """Set the options of the compile spec and return the builder. It can be called once.

        The parameters and errors are those of ``generate_neutron_compile_spec``. ExecuTorch 1.0 and 1.1 have
        ``neutron_converter_flavor`` in the second position: a text such as ``SDK_25_09`` there is taken as the flavor. A folder of
        that name is written ``./SDK_25_09``.
        """
        if is_flavor(intermediates_dir):
            neutron_converter_flavor, intermediates_dir = intermediates_dir, None
        if neutron_converter_flavor is not None:
            warn_of_flavor(neutron_converter_flavor, stacklevel=2)
        assert self._delegate is None, "the compile spec is set already; make a new builder for another one"
        self._delegate = _delegate_options(
            with_upstream(options, config, extra_flags, fetch_constants_to_sram, use_profiling, stacklevel=3),
            operators_not_to_delegate,
            use_neutron_for_format_conversion,
            intermediates_dir,
            dump_kernel_selection_code,
            name,
        )
        return self

    def build(self) -> list[CompileSpec]:
        """Return the compile spec; an empty list where no options were set."""
        return encode_specs(self._delegate) if self._delegate is not None else []


def _delegate_options(
    options: CompileOptions,
    operators_not_to_delegate: Sequence[str] | None,
    use_neutron_for_format_conversion: bool,
    intermediates_dir: str | None,
    dump_kernel_selection_code: bool,
    name: str,
) -> DelegateOptions:
    """Return the options of a compile spec. Raises the errors of ``generate_neutron_compile_spec``."""
    if intermediates_dir is not None and not isinstance(intermediates_dir, str | os.PathLike):
        raise InvalidOptionError(
            f"intermediates_dir: it is {intermediates_dir!r}; it is the path of a folder. Pass operators as "
            "operators_not_to_delegate=..., which ExecuTorch before 1.4 had in this position."
        )
    if intermediates_dir is not None and os.fspath(intermediates_dir).startswith("-"):
        raise InvalidOptionError(
            f"intermediates_dir: '{intermediates_dir}' is a flag, and it is the path of a folder. Pass flags as "
            "extra_flags=..., which ExecuTorch before 1.4 had in this position."
        )
    # Report an unusable value now, and not during lowering.
    converters.get(options.converter).check(options)
    return DelegateOptions(
        options,
        tuple(operators_not_to_delegate or ()),
        use_neutron_for_format_conversion,
        None if intermediates_dir is None else os.fspath(intermediates_dir),
        dump_kernel_selection_code,
        name,
    )


@final
class NeutronBackend(BackendDetails):
    """The ExecuTorch backend. Its id is the name of this class; ExecuTorch's NXP backend has a class of that name too."""

    @classmethod
    def copy_exported_program_for_preprocess(
        cls, edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> ExportedProgram:
        """Return the program itself, since ``preprocess`` only reads it. A partition of ExecuTorch's NXP backend is
        copied by that backend instead."""
        other = None if _made(edge_program) else _other_backend(compile_specs)
        if other is not None:
            copied: ExportedProgram = other.copy_exported_program_for_preprocess(edge_program, compile_specs)
            return copied
        return edge_program

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        if made_before := _made(edge_program):
            return PreprocessResult(processed_bytes=made_before)
        other = _other_backend(compile_specs)
        if other is not None:
            return other.preprocess(edge_program, compile_specs)
        delegate, lowered, trial, origins = lower_program(edge_program, compile_specs)
        folder = None if delegate.intermediates_dir is None else intermediates_folder(delegate.intermediates_dir)
        name = _tag(edge_program)
        converter = converters.get(delegate.options.converter)
        with in_modules(lambda: layers_of(origins())):
            conversion = converter.convert(lowered.graph, delegate.options, delegate.dump_kernel_selection_code, trial)
        interface = Interface.of(edge_program, lowered)
        made = CompiledPartition(name, lowered.graph, conversion, interface, trial, origins, lowered)
        partition, handles = made.profiled()
        payload = partition.payload
        if folder is not None:
            files.write(partition.intermediates(folder))
        if conversion.kernel_selection is not None:
            files.write({Path(f"_kernel_selection_{name}.c"): conversion.kernel_selection.encode()})
        return PreprocessResult(processed_bytes=payload, debug_handle_map=handles, _delegate_info_meta=partition)

    @classmethod
    def preprocess_multimethod(
        cls, edge_programs: dict[str, list[ExportedProgram]], compile_specs: dict[str, list[list[CompileSpec]]]
    ) -> dict[str, list[PreprocessResult]]:
        """Compile all partitions of all methods, and return the results by method.

        If partitions need more SRAM than the budget, one BudgetError for all of them is raised after the last compile.
        """
        pairs = [
            (program, specs)
            for method, programs in edge_programs.items()
            for program, specs in zip(programs, compile_specs[method], strict=True)
        ]
        compiles = [(partial(cls.preprocess, program, specs), partial(decode_specs, specs)) for program, specs in pairs]
        made = iter(all_compiled(compiles))
        return {method: [next(made) for _ in programs] for method, programs in edge_programs.items()}


PAYLOAD = "openneutron_payload"
"""The key in a node's ``meta`` for a payload that is compiled already. Such a node is the only operator of its partition."""


def _made(program: ExportedProgram) -> bytes:
    """Return the payload of a partition that is compiled already, or empty bytes for any other partition."""
    return next((bytes(node.meta[PAYLOAD]) for node in program.graph_module.graph.nodes if PAYLOAD in node.meta), b"")


_STANDS_FOR = "openneutron_stands_for"
"""The name of the attribute that marks the classes that ``claim_name`` made."""


def claim_name() -> None:
    """Make ExecuTorch use this module's NeutronBackend for the backend id "NeutronBackend", which ExecuTorch's own
    NXP backend also has.

    ExecuTorch takes the subclass of BackendDetails that was defined last under a backend's name. If the NXP backend
    was imported after this module, this function defines a new class with the methods of this module's class. That
    class passes partitions of the NXP backend's own partitioner on to the NXP backend, so that both backends work in
    one process.
    """
    last = [item for item in BackendDetails.__subclasses__() if item.__name__ == NeutronBackend.__name__][-1]
    if last is not NeutronBackend and not hasattr(last, _STANDS_FOR):
        body = {name: value for name, value in vars(NeutronBackend).items() if not name.startswith("_")}
        # The attribute ``latest`` keeps the new class alive: __subclasses__ leaves out a class that nothing refers to.
        made = type(NeutronBackend.__name__, (BackendDetails,), {**body, _STANDS_FOR: NeutronBackend})
        NeutronBackend.latest = made


def _other_backend(compile_specs: Sequence[CompileSpec]) -> Any:
    """Return the class NeutronBackend of ExecuTorch's own NXP backend if the compile spec belongs to that backend.

    Return None for a compile spec of this project (``encode_specs``), or if ExecuTorch's NXP backend is not imported.
    """
    if is_ours(compile_specs):
        return None
    for item in BackendDetails.__subclasses__():
        is_named_alike = item.__name__ == NeutronBackend.__name__
        if is_named_alike and item is not NeutronBackend and not hasattr(item, _STANDS_FOR):
            return item
    return None


def lower_program(
    program: ExportedProgram, specs: Sequence[CompileSpec]
) -> tuple[DelegateOptions, Lowered, Trial | None, Origins]:
    """Return four values for a partition: its options, its lowered graph, the results of the compiler's first stages,
    and a function that returns the origins of the graph's nodes.

    The partitioner has lowered the partition already and run the first stages. Its results are taken if the program
    and the compile spec have not changed since. Otherwise the partition is lowered again and the first stages are
    None. Lowering again always succeeds, because the partitioner lowered the same nodes.
    """
    graph = program.graph_module.graph
    found: list[Handover] = [node.meta[HANDOVER] for node in graph.nodes if HANDOVER in node.meta]
    handover = found[0] if found and found[0].specs == specs else None
    delegate = decode_specs(specs) if handover is None else handover.delegate
    constants = Constants(program)
    inputs = user_inputs(program)
    changes = len(program.graph_signature.buffers_to_mutate)
    states = states_of(program, constants).found if changes else ()
    assert len(states) == changes, "a delegated program changes a buffer that is no state"
    outputs = [node for node in graph.output_node().args[0][changes:] if isinstance(node, Node)]
    units, in_circles = find_units(graph, constants)
    assert not in_circles, "a partition holds units in a circle"
    lowered = None if handover is None else handover.taken(units, constants, inputs, outputs, states)
    trial = None if handover is None or lowered is None else handover.trial
    if lowered is None:
        lowering = Lowering.of(units, constants, delegate.use_neutron_for_format_conversion, states)
        result = lowering if isinstance(lowering, Refusal) else lowering.finished("", inputs, outputs)
        assert not isinstance(result, Refusal), f"{result.node.name} was delegated: {result.reject.reason}"
        lowered = result
    name = graph_name(delegate, _tag(program))
    origins = partial(origins_of, units, lowered)
    return delegate, replace(lowered, graph=replace(lowered.graph, name=name)), trial, origins


def _tag(program: ExportedProgram) -> str:
    tags = [node.meta.get("delegation_tag") for node in program.graph_module.graph.nodes]
    return next((str(tag) for tag in tags if tag), "partition")


def intermediates_folder(name: str) -> Path:
    """Return the path of an existing folder. Raise ValueError where there is no such folder, as ExecuTorch's NXP backend does."""
    folder = Path(name)
    if not folder.is_dir():
        raise ValueError("intermediates_dir is not a directory path.")
    return folder
