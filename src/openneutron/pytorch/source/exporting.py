# SPDX-License-Identifier: BSD-3-Clause
"""Export models with torch.export as ATen graphs and as programs, and report the models that can't be exported.

Example inputs are tensors, numbers, None and strings, in tuples, lists and dicts like those of the model's arguments.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib.util
import inspect
import io
import linecache
import logging
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import attrgetter, length_hint
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
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
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.fx.node import map_arg
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

from openneutron.device import forms
from openneutron.device.third_party import PACKAGES
from openneutron.errors import InvalidModelError, InvalidOptionError, OpenNeutronError, warn
from openneutron.options import Request, changed
from openneutron.pytorch.graph.program import is_functional, is_getitem, is_vmapped, overload_of
from openneutron.pytorch.graph.rewriting import is_state, to_inference, writes_views

METADATA = "openneutron_metadata"
"""The attribute of a module or an ExportedProgram with what its own file states about it: a dict of values for JSON."""

CONSTANTS = (int, float, bool, str, type(None))
"""The types of inputs that are no tensors. torch.export builds the values of such inputs into the program."""

NUMERIC = "biufc"
"""The kinds (``dtype.kind``) of NumPy's types that PyTorch has too."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelInputs:
    """The arguments of one call of a model. ``names`` are the names of ``leaves`` in the program; empty where they are unknown."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    names: tuple[str, ...] = ()

    @property
    def leaves(self) -> list[Any]:
        """Return the tensors and constants in the arguments, in the order of the program's inputs."""
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
        """Return the call as a calibration sample: ``args``, or ``(args, kwargs)`` where there are keywords."""
        return (self.args, dict(self.kwargs)) if self.kwargs else self.args

    def laid_out(self, channels_last: bool | None) -> ModelInputs:
        """Return the call with images (tensors of rank 4) in one memory format, and every other tensor contiguous.

        Images are channels-last for True and contiguous for False. They keep their format for None.
        """
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
    """Return the example inputs as a call of the model ``name``.

    ``inputs`` is a tuple or list of arguments, a dict of arguments by keyword, or the only argument. NumPy arrays are converted to
    tensors. Raises InvalidOptionError for an input that can't be passed to a program.
    """
    if isinstance(inputs, Mapping):
        inputs, keywords = (), {**inputs, **(keywords or {})}
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else () if inputs is None else (inputs,)
    found = ModelInputs(args, dict(keywords or {}))
    found = found.rebuilt(
        [
            torch.from_numpy(leaf.copy()) if isinstance(leaf, np.ndarray) and leaf.dtype.kind in NUMERIC else leaf
            for leaf in found.leaves
        ]
    )
    tensors = [leaf for leaf in found.leaves if isinstance(leaf, torch.Tensor)]
    has_values = any(tensor.layout is not torch.strided or tensor.numel() for tensor in tensors)
    for place, leaf in enumerate(found.leaves):
        if not isinstance(leaf, (torch.Tensor, *CONSTANTS)):
            raise InvalidOptionError(
                f"'{name}': its example input {place} is a {type(leaf).__name__}; tensors, numbers, strings and None are what "
                "can be passed to a program, alone or in tuples, lists and dicts."
            )
        if isinstance(leaf, torch.Tensor) and (leaf.layout is not torch.strided or leaf.is_quantized or not has_values):
            raise InvalidOptionError(f"'{name}': its example input {place} {_obstacle(leaf)}.")
    if found.leaves and all(type(leaf) is int for leaf in found.leaves) and not found.kwargs:
        raise InvalidOptionError(
            f"'{name}': its example inputs are the numbers {', '.join(map(str, found.leaves))}. Pass tensors; for a tensor of this "
            f"shape: (torch.zeros({', '.join(map(str, found.leaves))}),)."
        )
    return found


def _obstacle(tensor: torch.Tensor) -> str:
    """Return the reason why a tensor that is sparse, nested, quantized or empty can't be an input, and a suggestion."""
    if tensor.is_nested:
        return "is a nested tensor. Pass a tensor of one shape, such as tensor.to_padded_tensor(0)"
    if tensor.layout is not torch.strided:
        return f"is a tensor of the layout {tensor.layout}. Pass tensor.to_dense()"
    if tensor.is_quantized:
        return "is a quantized tensor of PyTorch. Pass tensor.dequantize(); a compile quantizes inputs itself"
    return f"has the shape {list(tensor.shape)}, without elements. Pass a batch of 1 or more"


