# SPDX-License-Identifier: BSD-3-Clause
"""Models through torch.export, as ATen graphs and as programs; their example inputs and calibration samples.

Inputs are tensors, numbers, None and strings, in tuples, lists and dicts as a model takes them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram, ShapesCollection
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from openneutron.errors import InvalidModelError, InvalidOptionError, OpenNeutronError
from openneutron.pytorch.graph.rewriting import is_state, writes_views

CONSTANTS = (int, float, bool, str, type(None))
"""What an input may be beside a tensor: torch.export builds its value into the program."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelInputs:
    """One call of a model."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def leaves(self) -> list[Any]:
        """Return what is in the arguments, in the order in which a program takes it."""
        return pytree.tree_leaves((self.args, dict(self.kwargs)))

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    @property
    def structure(self) -> pytree.TreeSpec:
        return pytree.tree_structure((self.args, dict(self.kwargs)))

    def rebuilt(self, leaves: Sequence[Any]) -> ModelInputs:
        """Return the call with other leaves in the same structure."""
        args, kwargs = pytree.tree_unflatten(list(leaves), self.structure)
        return ModelInputs(args, kwargs)

    def as_sample(self) -> Any:
        """Return the call as a calibration sample."""
        return (self.args, dict(self.kwargs)) if self.kwargs else self.args

    def laid_out(self, channels_last: bool | None) -> ModelInputs:
        """Return the call with its images contiguous or channels-last (None: as they are), and every other tensor
        contiguous."""
        return self.rebuilt([_laid_out(leaf, channels_last) for leaf in self.leaves])


def _laid_out(leaf: Any, channels_last: bool | None) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if leaf.dim() != 4:
        return leaf.contiguous()
    as_it_is = leaf.is_contiguous(memory_format=torch.channels_last) and not leaf.is_contiguous()
    wanted = as_it_is if channels_last is None else channels_last
    return leaf.contiguous(memory_format=torch.channels_last if wanted else torch.contiguous_format)


def example(inputs: Any, keywords: Mapping[str, Any] | None, name: str) -> ModelInputs:
    """Return the example inputs as a call; a tensor alone is a model's only argument.

    Raises InvalidOptionError where one of them is nothing that can be passed to a program.
    """
    args = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs or ())
    found = ModelInputs(args, dict(keywords or {}))
    for place, leaf in enumerate(found.leaves):
        if not isinstance(leaf, (torch.Tensor, *CONSTANTS)):
            raise InvalidOptionError(
                f"'{name}': its example input {place} is a {type(leaf).__name__}; tensors, numbers, strings and None are what "
                "can be passed to a program, alone or in tuples, lists and dicts."
            )
    return found


def samples(calibration: Iterable[Any], wanted: ModelInputs) -> Iterator[ModelInputs]:
    """Yield the calibration samples in the shapes and layouts of the example inputs; larger batches are taken apart.

    Each is a tuple of arguments, a tensor where there is but one argument, a dict where there are keywords alone, or both in
    ``(tuple, dict)``. Raises InvalidOptionError for one that the example inputs don't fit.
    """
    for index, item in enumerate(calibration):
        sample = _call(item, wanted)
        there, here = wanted.leaves, sample.leaves
        if sample.structure != wanted.structure:
            tensors = all(isinstance(leaf, torch.Tensor) for leaf in (*here, *there))
            plain = tensors and not wanted.kwargs and len(here) != len(there)
            raise InvalidOptionError(
                f"calibration: sample {index} has {len(here)} parts; the model has {len(there)} tensor inputs."
                if plain
                else f"calibration: sample {index} is {_outline(sample)}; the example inputs are {_outline(wanted)}."
            )
        for place, (part, model) in enumerate(zip(here, there, strict=True)):
            if _fits(part, model):
                continue
            raise InvalidOptionError(
                f"calibration: sample {index} has {_described(part)} for input {place}; the example input is "
                f"{_described(model)}."
            )
        yield from _batches(index, sample, wanted)


def _call(item: Any, wanted: ModelInputs) -> ModelInputs:
    if isinstance(item, torch.Tensor):
        return ModelInputs((item,), {})
    if wanted.kwargs:
        if isinstance(item, Mapping) and not wanted.args:
            return ModelInputs((), dict(item))
        if isinstance(item, (tuple, list)) and len(item) == 2 and isinstance(item[1], Mapping):
            return ModelInputs(tuple(item[0]), dict(item[1]))
    return ModelInputs(tuple(item), {})


def _outline(call: ModelInputs) -> str:
    words = [type(item).__name__ for item in call.args]
    return f"({', '.join([*words, *(f'{key}={type(item).__name__}' for key, item in call.kwargs.items())])})"


def _fits(part: Any, wanted: Any) -> bool:
    if not isinstance(part, torch.Tensor) or not isinstance(wanted, torch.Tensor):
        return type(part) is type(wanted) and bool(part == wanted)
    return part.shape[1:] == wanted.shape[1:] and part.dim() == wanted.dim() and part.dtype == wanted.dtype


def _described(part: Any) -> str:
    return f"{part.dtype} {list(part.shape)}" if isinstance(part, torch.Tensor) else repr(part)


def _batches(index: int, sample: ModelInputs, wanted: ModelInputs) -> Iterator[ModelInputs]:
    pairs = [
        (part, model)
        for part, model in zip(sample.leaves, wanted.leaves, strict=True)
        if isinstance(model, torch.Tensor)
    ]
    if all(part.shape == model.shape for part, model in pairs):
        yield sample.rebuilt([_like(part, model) for part, model in zip(sample.leaves, wanted.leaves, strict=True)])
        return
    counts = {_times(part, model) for part, model in pairs}
    if len(counts) != 1 or 0 in counts:
        raise InvalidOptionError(
            f"calibration: sample {index} has batches of {[_batch(part) for part, _ in pairs]}; the model takes "
            f"{[_batch(model) for _, model in pairs]}. Pass whole multiples."
        )
    for number in range(counts.pop()):
        yield sample.rebuilt(
            [
                _like(_piece(part, model, number), model)
                for part, model in zip(sample.leaves, wanted.leaves, strict=True)
            ]
        )


def _times(part: torch.Tensor, model: torch.Tensor) -> int:
    """Return how many of the model's batches are in the sample's; 0 where it is no whole number."""
    if part.shape == model.shape:
        return 1
    extent = _batch(model)
    return _batch(part) // extent if extent and _batch(part) % extent == 0 else 0


def _batch(tensor: torch.Tensor) -> int:
    return int(tensor.shape[0]) if tensor.dim() else 1


def _piece(part: Any, model: Any, number: int) -> Any:
    if not isinstance(part, torch.Tensor) or not part.dim():
        return part
    return part[number * len(model) : (number + 1) * len(model)]


def _like(part: Any, model: Any) -> Any:
    """Return the tensor in the example's memory layout: the exported graph has it built in."""
    if not isinstance(part, torch.Tensor):
        return part
    if model.dim() == 4 and model.is_contiguous(memory_format=torch.channels_last):
        return part.contiguous(memory_format=torch.channels_last)
    return part.contiguous()


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
            # A module of torch.export refuses another mode: it is as it was exported.
            with suppress(NotImplementedError) if isinstance(model, GraphModule) else nullcontext():
                model.eval()
            program, extents = export(model, given, name), {}
        finally:
            for module, training in modes.items():
                module.training = training
    _check_results(program, name)
    graph_module = program.module(check_guards=False)
    assert isinstance(graph_module, GraphModule)
    if _states(graph_module) or writes_views(graph_module.graph):
        graph_module = program.run_decompositions({}).module(check_guards=False)
        _read_sources(graph_module)
    assert isinstance(graph_module, GraphModule)
    _flatten_unknown_containers(graph_module)
    names = _states(graph_module)
    state = {target: graph_module.get_buffer(target).detach().clone() for target in names}
    for target in names:
        _set_buffer(graph_module, target, state[target].clone())
    return AtenGraph(graph_module, given, extents, state)


def _states(module: GraphModule) -> list[str]:
    """Return the names of the buffers that the module changes.

    ``run_decompositions({})`` takes nothing apart. It makes the changes copies at the end of the graph: quantization would
    read a buffer that changes in between, or a view of one, before its change or as a constant. A write to a view of another
    tensor becomes the operator that returns the whole tensor: quantize nodes between tensor and view would lose the write.
    """
    return [str(node.target) for node in module.graph.find_nodes(op="get_attr") if is_state(node)]


def _read_sources(module: GraphModule) -> None:
    """Let what reads a state's new value behind its copy read what is copied, so that a result is no alias of the state."""
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        source = node.args[1]
        if isinstance(source, Node) and node.users:
            node.replace_all_uses_with(source)
    module.recompile()


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
    given = inputs.rebuilt(
        [
            leaf.clone(memory_format=torch.preserve_format) if isinstance(leaf, torch.Tensor) else leaf
            for leaf in inputs.leaves
        ]
    )
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
