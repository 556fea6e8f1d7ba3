# SPDX-License-Identifier: BSD-3-Clause
"""Models through torch.export: as ATen graphs to quantize, and as programs to lower."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram, ShapesCollection
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from openneutron.errors import InvalidModelError, InvalidOptionError, OpenNeutronError
from openneutron.pytorch.graph.rewriting import is_state
from openneutron.pytorch.source.inputs import ModelInputs, example

Extents = dict[int, dict[int, Any]]
"""The axes of an input (by its place among the program's inputs) that are no fixed numbers, each with its range."""


@dataclass(frozen=True, slots=True, eq=False)
class AtenGraph:
    """A model as an ATen graph, and its example inputs in the layout asked for. ``state`` is what the model changes when it
    runs, by name, as it was before any run."""

    module: GraphModule
    inputs: ModelInputs
    extents: Extents
    state: Mapping[str, torch.Tensor]


def aten_graph(
    model: nn.Module | ExportedProgram, inputs: Any, keywords: Any, channels_last: bool | None, name: str
) -> AtenGraph:
    """Return the model's graph; the model itself stays as it is.

    Raises InvalidModelError where it is no model or can't be exported, InvalidOptionError where there are no usable inputs.
    """
    if not isinstance(model, (nn.Module, ExportedProgram)):
        raise InvalidModelError(
            f"'{name}' is a {type(model).__name__}; a torch.nn.Module or an ExportedProgram is needed."
        )
    if isinstance(model, ExportedProgram) and inputs is None and not keywords and model.example_inputs is not None:
        inputs, keywords = model.example_inputs
    if inputs is None and not keywords:
        raise InvalidOptionError(f"'{name}': there are no example inputs. Pass a tuple of the model's arguments.")
    given = example(inputs, keywords, name).laid_out(channels_last)
    if isinstance(model, ExportedProgram):
        program, extents = model, _free_extents(model)
    else:
        if channels_last:
            # A copy: the layout is changed in place, and the model is the caller's.
            model = copy.deepcopy(model).to(memory_format=torch.channels_last)
        modes = {module: module.training for module in model.modules()}
        try:
            program, extents = export(model.eval(), given, name), {}
        finally:
            for module, training in modes.items():
                module.training = training
    _check_results(program, name)
    graph_module = program.module(check_guards=False)
    assert isinstance(graph_module, GraphModule)
    _flatten_unknown_containers(graph_module)
    names = [str(node.target) for node in graph_module.graph.find_nodes(op="get_attr") if is_state(node)]
    state = {target: graph_module.get_buffer(target).detach().clone() for target in names}
    for target in names:
        _set_buffer(graph_module, target, state[target].clone())
    return AtenGraph(graph_module, given, extents, state)


def _check_results(program: ExportedProgram, name: str) -> None:
    """Raise InvalidModelError where a result is a number read from a tensor, which ExecuTorch can't return."""
    for place, node in enumerate(program.graph.output_node().args[0]):
        value = node.meta.get("val") if isinstance(node, Node) else None
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise InvalidModelError(
                f"'{name}': its result {place} is a number that is read from a tensor ({node.name}); results are tensors. "
                "Return the tensor, without item()."
            )


def restore(module: GraphModule, state: Mapping[str, torch.Tensor]) -> None:
    """Set a module's state back to what it was before calibration."""
    for target, value in state.items():
        _set_buffer(module, target, value.clone())


def _set_buffer(module: nn.Module, target: str, value: torch.Tensor) -> None:
    path, _, name = target.rpartition(".")
    setattr(module.get_submodule(path), name, value)


def export(module: nn.Module, inputs: ModelInputs, name: str, extents: Extents | None = None) -> ExportedProgram:
    """Return the program of a module. The inputs themselves stay as they are, whatever the module does to them.

    Raises InvalidModelError, with the first line of what torch.export or the module's own code says.
    """
    given = inputs.rebuilt([_copy(leaf) for leaf in inputs.leaves])
    shapes = ShapesCollection() if extents else None
    for place, free in (extents or {}).items():
        assert shapes is not None
        shapes[given.leaves[place]] = free
    try:
        return torch.export.export(module, given.args, dict(given.kwargs), dynamic_shapes=shapes, strict=False)
    except (OpenNeutronError, KeyboardInterrupt):
        raise
    except SystemExit as leaving:
        raise InvalidModelError(
            f"'{name}' can't be exported: its code calls sys.exit({leaving.code!r}) when it runs. A model must return."
        ) from leaving
    # torch.export raises whatever the model's own code raises, and a good many types of its own.
    except BaseException as error:
        raise InvalidModelError(
            f"'{name}' can't be exported: {first_line(error)} ({type(error).__name__}). "
            "Does it run on the example inputs, and do without data-dependent Python?"
        ) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's text, without a full stop at its end."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line.rstrip(".")


def _copy(leaf: Any) -> Any:
    return leaf.clone(memory_format=torch.preserve_format) if isinstance(leaf, torch.Tensor) else leaf


def _free_extents(program: ExportedProgram) -> Extents:
    names = program.graph_signature.user_inputs
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    found: Extents = {}
    for place, name in enumerate(names):
        node = nodes.get(str(name))
        value = node.meta.get("val") if isinstance(node, Node) else None
        if not isinstance(value, torch.Tensor):
            continue
        free = {axis: _dim(program, extent) for axis, extent in enumerate(value.shape) if not isinstance(extent, int)}
        if free:
            found[place] = free
    return found


def _dim(program: ExportedProgram, extent: torch.SymInt) -> Any:
    bounds = program.range_constraints.get(extent.node.expr)
    if bounds is None:
        return Dim.AUTO
    lowest, highest = (int(bound) if bound.is_finite else None for bound in (bounds.lower, bounds.upper))
    return Dim.AUTO(min=lowest, max=highest)


def _flatten_unknown_containers(module: GraphModule) -> None:
    """Give results in containers that can't be written to a file (named tuples of torch, a user's dataclasses) as a
    tuple."""
    info = module.graph._codegen.pytree_info
    try:
        pytree.treespec_dumps(info.out_spec)
    except NotImplementedError:
        plain = pytree.tree_structure(tuple(range(info.out_spec.num_leaves)))
        module.graph._codegen.pytree_info = info._replace(out_spec=plain)
        module._out_spec = plain
        module.recompile()
