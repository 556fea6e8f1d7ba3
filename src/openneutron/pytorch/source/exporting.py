# SPDX-License-Identifier: BSD-3-Clause
"""Models through torch.export, as ATen graphs and as programs, and their example inputs.

Inputs are tensors, numbers, None and strings, in tuples, lists and dicts as a model takes them.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from openneutron.errors import InvalidModelError, InvalidOptionError, OpenNeutronError, warn
from openneutron.pytorch.graph.checks import is_vmapped
from openneutron.pytorch.graph.inference import to_inference
from openneutron.pytorch.graph.rewriting import is_state, writes_views
from openneutron.pytorch.source.refusals import check_float, refusal, silenced

CONSTANTS = (int, float, bool, str, type(None))
"""What an input may be beside a tensor: torch.export builds its value into the program."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelInputs:
    """One call of a model. ``names``: those of the program's inputs in the order of ``leaves``, where they are known."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    names: tuple[str, ...] = ()

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
        return ModelInputs(args, kwargs, self.names)

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
    """Return the example inputs as a call; a tensor alone is a model's only argument, and a dict has arguments by keyword.

    Raises InvalidOptionError where one of them is nothing that can be passed to a program.
    """
    if isinstance(inputs, Mapping):
        inputs, keywords = (), {**inputs, **(keywords or {})}
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else () if inputs is None else (inputs,)
    found = ModelInputs(args, dict(keywords or {}))
    found = found.rebuilt([torch.from_numpy(leaf.copy()) if _is_numeric(leaf) else leaf for leaf in found.leaves])
    for place, leaf in enumerate(found.leaves):
        if not isinstance(leaf, (torch.Tensor, *CONSTANTS)):
            raise InvalidOptionError(
                f"'{name}': its example input {place} is a {type(leaf).__name__}; tensors, numbers, strings and None are what "
                "can be passed to a program, alone or in tuples, lists and dicts."
            )
    return found


def _is_numeric(leaf: object) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biufc"


@dataclass(frozen=True, slots=True, eq=False)
class AtenGraph:
    """A model as an ATen graph, and its example inputs in the layout asked for. ``state`` is what the model changes when it
    runs, by name, as it was before any run."""

    module: GraphModule
    inputs: ModelInputs
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
    is_exported = isinstance(model, (ExportedProgram, GraphModule))
    if isinstance(model, ExportedProgram):
        _check_dialect(model, name)
        program = _at_example_shapes(model, given, name)
    else:
        model = _unwrapped(model)
        check_float(model, name)
        if channels_last:
            # A copy: the layout is changed in place, and the model is the caller's.
            model = copy.deepcopy(model).to(memory_format=torch.channels_last)
        modes = {module: module.training for module in model.modules()}
        try:
            # A module of torch.export refuses another mode: it is as it was exported.
            with suppress(NotImplementedError) if isinstance(model, GraphModule) else nullcontext():
                model.eval()
            program = export(model, given, name)
        finally:
            for module, training in modes.items():
                module.training = training
    _check_results(program, name)
    if any(map(is_vmapped, program.graph.nodes)):
        program = program.run_decompositions({})
    graph_module = program.module(check_guards=False)
    assert isinstance(graph_module, GraphModule)
    if is_exported and to_inference(graph_module):
        warn(
            f"'{name}' was exported in training mode; it is compiled as in inference: batch normalizations use their running "
            "statistics, and nothing is dropped. Call model.eval() before torch.export."
        )
        program = export(graph_module, given, name)
        graph_module = program.module(check_guards=False)
    if _states(graph_module) or writes_views(graph_module.graph):
        graph_module = program.run_decompositions({}).module(check_guards=False)
        _read_sources(graph_module)
    assert isinstance(graph_module, GraphModule)
    _flatten_unknown_containers(graph_module)
    names = _states(graph_module)
    state = {target: graph_module.get_buffer(target).detach().clone() for target in names}
    for target in names:
        _set_buffer(graph_module, target, state[target].clone())
    named = tuple(node.name for node in graph_module.graph.find_nodes(op="placeholder"))
    return AtenGraph(graph_module, replace(given, names=named), state)


def _unwrapped(model: nn.Module) -> nn.Module:
    """Return the module inside ``torch.compile`` and inside wrappers for several devices."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


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


def _check_dialect(program: ExportedProgram, name: str) -> None:
    """Raise InvalidModelError for a program of ExecuTorch's Edge dialect, which no quantizer takes."""
    # By name: importing the class takes most of ExecuTorch.
    if any(type(node.target).__name__ == "EdgeOpOverload" for node in program.graph.nodes):
        raise InvalidModelError(
            f"'{name}' is a program of ExecuTorch's Edge dialect, which can't be quantized any more. Pass the program of "
            "torch.export.export, as it is before to_edge."
        )


def _check_results(program: ExportedProgram, name: str) -> None:
    """Raise InvalidModelError where there is no result, or one is a number read from a tensor, which ExecuTorch can't return."""
    if all(item is None for item in program.graph.output_node().args[0]):
        raise InvalidModelError(
            f"'{name}' returns no value: a program has one at least. Return the tensors that it computes."
        )
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


def export(module: nn.Module, inputs: ModelInputs, name: str) -> ExportedProgram:
    """Return the program of a module. The inputs themselves stay as they are, whatever the module does to them.

    Raises InvalidModelError, with the first line of what torch.export or the module's own code says. What torch prints beside it is in
    the error's notes.
    """
    given = inputs.rebuilt(
        [
            leaf.clone(memory_format=torch.preserve_format) if isinstance(leaf, torch.Tensor) else leaf
            for leaf in inputs.leaves
        ]
    )
    with silenced() as printed:
        try:
            with _without_looking_at_masks():
                program = torch.export.export(module, given.args, dict(given.kwargs), strict=False)
        except (OpenNeutronError, KeyboardInterrupt):
            raise
        # torch.export raises whatever the model's own code raises, and a good many types of its own.
        except BaseException as error:
            found = refusal(name, module, error)
            if printed.getvalue().strip():
                found.add_note(printed.getvalue())
            raise found from error
    sys.stderr.write(printed.getvalue())  # the model's own output
    return program


@contextmanager
def _without_looking_at_masks() -> Iterator[None]:
    """Let PyTorch's transformers take a mask as it is. They would look at its values for a causal mask, which has a faster way
    and the same result; while a model is exported there are no values."""
    transformer = torch.nn.modules.transformer
    looking = transformer._detect_is_causal_mask
    transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: is_causal is True
    try:
        yield
    finally:
        transformer._detect_is_causal_mask = looking


def _at_example_shapes(program: ExportedProgram, given: ModelInputs, name: str) -> ExportedProgram:
    """Return a program for inputs of any shape as that for the shapes of the example inputs."""
    free = {
        str(node.name): value
        for node in program.graph.find_nodes(op="placeholder")
        if isinstance(value := node.meta.get("val"), torch.Tensor)
        and not all(isinstance(extent, int) for extent in value.shape)
    }
    if not free:
        return program
    module = program.module(check_guards=False)
    fixed = export(module, given, name)
    shapes = [
        f"{node.name} {list(node.meta['val'].shape)}"
        for node in fixed.graph.find_nodes(op="placeholder")
        if node.name in free
    ]
    warn(
        f"'{name}' takes inputs of several shapes, and the NPU one; it is compiled for those of the example inputs: "
        f"{', '.join(shapes)}. Pass example_inputs of other shapes for another program."
    )
    return fixed


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