class Staged(nn.Module):
    """A model in two stages: a network that is quantized, and later steps that stay float and compute the model's
    results from those of the network.

    ``later`` is None where the network's results are the model's. ``decides`` is True where only the largest results
    matter, as the scores of a detector. ``example_inputs`` is a pair (arguments, keywords), as in an ExportedProgram.
    """

    def __init__(
        self,
        network: nn.Module,
        inputs: Sequence[torch.Tensor],
        later: nn.Module | None,
        metadata: Mapping[str, Any] | None = None,
        decides: bool = False,
    ) -> None:
        super().__init__()
        self.decides = decides
        self.network, self.later = network, later
        self.example_inputs = (tuple(inputs), dict[str, Any]())
        setattr(self, METADATA, dict(metadata or {}))

    def forward(self, *inputs: torch.Tensor) -> Any:
        found = self.network(*inputs)
        return found if self.later is None else self.later(*found)


def as_read(request: Request) -> Request:
    """Return the request, ready for export.

    A model object of a library that has a reader (``forms.of_object``) is replaced by what the reader returns; a
    Keras model that comes with example inputs stays as it is. A model in stages (``Staged``) brings its own example
    inputs if the request has none.

    The observer is ``minmax`` for a model in stages whose largest results decide (``decides``), unless the user chose
    an observer or gave a ``train_fn``. A detector's objects are the few largest of a hundred thousand scores, and
    ``histogram`` may leave these out of the range: all scores of a YOLOv8n with trained weights then ended at 0.5.
    """
    form = forms.of_object(request.model)
    if form is forms.KERAS and request.example_inputs is not None:
        form = None  # the model is a module, and its reader only gives example inputs
    if form is not None:
        request = replace(request, model=form.read_object(request.model, request.name, request.loading))
    if isinstance(request.model, Staged) and request.example_inputs is None:
        request = replace(request, example_inputs=request.model.example_inputs[0])
    quantization = request.quantization
    is_free = "observer" not in changed(quantization) and quantization.train_fn is None
    if is_free and isinstance(request.model, Staged) and request.model.decides:
        request = replace(request, quantization=replace(quantization, observer="minmax"))
    return request


@dataclass(frozen=True, slots=True, eq=False)
class AtenGraph:
    """A model as an ATen graph, and its example inputs in the requested memory format.

    ``state`` has the buffers that a run of the model changes, by name, with their values before the first run.
    """

    module: GraphModule
    inputs: ModelInputs
    state: Mapping[str, torch.Tensor]


def aten_graph(request: Request) -> AtenGraph:
    """Return the ATen graph of a request's model. The model itself is not changed.

    Raises InvalidModelError where the request has no model or one that can't be exported, and InvalidOptionError without usable example
    inputs.
    """
    model, name, channels_last = request.model, request.name, request.quantization.channels_last
    inputs, keywords = request.example_inputs, request.example_kwargs
    if not isinstance(model, (nn.Module, ExportedProgram)):
        raise InvalidModelError(_no_model(model, name))
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
        first = next(_other_floats(model), None)
        if first is not None or any(getattr(leaf, "dtype", None) in OTHER_FLOATS for leaf in given.leaves):
            model, given = _in_float32(model, given, first, name)
        if channels_last:
            # The layout is changed in place, so the caller's model is copied.
            model = copy.deepcopy(model).to(memory_format=torch.channels_last)
        modes = {module: module.training for module in model.modules()}
        try:
            # A module of torch.export can't change its mode: eval() raises NotImplementedError.
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
    is_changing = not all(node.op == "get_attr" or is_functional(node) for node in graph_module.graph.nodes)
    if is_changing and (_states(graph_module) or writes_views(graph_module.graph)):
        graph_module = program.run_decompositions({}).module(check_guards=False)
        _read_sources(graph_module)
    assert isinstance(graph_module, GraphModule)
    if not graph_module.graph._codegen.pytree_info.out_spec.is_leaf():
        _flatten_unknown_containers(graph_module)
    names = _states(graph_module) if is_changing else []
    state = {target: graph_module.get_buffer(target).detach().clone() for target in names}
    for target in names:
        _set_buffer(graph_module, target, state[target].clone())
    named = tuple(node.name for node in graph_module.graph.find_nodes(op="placeholder"))
    return AtenGraph(graph_module, replace(given, names=named), state)


