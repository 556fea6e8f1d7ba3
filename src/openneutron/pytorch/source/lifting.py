# SPDX-License-Identifier: BSD-3-Clause
"""The program of a quantized module, without another trace.

torchao returns a GraphModule whose operators carry the shapes of the first export. ``torch.export.export`` runs each of them
again to find the same. Here the module's tensors become inputs of the program, as torch.export lifts them.
"""

from __future__ import annotations

from collections.abc import Mapping
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

from openneutron.pytorch.graph.program import is_getitem, overload_of
from openneutron.pytorch.source.exporting import ModelInputs

KINDS = {InputKind.PARAMETER: "p", InputKind.BUFFER: "b", InputKind.CONSTANT_TENSOR: "c"}
"""The kinds of tensors that a module holds, in the order of a signature, with torch.export's prefix of their names."""


def lifted(module: GraphModule, inputs: ModelInputs) -> ExportedProgram | None:
    """Return the program of a quantized graph module; None where only a trace can tell what it is.

    A trace is needed for operators that change a tensor in place, control flow, extents that are no numbers, and arguments or
    results that are no tensors.
    """
    graph = module.graph
    nodes = list(graph.nodes)
    if not all(_is_plain(node, module) for node in nodes):
        return None
    output = graph.output_node()
    results = output.args[0]
    if not isinstance(results, (list, tuple)) or not all(isinstance(item, Node) and _calls(item) for item in results):
        return None
    mode = detect_fake_mode([node.meta.get("val") for node in nodes if node.op == "placeholder"])
    if mode is None:
        return None
    tensors = {str(node.target): _attribute(module, str(node.target)) for node in graph.find_nodes(op="get_attr")}
    new, made, signature = _inputs(graph, tensors, mode)
    for node in nodes:
        if node.op != "call_function":
            continue
        copied = new.create_node(
            "call_function",
            node.target,
            map_arg(node.args, made.__getitem__),
            map_arg(node.kwargs, made.__getitem__),
            name=_name(node),
        )
        copied.meta = dict(node.meta)
        if "val" not in copied.meta:
            copied.meta["val"] = _traced(copied, mode)
        made[node] = copied
    new.output(tuple(made[item] for item in results))
    results_specs = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(made[item].name), None) for item in results]
    return _program(module, new, ExportGraphSignature(signature, results_specs), tensors, inputs)


def _is_plain(node: Node, module: GraphModule) -> bool:
    """Return whether a node can be taken over as it is."""
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else (value,)
    for item in values:
        if isinstance(item, torch.Tensor):
            if not all(isinstance(extent, int) for extent in item.shape):
                return False
        elif item is not None:
            return False
    if node.op == "placeholder":
        return isinstance(value, torch.Tensor)
    if node.op == "get_attr":
        return isinstance(_attribute(module, str(node.target)), torch.Tensor)
    if node.op == "output" or is_getitem(node):
        return True
    overload = overload_of(node)
    return overload is not None and not overload._schema.is_mutable


def _calls(node: Node) -> bool:
    return node.op == "call_function"


def _attribute(module: nn.Module, target: str) -> Any:
    path, _, name = target.rpartition(".")
    return getattr(module.get_submodule(path), name)


def _inputs(
    graph: Graph, tensors: Mapping[str, torch.Tensor], mode: Any
) -> tuple[Graph, dict[Node, Node], list[InputSpec]]:
    """Return a graph with the module's tensors and the model's inputs, the nodes they stand for, and their signature."""
    new, specs = Graph(), []
    made: dict[Node, Node] = {}
    kinds = {target: _kind(tensor) for target, tensor in tensors.items()}
    readers: dict[str, list[Node]] = {target: [] for target in tensors}
    for node in graph.find_nodes(op="get_attr"):
        readers[str(node.target)].append(node)
    for kind, prefix in KINDS.items():
        for target in (target for target in tensors if kinds[target] is kind):
            node = new.placeholder(f"{prefix}_{target.replace('.', '_')}")
            node.meta["val"] = mode.from_tensor(tensors[target], static_shapes=True)
            persistent = True if kind is InputKind.BUFFER else None
            specs.append(InputSpec(kind, TensorArgument(node.name), target, persistent))
            made |= dict.fromkeys(readers[target], node)
    for old in graph.find_nodes(op="placeholder"):
        node = new.placeholder(str(old.target))
        node.meta["val"] = old.meta["val"]
        specs.append(InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None))
        made[old] = node
    return new, made, specs


def _kind(tensor: torch.Tensor) -> InputKind:
    return InputKind.PARAMETER if isinstance(tensor, nn.Parameter) else InputKind.BUFFER


def _name(node: Node) -> str:
    """Return the stem of the name that a trace gives to the node."""
    overload = overload_of(node)
    return overload.overloadpacket.__name__ if overload is not None else "getitem"


def _traced(node: Node, mode: Any) -> Any:
    args, kwargs = map_arg((node.args, node.kwargs), lambda source: source.meta["val"])
    with mode, torch.no_grad():
        return node.target(*args, **kwargs)


def _program(
    module: GraphModule,
    graph: Graph,
    signature: ExportGraphSignature,
    tensors: Mapping[str, torch.Tensor],
    inputs: ModelInputs,
) -> ExportedProgram:
    info = module.graph._codegen.pytree_info
    call = ModuleCallSignature(
        inputs=[], outputs=[], in_spec=info.in_spec, out_spec=info.out_spec, forward_arg_names=info.orig_args
    )
    return ExportedProgram(
        root=GraphModule({}, graph),
        graph=graph,
        graph_signature=signature,
        state_dict=dict(tensors),
        range_constraints={},
        module_call_graph=[ModuleCallEntry("", call)],
        example_inputs=(inputs.args, dict(inputs.kwargs)),
        constants={},
        verifiers=[TrainingIRVerifier],
    )
