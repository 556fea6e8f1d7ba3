# SPDX-License-Identifier: BSD-3-Clause
"""The program of a quantized module, without another trace.

torchao returns a GraphModule whose operators carry the shapes of the first export. ``torch.export.export`` runs each of them
again to find the same. Here the module's tensors become inputs of the program, as torch.export lifts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

import torch
from torch import nn
from torch._export.verifier import TrainingIRVerifier
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from openneutron.pytorch.graph.program import is_functional, is_getitem, overload_of
from openneutron.pytorch.source.exporting import ModelInputs


def lifted(module: GraphModule, inputs: ModelInputs) -> ExportedProgram | None:
    """Return the program of a quantized graph module; None where only a trace can tell what it is.

    A trace is needed for operators that change a tensor in place, control flow, extents that are no numbers, and arguments or
    results that are no tensors.
    """
    graph = module.graph
    results = graph.output_node().args[0]
    mode = detect_fake_mode([node.meta.get("val") for node in graph.find_nodes(op="placeholder")])
    if (
        mode is None
        or not isinstance(results, (list, tuple))
        or not all(_is_plain(node, module) for node in graph.nodes)
    ):
        return None
    if not all(isinstance(item, Node) and item.op == "call_function" for item in results):
        return None
    tensors = {str(node.target): attrgetter(str(node.target))(module) for node in graph.find_nodes(op="get_attr")}
    new, made, specs = _inputs(graph, tensors, mode)
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        overload = overload_of(node)
        # The stem of the name that a trace gives to the node.
        name = "getitem" if overload is None else overload.overloadpacket.__name__
        args, kwargs = map_arg((node.args, node.kwargs), made.__getitem__)
        copied = new.create_node("call_function", node.target, args, kwargs, name)
        copied.meta = dict(node.meta)
        sources = [source.meta["val"] for source in copied.all_input_nodes]
        # Quantize nodes change memory formats, and with them those of later results.
        if _is_view(overload) or not _is_contiguous([copied.meta.get("val"), *sources]):
            args, kwargs = map_arg((args, kwargs), lambda source: source.meta["val"])
            with mode, torch.no_grad():
                copied.meta["val"] = node.target(*args, **kwargs)
        made[node] = copied
    new.output(tuple(made[item] for item in results))
    results_specs = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(made[item].name), None) for item in results]
    info = graph._codegen.pytree_info
    call = ModuleCallSignature(
        inputs=[], outputs=[], in_spec=info.in_spec, out_spec=info.out_spec, forward_arg_names=info.orig_args
    )
    return ExportedProgram(
        root=GraphModule({}, new),
        graph=new,
        graph_signature=ExportGraphSignature(specs, results_specs),
        state_dict=tensors,
        range_constraints={},
        module_call_graph=[ModuleCallEntry("", call)],
        example_inputs=(inputs.args, dict(inputs.kwargs)),
        constants={},
        verifiers=[TrainingIRVerifier],
    )


def _is_plain(node: Node, module: GraphModule) -> bool:
    """Return whether a node can be taken over as it is."""
    value = node.meta.get("val")
    for item in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(item, torch.Tensor):
            if not all(isinstance(extent, int) for extent in item.shape):
                return False
        elif item is not None:
            return False
    if node.op == "placeholder":
        return isinstance(value, torch.Tensor)
    if node.op == "get_attr":
        return isinstance(attrgetter(str(node.target))(module), torch.Tensor)
    if is_getitem(node) and not isinstance(node.args[0], Node):
        return False
    return is_functional(node)


def _is_view(overload: torch._ops.OpOverload | None) -> bool:
    """Return whether an operator's result may be a view of its argument, whose strides decide those of the result."""
    return overload is not None and any(item.alias_info is not None for item in overload._schema.returns)


def _is_contiguous(values: Iterable[Any]) -> bool:
    """Return whether all of the values are known, and their tensors are contiguous."""
    return all(
        value is not None and all(item.is_contiguous() for item in tree_leaves(value) if isinstance(item, torch.Tensor))
        for value in values
    )


def _inputs(
    graph: Graph, tensors: Mapping[str, torch.Tensor], mode: Any
) -> tuple[Graph, dict[Node, Node], list[InputSpec]]:
    """Return a graph with the module's tensors and the model's inputs, the nodes they stand for, and their signature."""
    new, specs = Graph(), []
    held: dict[str, Node] = {}
    # A signature has the parameters before the buffers.
    for target in sorted(tensors, key=lambda target: not isinstance(tensors[target], nn.Parameter)):
        is_parameter = isinstance(tensors[target], nn.Parameter)
        node = new.placeholder(f"{'p' if is_parameter else 'b'}_{target.replace('.', '_')}")
        node.meta["val"] = mode.from_tensor(tensors[target], static_shapes=True)
        kind, persistent = (InputKind.PARAMETER, None) if is_parameter else (InputKind.BUFFER, True)
        specs.append(InputSpec(kind, TensorArgument(node.name), target, persistent))
        held[target] = node
    made = {node: held[str(node.target)] for node in graph.find_nodes(op="get_attr")}
    for old in graph.find_nodes(op="placeholder"):
        node = new.placeholder(str(old.target))
        node.meta["val"] = old.meta["val"]
        specs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None))
        made[old] = node
    return new, made, specs