def _unwrapped(model: nn.Module) -> nn.Module:
    """Return the module inside a model: without the wrappers of ``torch.compile`` and of parallel training, and of a
    model in stages the network. Return any other model itself."""
    while True:
        inner = model.network if isinstance(model, Staged) else getattr(model, "_orig_mod", None)
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


OTHER_FLOATS = (torch.float64, torch.float16, torch.bfloat16)
"""The float types of PyTorch other than float32, for which the NPU has no kernels."""

_Owned = tuple[nn.Module, str, torch.Tensor]


def _in_float32(model: nn.Module, given: ModelInputs, first: _Owned | None, name: str) -> tuple[nn.Module, ModelInputs]:
    """Return the model and its example inputs, with all other floats (``OTHER_FLOATS``) converted to float32.

    ``first`` is the model's first tensor of such a type, as ``_other_floats`` yields it, or None. If there is one, a
    copy of the model is converted, and a warning names the tensor. If it is None, the model itself is returned.
    """
    if first is not None:
        owner, own, tensor = first
        path = next(path for path, module in model.named_modules() if module is owner)
        where = f"{path}.{own}" if path else own
        warn(
            f"'{name}' has values of {tensor.dtype} ('{where}'); it is compiled in float32, and takes float32 inputs. Call .float() on the "
            "model for the same without this warning."
        )
        model = copy.deepcopy(model).float()
        for module, own, tensor in list(_other_floats(model)):
            setattr(module, own, tensor.float())
    leaves = [leaf.float() if getattr(leaf, "dtype", None) in OTHER_FLOATS else leaf for leaf in given.leaves]
    return model, given.rebuilt(leaves)


def _other_floats(model: nn.Module) -> Iterator[_Owned]:
    """Yield each tensor of ``OTHER_FLOATS``, with the module that owns it and its name in that module.

    These are parameters, buffers and plain attributes, such as constants from NumPy.
    """
    for module in model.modules():
        for part in (module._parameters, module._buffers, vars(module)):
            for own, value in part.items():
                if isinstance(value, torch.Tensor) and value.dtype in OTHER_FLOATS:
                    yield module, own, value


def _states(module: GraphModule) -> list[str]:
    """Return the names of the buffers that a run of the module changes.

    A graph with such buffers needs ``run_decompositions({})``, which decomposes no operator. It replaces each change of a buffer by a
    copy at the end of the graph; otherwise quantization would read the buffer before its change, or as a constant. It also replaces
    each write to a view by an operator that returns the whole tensor; otherwise quantize nodes between tensor and view would lose the
    write.
    """
    return [str(node.target) for node in module.graph.find_nodes(op="get_attr") if is_state(node)]


def _read_sources(module: GraphModule) -> None:
    """Let the readers of ``copy_`` nodes read the source of the copy instead, so that no result is an alias of a state."""
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        source = node.args[1]
        if isinstance(source, Node) and node.users:
            node.replace_all_uses_with(source)
    module.recompile()


def _check_dialect(program: ExportedProgram, name: str) -> None:
    """Raise InvalidModelError for a program of ExecuTorch's Edge dialect, which can't be quantized."""
    # The class is compared by name, since its import would import most of ExecuTorch.
    if any(type(node.target).__name__ == "EdgeOpOverload" for node in program.graph.nodes):
        raise InvalidModelError(
            f"'{name}' is a program of ExecuTorch's Edge dialect, which can't be quantized any more. Pass the program of "
            "torch.export.export, as it is before to_edge."
        )


def _check_results(program: ExportedProgram, name: str) -> None:
    """Raise InvalidModelError for a program without a tensor among its results, or with a result that is a number from a
    tensor. ExecuTorch can't return such a number.
    """
    results = program.graph.output_node().args[0]
    if all(item is None for item in results):
        raise InvalidModelError(
            f"'{name}' returns no value: a program has one at least. Return the tensors that it computes."
        )
    if not any(isinstance(item, Node) for item in results):
        found = ", ".join(map(repr, results))
        raise InvalidModelError(
            f"'{name}' returns {found} and no tensor: a program computes one at least. Return the tensors that it computes."
        )
    for place, node in enumerate(program.graph.output_node().args[0]):
        value = node.meta.get("val") if isinstance(node, Node) else None
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise InvalidModelError(
                f"'{name}': its result {place} is a number that is read from a tensor ({node.name}); results are tensors. "
                "Return the tensor, without item()."
            )


