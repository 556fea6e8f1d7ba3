# SPDX-License-Identifier: BSD-3-Clause
"""Tag the nodes of an edge program, or of a program before decomposition, that run on the NPU."""

from __future__ import annotations

import copy
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import executorch.exir.lowered_backend_module as exir
import executorch.kernels.quantized  # noqa: F401  (a user's to_executorch looks for the operators it registers)
import torch
from executorch.exir.backend.backend_api import MethodProgramsPartitionerSpec, to_backend
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.tracer import _default_decomposition_table
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from openneutron import targets
from openneutron.compiler.select.select import Refused, Trial, try_compile
from openneutron.device import converter as converters
from openneutron.device.timings import step
from openneutron.errors import InvalidOptionError
from openneutron.litert.write import unstated
from openneutron.options import EIQ
from openneutron.pytorch.backend.custom_delegation_options import CustomDelegationOptions
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec, decode_specs
from openneutron.pytorch.graph.program import (
    INPUT_NAME,
    NOT_DELEGATED,
    Constants,
    Reject,
    has_plain_strides,
    is_compute,
    is_functional,
    is_pointwise,
    joins_output,
    model_name,
    op_name,
    overload_of,
    pass_contiguous,
)
from openneutron.pytorch.graph.rewriting import duplicate_dequantize, has_shared_dequantize
from openneutron.pytorch.lower.lower import NO_STATES, Lowered, kept_float, states_of
from openneutron.pytorch.nxp_backend import NeutronBackend, claim_name, generate_neutron_compile_spec
from openneutron.pytorch.operators.families import LOWER_RULES
from openneutron.pytorch.partition.delegation import (
    COST,
    UNITS,
    Delegation,
    check_names,
    counts,
    decomposed,
    fallbacks,
    has_cpu_kernel,
    matching,
    on_cpu,
    on_cpu_state,
    on_npu,
)
from openneutron.pytorch.partition.gather import (
    HANDOVER,
    Handover,
    Partition,
    Partitioning,
    PartitionOptions,
    key_of,
    partition,
    tensors_of,
)

Tried = Sequence[Refused] | Trial | None
"""The result of trying to compile a partition: a trial, or the nodes that must leave the partition. None: nothing could be tried."""

HISTORY = "from_node"
"""The key under which torch.export keeps the nodes that a node came from."""


class NotNow(Exception):
    """Raised for a program that must be decomposed before it can be partitioned."""


def has_free_order(program: ExportedProgram) -> bool:
    """Return whether the program's nodes may be reordered, like those of an Edge program.

    Such a program changes no buffer and no input of the user, no operator of it changes a tensor in place, and there
    is no control flow.
    """
    signature = program.graph_signature
    mutated = signature.buffers_to_mutate or signature.user_inputs_to_mutate
    return not mutated and all(map(is_functional, program.graph_module.graph.nodes))


def delegated(program: ExportedProgram, tag: Callable[[ExportedProgram], PartitionResult]) -> ExportedProgram:
    """Return the ATen program with delegate calls in place of its partitions, or without delegate calls if ``tag``
    raises NotNow.

    tag: a function that tags the nodes of the partitions, as ``Partitioner.partition`` does.
    """
    program = _named_for_copies(program)
    try:
        lowered = to_backend(MethodProgramsPartitionerSpec({"forward": program}, {"forward": _Tagging(tag)}))["forward"]
    except NotNow:
        return program
    for name, child in lowered.graph_module.named_children():
        if isinstance(child, exir.LoweredBackendModule):
            setattr(lowered.graph_module, name, LoweredBackendModule.of(child))
    found: ExportedProgram = lowered
    return found


def copied(module: GraphModule) -> GraphModule:
    """Return a copy of a module without the history in the ``meta`` of its nodes.

    Each pass of ExecuTorch would copy the history, which takes a fifth of the time of lowering.
    """
    histories = {node: node.meta.pop(HISTORY) for node in module.graph.nodes if HISTORY in node.meta}
    try:
        twins = copy.deepcopy(module)
        # fx renames some nodes (input to input_1), but the program's signature has the old names.
        for node, twin in zip(module.graph.nodes, twins.graph.nodes, strict=True):
            twin.name = node.name
        return twins
    finally:
        for node, history in histories.items():
            node.meta[HISTORY] = history


