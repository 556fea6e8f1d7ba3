# SPDX-License-Identifier: BSD-3-Clause
"""Write modules as the bytes of ``.pt2`` files, and run them in other processes, without the Python code of the model."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torchao.quantization.pt2e  # noqa: F401  (registers the quantize and dequantize operators)
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from openneutron.device.third_party import suppressed
from openneutron.pytorch.graph.rewriting import is_state
from openneutron.pytorch.source.exporting import ModelInputs, export


class _Tensors(nn.Module):
    """A module that returns the tensors of a model's results in one tuple, in the order of the outputs of its program."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        results = pytree.tree_leaves(self.model(*args, **kwargs))
        return tuple(item for item in results if isinstance(item, torch.Tensor))


def inputs_of(module: GraphModule) -> ModelInputs:
    """Return inputs like those that a module of torch.export was traced with.

    Tensors are zeros with the type, shape and memory layout of the traced ones. Numbers and None are the traced ones.
    """
    leaves = [_leaf(node.meta.get("val")) for node in module.graph.find_nodes(op="placeholder")]
    args, kwargs = pytree.tree_unflatten(leaves, module._in_spec)
    return ModelInputs(tuple(args), kwargs)


def _leaf(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    made = torch.zeros([int(extent) for extent in value.shape], dtype=value.dtype)
    if value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last):
        return made.contiguous(memory_format=torch.channels_last)
    return made


def written(model: nn.Module | ExportedProgram, inputs: ModelInputs, name: str) -> tuple[bytes, bool]:
    """Return a model as the bytes of a ``.pt2`` file, and whether a run changes the model's state.
    Raises InvalidModelError where the model can't be exported.
    """
    module = model.module(check_guards=False) if isinstance(model, ExportedProgram) else model
    modes = {child: child.training for child in module.modules()}
    try:
        if not any(isinstance(child, GraphModule) for child in module.modules()):
            module.eval()  # an exported module has no modes
        with suppressed():
            program = export(_Tensors(module), inputs, name)
            stream = io.BytesIO()
            torch.export.save(program, stream)
    finally:
        for child, training in modes.items():
            child.training = training
    graph = program.module(check_guards=False).graph
    return stream.getvalue(), any(is_state(node) for node in graph.find_nodes(op="get_attr"))


class ExportedRunner:
    """A module that was loaded from the bytes that ``written`` returned."""

    def __init__(self, content: bytes) -> None:
        program = torch.export.load(io.BytesIO(content))
        self._module = program.module(check_guards=False)
        assert program.example_inputs is not None
        args, kwargs = program.example_inputs
        self._call = ModelInputs(tuple(args), _mapping(kwargs))

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run the model on ``arrays``, one for each input tensor in their order, and return the tensors of its results."""
        rest = iter(arrays)
        leaves = [
            _laid_out_as(torch.from_numpy(next(rest).copy()), leaf) if isinstance(leaf, torch.Tensor) else leaf
            for leaf in self._call.leaves
        ]
        call = self._call.rebuilt(leaves)
        with torch.inference_mode():
            results = self._module(*call.args, **call.kwargs)
        return [item.numpy() for item in pytree.tree_leaves(results)]


def _mapping(kwargs: Any) -> Mapping[str, Any]:
    return dict(kwargs or {})


def _laid_out_as(tensor: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    if leaf.dim() == 4 and leaf.is_contiguous(memory_format=torch.channels_last):
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor.contiguous()


@contextmanager
def on_one_thread() -> Iterator[None]:
    """Run PyTorch's operators on one thread inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