def restore(module: GraphModule, state: Mapping[str, torch.Tensor]) -> None:
    """Set the buffers named in ``state`` to copies of its values, as they were before calibration."""
    for target, value in state.items():
        _set_buffer(module, target, value.clone())


def _set_buffer(module: nn.Module, target: str, value: torch.Tensor) -> None:
    path, _, name = target.rpartition(".")
    setattr(module.get_submodule(path), name, value)


SAMPLES = 4
"""The number of first calibration samples on which the float model runs, to find ranges and to measure the accuracy of results."""


@dataclass(slots=True, eq=False)
class FirstSamples:
    """Calibration samples of any iterable. The first ones can be read before the iteration over all of them."""

    given: Iterable[Any]
    _read: list[Any] = field(default_factory=list)
    _rest: Iterator[Any] | None = None

    def first(self, count: int) -> list[Any]:
        """Return the first ``count`` samples, or all if there are fewer. The returned samples stay in memory."""
        if self._rest is None:
            self._rest = iter(self.given)
        self._read += islice(self._rest, max(0, count - len(self._read)))
        return self._read[:count]

    def all(self) -> list[Any]:
        """Return all samples, which stay in memory."""
        self.first(1)
        assert self._rest is not None
        self._read += self._rest
        return self._read

    def __iter__(self) -> Iterator[Any]:
        """Yield all samples. Those after the first ``SAMPLES`` can be read only once, unless all are in memory."""
        self.first(SAMPLES)
        yield from self._read
        assert self._rest is not None
        yield from self._rest

    def __length_hint__(self) -> int:
        return length_hint(self.given)


class Run(Interpreter):
    """An interpreter that runs a module without changing the module's state."""

    def of(self, sample: Any) -> Any:
        """Return the module's results for a calibration sample."""
        if isinstance(sample, ModelInputs):
            leaves = sample.leaves
        else:
            leaves = pytree.tree_leaves(sample if isinstance(sample, (tuple, list)) else (sample,))
        given = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        return self.run(*given, enable_io_processing=False)

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        return result.clone() if n.op == "get_attr" and is_state(n) else result


def export(module: nn.Module, inputs: ModelInputs, name: str) -> ExportedProgram:
    """Return the program of a module. The module gets copies of the inputs.

    Raises InvalidModelError with the first line of the error of torch.export or of the module's own code. The text that torch printed
    is a note of the error.
    """
    given = inputs.rebuilt(
        [
            leaf.clone(memory_format=torch.preserve_format) if isinstance(leaf, torch.Tensor) else leaf
            for leaf in inputs.leaves
        ]
    )
    with _exporting(module) as printed:
        try:
            program = torch.export.export(module, given.args, dict(given.kwargs), strict=False)
        except (OpenNeutronError, KeyboardInterrupt):
            raise
        # torch.export passes on the exceptions of the model's own code, and raises many types of its own.
        except BaseException as error:
            found = refusal(name, module, error)
            if printed.getvalue().strip():
                found.add_note(printed.getvalue())
            raise found from error
    sys.stderr.write(printed.getvalue())  # the model's own output
    return program


def _at_example_shapes(program: ExportedProgram, given: ModelInputs, name: str) -> ExportedProgram:
    """Return a program with dynamic shapes exported for the shapes of the example inputs, with a warning.

    A program of fixed shapes is returned as it is.
    """
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
    """Let the module return a flat tuple if its results are in containers that no file can describe.

    Examples are named tuples of torch and a user's dataclasses.
    """
    info = module.graph._codegen.pytree_info
    try:
        pytree.treespec_dumps(info.out_spec)
    except NotImplementedError:
        plain = pytree.tree_structure(tuple(range(info.out_spec.num_leaves)))
        module.graph._codegen.pytree_info = info._replace(out_spec=plain)
        module._out_spec = plain
        module.recompile()


QUANTIZED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.ao.nn.sparse.quantized")
QAT = ("torch.ao.nn.qat", "torch.ao.nn.intrinsic.qat")
PREPARED = ("torch.ao.quantization.", "torchao.quantization.")
"""The packages of quantized modules (``QUANTIZED``), of modules for quantization-aware training (``QAT``), and of observers."""

FLOAT_MODEL = "Pass the float model with calibration=[...], or an ExportedProgram that NeutronQuantizer and convert_pt2e quantized"