def _named_for_copies(program: ExportedProgram) -> ExportedProgram:
    """Return the program with the node names that copies of it have, also in its signature.

    When fx copies a graph, it renames an input whose name is a builtin of Python (``input``).
    """
    copied = copy.deepcopy(program.graph)
    names = {
        node.name: twin.name
        for node, twin in zip(program.graph.nodes, copied.nodes, strict=True)
        if node.name != twin.name
    }
    if not names:
        return program
    signature = copy.deepcopy(program.graph_signature)
    for old, new in names.items():
        signature.replace_all_uses(old, new)
    return program._update(GraphModule(program.graph_module, copied), signature)


def delegate_calls(module: GraphModule) -> list[list[Node]]:
    """Return the nodes of each delegate call that ``delegated`` made: the call, and the nodes that take its results."""
    return [
        [call, *call.users]
        for call in module.graph.find_nodes(op="call_function", target=executorch_call_delegate)
        if isinstance(getattr(module, str(call.args[0])), LoweredBackendModule)
    ]


def is_final(node: Node, reject: Reject) -> bool:
    """Return whether a node that stays on the CPU in the ATen program also stays there in the Edge program, for the
    same reason.

    The result is False if the node's result or an operand is neither contiguous nor channels-last, because the memory
    format may change. It is also False for an operator that ExecuTorch decomposes, with two exceptions: the user
    keeps it float, or it stays only because it exchanges float values with a node on the CPU.
    """
    if not all(map(_has_plain_layout, (node, *node.all_input_nodes))):
        return False
    return kept_float(node) is not None or reject.rule == UNITS or node.target not in decomposed()


def _has_plain_layout(node: Node) -> bool:
    values = node.meta.get("val")
    tensors = values if isinstance(values, (list, tuple)) else (values,)
    return all(has_plain_strides(value) for value in tensors if isinstance(value, torch.Tensor))


@final
class _Tagging(Partitioner):
    """A partitioner that calls a function."""

    def __init__(self, tag: Callable[[ExportedProgram], PartitionResult]) -> None:
        super().__init__()
        self._tag = tag

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        return self._tag(exported_program)


_CACHES = (
    ("executorch.exir.backend.utils", "is_same_node"),
    ("torchao.utils", "_assert_and_get_unique_device"),
)
"""Cached functions of other packages, by module. Their caches keep the graphs that they were called with."""


_stayed_shapes = [0]
"""The number of entries of torch's cache of shapes that have no delegated program."""


def _release_earlier_programs() -> None:
    """Remove the programs of earlier lowerings from caches of torch, torchao and ExecuTorch, which would keep them until the process ends.

    torch keeps the shapes of each delegate call's results together with the delegated program.
    """
    for module, function in _CACHES:
        getattr(getattr(sys.modules.get(module), function, None), "cache_clear", _nothing)()
    shapes = FakeTensorMode.cache
    # A dict keeps its order, so that the entries behind those that stayed are new; torch may have cleared the dict in between.
    stayed = _stayed_shapes[0] if _stayed_shapes[0] <= len(shapes) else 0
    for key in list(itertools.islice(shapes, stayed, None)):
        if any(isinstance(argument, exir.LoweredBackendModule) for argument in key.key):
            shapes.pop(key, None)
    _stayed_shapes[0] = len(shapes)


def _nothing() -> None:
    """Stand in for the function that clears a cache, where the cache is absent."""


class LoweredBackendModule(exir.LoweredBackendModule):
    """A delegated program that costs no time in a trace.

    ExecuTorch's passes trace each delegate call by a run of its program, and copy the program with all its nodes. The class has the
    name of ExecuTorch's class, because torch recognizes a delegate by the name of the module's class.
    """

    @classmethod
    def of(cls, module: exir.LoweredBackendModule) -> LoweredBackendModule:
        made = cls(
            _Known.of(module.original_module),
            module.backend_id,
            module.processed_bytes,
            module.compile_specs,
            module.named_data_store_output,
        )
        made.meta = module.meta
        return made

    def __deepcopy__(self, memo: dict[int, Any] | None) -> LoweredBackendModule:
        """Return a module with the same program, which never changes."""
        del memo
        return self.of(self)