def _no_model(model: object, name: str) -> str:
    """Return the message about an object that is no model."""
    what, hint = f"of type {type(model).__name__}", ""
    if isinstance(model, type):
        what, hint = f"the class {model.__name__}", f" Pass an object of the class: {model.__name__}(...)."
    elif isinstance(model, Mapping) and any(isinstance(value, torch.Tensor) for value in model.values()):
        what, hint = "a state_dict", " Load it into its module with load_state_dict, and pass the module."
    elif inspect.isroutine(model):
        what, hint = "a function", " Pass the module that it returns, or one whose forward calls it."
    return f"'{name}' is {what}; a torch.nn.Module or an ExportedProgram is needed.{hint}"


def check_float(model: nn.Module, name: str) -> None:
    """Raise InvalidModelError for a TorchScript module, for a model with quantized parts, and for one whose parameters have no values
    yet.

    PyTorch's eager or FX quantization, or torchao, has quantized these parts or prepared them for quantization.
    """
    if isinstance(model, torch.jit.ScriptModule):
        raise InvalidModelError(
            f"'{name}' is a TorchScript module, which torch.export can't trace. Pass the Python module that it was made from."
        )
    for path, module in model.named_modules():
        place, kind = path or type(model).__name__, f"{type(module).__module__}.{type(module).__qualname__}"
        if isinstance(module, torch.jit.ScriptModule):
            raise InvalidModelError(
                f"'{name}': its module '{place}' is a TorchScript module, which torch.export can't trace. Pass the Python module "
                "that it was made from."
            )
        observes = kind.startswith(PREPARED) and hasattr(module, "calculate_qparams")
        if kind.startswith(QUANTIZED) or kind.startswith(QAT) or observes:
            state = "is quantized already" if kind.startswith(QUANTIZED) else "is prepared for another quantization"
            raise InvalidModelError(f"'{name}' {state}: '{place}' is a {kind}. {FLOAT_MODEL}.")
        for own, parameter in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            where = f"{path}.{own}" if path else own
            if is_lazy(parameter):
                raise InvalidModelError(
                    f"'{name}': '{where}' has no shape before the first run of its lazy module. Run the model once in front of the "
                    "compile: model(*example)."
                )
            if parameter.is_meta:
                raise InvalidModelError(
                    f"'{name}': '{where}' is on the device 'meta', which holds no values. Load the weights first: "
                    "model.load_state_dict(weights, assign=True)."
                )
            if type(parameter.data).__module__.startswith("torchao."):
                raise InvalidModelError(
                    f"'{name}' is quantized already: '{where}' is a {type(parameter.data).__name__}. {FLOAT_MODEL}."
                )


@contextmanager
def _exporting(module: nn.Module) -> Iterator[io.StringIO]:
    """Prepare torch and the module for an export in the ``with`` block, and yield a stream that collects what is
    printed to stderr.

    Inside the block, torch logs nothing up to the level of errors, because the exception of a failed export has the
    same text. PyTorch's transformers do not test whether a mask is causal: they would read the mask's values, which
    an export does not have. The module returns dataclasses as dicts of their fields, because torch.export accepts
    only registered classes.
    """

    def fields_of(result: Any) -> Any:
        is_unknown = dataclasses.is_dataclass(result) and not isinstance(result, type)
        if not is_unknown or type(result) in pytree.SUPPORTED_NODES:
            return result
        return {
            item.name: pytree.tree_map(fields_of, getattr(result, item.name)) for item in dataclasses.fields(result)
        }

    before = logging.root.manager.disable
    logging.disable(max(before, logging.ERROR))
    transformer = torch.nn.modules.transformer
    looking = transformer._detect_is_causal_mask
    transformer._detect_is_causal_mask = lambda mask, is_causal=None, size=None: is_causal is True
    # The results of a module of torch.export are registered.
    hooks = (
        ()
        if isinstance(module, GraphModule)
        else (module.register_forward_hook(lambda module, given, result: pytree.tree_map(fields_of, result)),)
    )
    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            yield printed
    finally:
        for hook in hooks:
            hook.remove()
        transformer._detect_is_causal_mask = looking
        logging.disable(before)