class _Known(ExportedProgram):
    """A program that takes the shapes of its results in a trace from its output node, without a run of its operators.

    Every pass of ExecuTorch traces a delegate call by a run of the program in it with FakeTensors.
    """

    @classmethod
    def of(cls, program: ExportedProgram) -> _Known:
        made = copy.copy(program)
        made.__class__ = cls
        return made

    def module(self, *args: Any, **kwargs: Any) -> GraphModule:
        whole = super().module
        (outputs,) = self.graph_module.graph.output_node().args
        values = [node.meta["val"] for node in outputs]

        def run(*inputs: Any) -> Any:
            mode = detect_fake_mode(inputs)
            if mode is None:
                return whole(*args, **kwargs)(*inputs)
            with mode:
                return tuple(
                    torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
                    for value in values
                )

        return run


NXP_DELEGATION_TAG = "delegation_tag"


@final
class NeutronPartitioner(Partitioner):
    """A partitioner of ExecuTorch that delegates all operators that the compiler supports, in as few calls as possible.

    ``delegations`` has a value for each partitioned program: the operators on the NPU and on the CPU, with the reason of each
    CPU fallback.

    Args:
        compile_spec: The result of ``generate_neutron_compile_spec``; None means its defaults for the target of
            ``neutron_target_spec``.
        neutron_target_spec: The target; None means the target of ``compile_spec``, and without either the default target.
            ExecuTorch 1.0 has the delegation options in this position, which are accepted.
        custom_delegation_options: None means ``CustomDelegationOptions()``.
        post_quantization_state_dict: The quantized module's tensors by name, which ExecuTorch hides while it
            partitions. None means those of the programs that ``transform_for_pre_decomposition`` got before.
        preserve_ops: ATen operators to keep whole where they can be delegated, beside those of the lowering rules.
        check_op_support: A function of a node; calls for which the function returns False are not kept whole.
        taken_apart: Operators that are never kept whole.
        check_on_cpu: A function that is called with the nodes on the CPU of each program that has any, before a
            partition of it is compiled. It may raise. It is not called while an operator that was kept whole stays on
            the CPU without a kernel there.

    Raises:
        InvalidOptionError: ``compile_spec`` and ``neutron_target_spec`` name different targets.

    >>> NeutronPartitioner(check_op_support=lambda node: "softmax" not in node.name).delegations
    []
    """

    def __init__(
        self,
        compile_spec: list[CompileSpec] | None = None,
        neutron_target_spec: NeutronTargetSpec | CustomDelegationOptions | None = None,
        custom_delegation_options: CustomDelegationOptions | None = None,
        post_quantization_state_dict: Mapping[str, torch.Tensor] | None = None,
        preserve_ops: list[torch._ops.OpOverload] | None = None,
        check_op_support: Callable[[Node], bool] | None = None,
        *,
        taken_apart: Iterable[str] = (),
        check_on_cpu: Callable[[Iterable[Node]], None] | None = None,
    ) -> None:
        super().__init__()
        if isinstance(neutron_target_spec, CustomDelegationOptions):
            neutron_target_spec, custom_delegation_options = None, neutron_target_spec
        if compile_spec is None:
            target = targets.DEFAULT if neutron_target_spec is None else neutron_target_spec.get_name()
            compile_spec = generate_neutron_compile_spec(target)
        self._compile_spec = compile_spec
        self._delegate = decode_specs(compile_spec)
        if neutron_target_spec is None:
            neutron_target_spec = NeutronTargetSpec(self._delegate.options.target)
        self.delegation_spec = DelegationSpec(NeutronBackend.__name__, compile_spec)
        self.neutron_target_spec = neutron_target_spec
        self.custom_delegation_options = custom_delegation_options or CustomDelegationOptions()
        self.post_quantization_state_dict = post_quantization_state_dict
        self.preserve_ops = tuple(preserve_ops or ())
        self.check_op_support = check_op_support
        self.delegations: list[Delegation] = []
        self.left_whole: set[str] = set()
        """Operators that were kept whole for the NPU, but stay on the CPU and have no kernel there."""
        self._taken_apart = frozenset(taken_apart)
        self._check_on_cpu = check_on_cpu
        self._programs: list[ExportedProgram] = []
        """The methods that are being lowered, with their tensors."""
        self._graphs_seen: list[Graph] = []
        self._before: dict[int, Delegation] = {}
        """The delegations of the methods' ATen programs, by the index of the method."""
        self._tags = 0
        self._whole: _Whole | None = None
        self._named_before: set[str] = set()
        """The names in operators_not_to_delegate that matched nodes before decomposition."""
        if self._delegate.options.target != neutron_target_spec.get_name():
            raise InvalidOptionError(
                f"NeutronPartitioner: the compile spec is for '{self._delegate.options.target}', the target spec for "
                f"'{neutron_target_spec.get_name()}'. Make both for the same target."
            )

    def taking_apart(self, operators: Iterable[str]) -> NeutronPartitioner:
        """Return a new partitioner that lets ExecuTorch decompose all calls of these operators."""
        return NeutronPartitioner(
            self._compile_spec,
            self.neutron_target_spec,
            self.custom_delegation_options,
            self.post_quantization_state_dict,
            list(self.preserve_ops),
            self.check_op_support,
            taken_apart={*self._taken_apart, *operators},
            check_on_cpu=self._check_on_cpu,
        )

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Return the program with the nodes of each delegate call tagged; ExecuTorch calls this method."""
        claim_name()
        _release_earlier_programs()
        graph = exported_program.graph_module.graph
        self._graphs_seen.append(graph)
        if self._delegate.patterns and len(self._graphs_seen) >= len(self._programs):
            # This is the last method: a name that matches a node of no method is a mistake.
            check_names(self._delegate.patterns, self._graphs_seen, self._named_before)
        found = self._partitioned(exported_program, self._tried)
        result = self._tagged(exported_program, found)
        kept_whole = {} if self._whole is None else self._whole.operators
        self.left_whole |= {
            op_name(node) for node in found.rejected if overload_of(node) in kept_whole and not has_cpu_kernel(node)
        }
        if self._check_on_cpu is not None and found.rejected and not self.left_whole:
            self._check_on_cpu(found.rejected)
        before = self._before.get(len(self._graphs_seen) - 1, Delegation())
        self.delegations.append(before + delegation_of(graph, found, delegate_calls(exported_program.graph_module)))
        return result

    def _tagged(self, exported_program: ExportedProgram, found: Partitioning) -> PartitionResult:
        """Return the program with a tag on each node of a partition."""
        tags: dict[str, DelegationSpec] = {}
        for part in found.partitions:
            tag = f"tag{self._tags}"
            self._tags += 1
            for node in (*part.nodes, *(state.buffer for state in part.states)):
                node.meta[NXP_DELEGATION_TAG] = tag
            for node in (*part.inputs, *part.outputs):
                pass_contiguous(node)
            for node in part.inputs:
                node.meta[INPUT_NAME] = model_name(node)
            self._hand_over(part, exported_program)
            tags[tag] = self.delegation_spec
        tag_constant_data(exported_program)
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=tags)

    @step("Partitioning")
    def _partitioned(self, program: ExportedProgram, tries: Callable[[Lowered], Tried] | None = None) -> Partitioning:
        """Return the partitioning of a program. ``tries`` is a function that tries to compile a partition. By default
        it is ``_compiles``, which asks only this project's compiler."""
        constants = Constants(program, self._data_of(program))
        # NXP's converter has no memory between runs.
        has_states = program.graph_signature.buffers_to_mutate and self._delegate.options.converter != EIQ
        states = states_of(program, constants) if has_states else NO_STATES
        options = PartitionOptions(
            tuple(pattern for pattern in self._delegate.patterns if pattern not in self._named_before),
            self._delegate.use_neutron_for_format_conversion,
            self.custom_delegation_options.allow_no_op_partitions,
            tries or self._compiles,
            self._islands,
        )
        return partition(program.graph_module.graph, constants, options, states)

    def _islands(self, partitions: Sequence[Partition]) -> Iterable[tuple[Partition, Reject | None]]:
        """Return the partitions between operators on the CPU, each with the reason to leave it there or None; see
        ``islands``."""
        from openneutron.pytorch.partition.islands import islands

        return islands(partitions, self.neutron_target_spec.neutron_target, self._delegate.options)

    def _tried(self, lowered: Lowered) -> Tried:
        """Return the result of ``_compiles``, or the nodes that the converter of the options refuses."""
        tried = self._compiles(lowered)
        if not isinstance(tried, Trial):
            return tried
        options = self._delegate.options
        return converters.get(options.converter).tried(lowered.graph, options) or tried

    def _compiles(self, lowered: Lowered) -> Tried:
        """Return the first stages of a partition's compile, or the node that prevents it, with a reason. For NXP's
        converter, a node that LiteRT's format does not have prevents it too.

        Return None if only the shapes of the partition's constants are known.
        """
        options = self._delegate.options
        own = unstated(lowered.graph) if options.converter == EIQ else None
        if own is not None:
            reason = f"LiteRT has no {own.op.upper()}, and NXP's converter reads operators of LiteRT"
            return [Refused(own.name, reason)]
        if not has_data(lowered):
            return None
        tried = try_compile(lowered.graph, self.neutron_target_spec.neutron_target, options.makes_host_calls)
        return tried if isinstance(tried, Trial) else [tried]

    def _hand_over(self, part: Partition, program: ExportedProgram) -> None:
        """Store the partition's graph for the backend at its first node, if the values of its constants and states are known."""
        constants = Constants(program, self._data_of(program))
        is_known = all(constants.state(state.buffer) is not None for state in part.states)
        if part.lowered is not None and has_data(part.lowered) and is_known:
            part.nodes[0].meta[HANDOVER] = Handover(
                self._compile_spec,
                self._delegate,
                key_of(part.units, part.inputs, part.outputs, part.states),
                tensors_of(part.units, constants),
                part.lowered,
                part.trial,
            )

    def _data_of(self, program: ExportedProgram) -> Mapping[str, torch.Tensor] | None:
        """Return the tensors of a program, which ExecuTorch hides while it partitions.

        They are ``post_quantization_state_dict`` if that is given. Otherwise they are those of the method whose
        tensors have the same names and shapes. Return None unless there is exactly one such method.
        """
        if self.post_quantization_state_dict is not None:
            return self.post_quantization_state_dict
        shapes = {name: tensor.shape for name, tensor in program.state_dict.items()}
        fits = [
            other.state_dict
            for other in self._programs
            if all(name in other.state_dict and other.state_dict[name].shape == s for name, s in shapes.items())
        ]
        return fits[0] if len(fits) == 1 else None

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """Return the program with a dequantize node of its own for each reader, so that each reader can be delegated
        by itself. The history in the metadata of its nodes is removed.

        The result already has delegate calls if decomposition can't change the partitioning. This is not tried for
        programs whose nodes have a fixed order (see ``has_free_order``), with options that choose single operators
        (``operators_not_to_delegate``, ``preserve_ops``, ``check_op_support``), for a profile, or with NXP's
        converter.

        ExecuTorch calls this function for every method of a model before it partitions the first method.
        """
        if self._graphs_seen:
            self._programs, self._graphs_seen, self._tags, self._whole = [], [], 0, None
            self._named_before, self._before = set(), {}
        self._programs.append(exported_program)
        graph = exported_program.graph_module.graph
        is_shared = has_shared_dequantize(graph)
        if is_shared or any(HISTORY in node.meta for node in graph.nodes):
            module = copied(exported_program.graph_module)
            if is_shared:
                duplicate_dequantize(module.graph)
            module.recompile()
            exported_program = exported_program._update(module, exported_program.graph_signature)
        chosen = self._delegate.patterns or self.preserve_ops or self.check_op_support is not None
        # An ETRecord explains a profile with operators of the Edge program, which must therefore have all operators.
        chosen = chosen or self._delegate.options.profile
        # Another converter is asked once, about the operators of the Edge program.
        chosen = chosen or self._delegate.options.converter == EIQ
        return (
            exported_program
            if chosen or not has_free_order(exported_program)
            else delegated(exported_program, self._tag)
        )

    def _tag(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag the nodes of each partition of an ATen program.

        Raises NotNow if there are no partitions, or if an operator that stays on the CPU may run on the NPU once
        ExecuTorch has decomposed the program.
        """
        claim_name()
        found = self._partitioned(exported_program)
        # An island of the ATen program may be another one once ExecuTorch has decomposed it.
        if not found.partitions or not all(
            is_final(node, reject) and reject.rule != COST for node, reject in found.rejected.items()
        ):
            raise NotNow
        found = replace(found, rejected={})  # the CPU fallbacks are those of the Edge program
        self._before[len(self._programs) - 1] = delegation_of(exported_program.graph_module.graph, found)
        return self._tagged(exported_program, found)

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]:
        """Return the operators of this ATen program to keep whole, and a function that tells which of their calls to keep.

        The function is None if that is all of their calls: ExecuTorch then decomposes the program in one pass.
        """
        if self._whole is None or self._whole.program is not ep:
            self._whole = self._find_whole(ep)
        whole = self._whole
        if whole.calls == whole.all_calls:
            return list(whole.operators), None
        return list(whole.operators), lambda node: node in whole.calls

    def _find_whole(self, ep: ExportedProgram) -> _Whole:
        wanted = {str(op) for op in self.preserve_ops}
        calls = [node for node in ep.graph_module.graph.nodes if node.op == "call_function"]
        for node in calls:
            rule = LOWER_RULES.get(str(node.target))
            if is_pointwise(node) if rule is None else rule.preserve is not None and rule.preserve(node):
                wanted.add(str(node.target))
        wanted -= self._taken_apart
        calls = [node for node in calls if str(node.target) in wanted]
        table = _default_decomposition_table() if calls else {}  # it takes torch milliseconds
        calls = [node for node in calls if node.target in table]
        if not calls:
            return _Whole(ep, {}, frozenset(), frozenset())
        if self._delegate.patterns:
            self._mark_unwanted(calls)
        rejected = self._partitioned(ep).rejected
        fits = frozenset(
            node
            for node in calls
            if node not in rejected and (self.check_op_support is None or self.check_op_support(node))
        )
        operators = dict.fromkeys(node.target for node in calls if node in fits)
        return _Whole(ep, operators, fits, frozenset(node for node in calls if node.target in operators))

    def _mark_unwanted(self, calls: Sequence[Node]) -> None:
        """Mark those of the calls that a name in ``operators_not_to_delegate`` matches, so that the nodes of their
        decompositions are not delegated either.

        These nodes do not have the name that the call would have in the Edge program, so that the name could not
        match them later.
        """
        counted: Counter[str] = Counter()
        for node in calls:
            stem = op_name(node).replace(".", "_").lower()
            name = f"{stem}_{counted[stem]}" if counted[stem] else stem
            counted[stem] += 1
            found = matching(node, self._delegate.patterns, name)
            if found is not None:
                node.meta["custom"] = {**node.meta.get("custom", {}), NOT_DELEGATED: found}
                if found == name:
                    self._named_before.add(found)


@dataclass(frozen=True, slots=True, eq=False)
class _Whole:
    """The operators of an ATen program that have calls to keep whole. calls: these calls. all_calls: all calls of the operators."""

    program: ExportedProgram
    operators: Mapping[Any, None]
    calls: frozenset[Node]
    all_calls: frozenset[Node]


def has_data(lowered: Lowered) -> bool:
    """Return whether the values of a graph's constants are known, not only their shapes."""
    return not any(
        tensor.data is not None and tensor.data.size > 1 and not any(tensor.data.strides)
        for tensor in lowered.graph.tensors.values()
    )


def delegation_of(graph: Graph, found: Partitioning, calls: Sequence[Sequence[Node]] = ()) -> Delegation:
    """Return the placement of operators by a partitioning. ``calls``: the nodes of each delegate call that the graph had before."""
    npu = [
        item
        for number, part in enumerate(found.partitions)
        for item in on_npu((node for node in part.nodes if is_compute(node)), number)
    ]
    parts = [*calls, *(part.nodes for part in found.partitions)]
    costs = fallbacks(graph, parts) if found.rejected else {}
    cpu = [
        on_cpu(node, found.rejected[node], costs.get(node))
        for node in graph.nodes
        if node in found.rejected and counts(node) and not joins_output(node)
    ]
    cpu += [on_cpu_state(node, reject) for node, reject in found.states_on_cpu.items()]
    return Delegation(tuple(npu), tuple(cpu), len(found.partitions), has_islands=found.has_islands)