def refusal(name: str, model: nn.Module, error: BaseException) -> InvalidModelError:
    """Return the error that reports an exception of torch.export or of the model's own code to the user."""
    place = _place(model, error.__traceback__)
    if isinstance(error, SystemExit):
        return InvalidModelError(
            f"'{name}' can't be exported: its code calls sys.exit({error.code!r}) when it runs. A model must return."
        )
    if isinstance(error, GuardOnDataDependentSymNode):
        return InvalidModelError(
            f"'{name}' can't be exported: its code decides on a value that only a run computes{place}. Write that with "
            "operators on tensors, such as torch.where, or end the model before it."
        )
    while type(error).__module__ == "torch._dynamo.exc" and error.__cause__ is not None:
        error = error.__cause__
    return InvalidModelError(
        f"'{name}' can't be exported: {first_line(error)} ({type(error).__name__}){place}. "
        "Does it run on the example inputs, and do without data-dependent Python?"
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's text, without a full stop at its end."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line.rstrip(".")


LONGEST_CODE = 80
"""The largest number of characters of a line of source that a message shows."""


def _place(model: nn.Module, trace: TracebackType | None) -> str:
    """Return where an export failed, as the end of a message: the last line of the user's code in a traceback.

    If the traceback has no such line, return the last submodule of the model in it, or an empty text if it has none.
    """
    names: Mapping[int, str] = {id(module): path for path, module in model.named_modules() if path}
    line, inside = "", ""
    for frame, number in traceback.walk_tb(trace):
        file = frame.f_code.co_filename
        module = frame.f_locals.get("self")
        if isinstance(module, nn.Module) and id(module) in names:
            inside = f", in its module '{names[id(module)]}' ({type(module).__name__})"
        if not file.startswith("<") and not file.startswith(_libraries()):
            code = linecache.getline(file, number).strip()
            shown = code if len(code) <= LONGEST_CODE else f"{code[:LONGEST_CODE]}..."
            line = f", at {Path(file).name}, line {number}" + (f": {shown}" if shown else "")
    return line or inside


@functools.cache
def _libraries() -> tuple[str, ...]:
    """Return the folders of code that is not the model's own: of other packages, this project and Python."""
    found = (importlib.util.find_spec(package) for package in PACKAGES)
    packages = [place for spec in found if spec is not None for place in spec.submodule_search_locations or ()]
    own = str(Path(__file__).parents[2])
    return (*packages, own, sysconfig.get_paths()["stdlib"] + "/", sys.prefix + "/bin")


def lifted(module: GraphModule, inputs: ModelInputs) -> ExportedProgram | None:
    """Return the program of a quantized graph module without tracing the module; None where it has to be traced.

    torchao returns a GraphModule whose nodes have the shapes of the first export, so that ``torch.export.export`` would run each operator
    only to find the same shapes. Here the module's tensors become inputs of the program, as torch.export lifts them.

    A module has to be traced if it has operators that change a tensor in place, control flow, extents that are no numbers, or
    arguments or results that are no tensors.
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
        # A trace makes the name of the node from this stem.
        name = "getitem" if overload is None else overload.overloadpacket.__name__
        args, kwargs = map_arg((node.args, node.kwargs), made.__getitem__)
        copied = new.create_node("call_function", node.target, args, kwargs, name)
        copied.meta = dict(node.meta)
        sources = [source.meta["val"] for source in copied.all_input_nodes]
        # Quantize nodes change the memory format of their results, and so that of later results.
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
    """Return whether ``lifted`` can copy a node without tracing it."""
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
    """Return whether an operator's result may be a view of an argument. The result's strides then depend on the
    argument's."""
    return overload is not None and any(item.alias_info is not None for item in overload._schema.returns)


def _is_contiguous(values: Iterable[Any]) -> bool:
    """Return whether all of the values are known, and their tensors are contiguous."""
    return all(
        value is not None
        and all(item.is_contiguous() for item in pytree.tree_leaves(value) if isinstance(item, torch.Tensor))
        for value in values
    )


def _inputs(
    graph: Graph, tensors: Mapping[str, torch.Tensor], mode: Any
) -> tuple[Graph, dict[Node, Node], list[InputSpec]]:
    """Return a new graph whose placeholders are the module's tensors and the model's inputs.

    The second result maps the nodes of ``graph`` to these placeholders, and the third one is the signature of the placeholders.
    """
    new, specs = Graph(), []
    held: dict[str, Node] = {}
    # A signature has the parameters before the buffers.
    for target in sorted(tensors, key=lambda target: not isinstance(tensors[target], nn.Parameter)):
        is_parameter = isinstance(tensors[target], nn.Parameter)
        node = new.placeholder(re.sub(r"\W", "_", f"{'p' if is_parameter else 'b'}_{target}"))
        node.target = node.name  # another tensor may have this name but for such characters
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
