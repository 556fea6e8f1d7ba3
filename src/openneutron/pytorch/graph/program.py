# SPDX-License-Identifier: BSD-3-Clause
"""The facts of an exported program's nodes: operator names, quantization, constants, layouts, origins, reasons."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch._higher_order_ops.executorch_call_delegate import executorch_call_delegate
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import map_arg

from openneutron.ir import DType, QuantParams, per_channel, per_tensor

QUANTIZE_FIRST = "Quantize it with NeutronQuantizer."
"""The suggestion for a model that reaches the partitioner without the quantization it needs."""

WITH_INTEGERS = "The NPU's operators on integers and booleans are those of indices, positions and conditions."
"""The hint where the operator would have to compute with integers or booleans."""

REWRITE = "Write it with operators that docs/supported-ops.md lists."


@dataclass(frozen=True, slots=True)
class Reject:
    """The reason of a CPU fallback, as the end of a sentence that begins with the node's name, and a suggestion. ``rule``: the
    lowering rule or the stage that refused the node."""

    reason: str
    hint: str = ""
    rule: str = ""


class Rejected(Exception):
    """Ends a rule from inside; ``lower`` turns it into the Reject it carries."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reject = Reject(reason, hint)


KEPT_FLOAT = "kept_float"
"""The user's call that keeps the node float."""

LEFT_FLOAT = "left_float"
"""True on nodes that the quantizer examined and has no rule for."""

JOINS_OUTPUT = "joins_output"
"""True on nodes that join parts of a result of the model behind their dequantize nodes."""

WHOLE_NUMBERS = "whole_numbers"
"""The least and the largest value of a float that stands for integers, each of which int8 represents exactly."""

VMAP = "torch._functorch.predispatch"
"""The module of the functions that torch.export leaves in a graph for ``torch.vmap``. They change the state of the process, and where
one fails between them, every later operator of the process fails."""

STAYS_WHOLE = "stays_whole"
"""The reason why a decomposable operator stayed whole, and a suggestion."""

WRITTEN_AS = "written_as"
"""The operator that a node of a decomposition was made from."""

INPUT_NAME = "input_name"
"""The name for people of an input of a partition, which is an operator of the model or an input of it."""

NOT_DELEGATED = "not_delegated"
"""The name in operators_not_to_delegate that matched a node before decomposition."""


QUANTIZE = frozenset(
    f"quantized_decomposed.quantize_{form}"
    for form in ("per_tensor.default", "per_tensor.tensor", "per_channel.default")
)
DEQUANTIZE = frozenset(
    f"quantized_decomposed.dequantize_{form}"
    for form in ("per_tensor.default", "per_tensor.tensor", "per_channel.default")
)
GETITEM = "getitem"

CHANNELS_LAST = (0, 2, 3, 1)
CHANNELS_INNERMOST: Mapping[int, tuple[int, ...]] = MappingProxyType({3: (0, 2, 1), 4: CHANNELS_LAST})
"""The order of axes in which convolutions take lines and images, by rank."""

DTYPE_OF_TORCH = {
    torch.float32: DType.FLOAT32,
    torch.int8: DType.INT8,
    torch.uint8: DType.UINT8,
    torch.int16: DType.INT16,
    torch.int32: DType.INT32,
    torch.int64: DType.INT64,
    torch.bool: DType.BOOL,
}


def overload_of(node: Node) -> torch._ops.OpOverload | None:
    """Return the ATen overload a node calls, of the edge dialect's wrapper too; None where it calls something else."""
    target = node.target if isinstance(node.target, torch._ops.OpOverload) else getattr(node.target, "_op", None)
    return target if isinstance(target, torch._ops.OpOverload) else None


def is_vmapped(node: Node) -> bool:
    """Return whether a node is a part of ``torch.vmap`` in a graph before decomposition."""
    return node.op == "call_function" and getattr(node.target, "__module__", "") == VMAP


def joins_output(node: Node) -> bool:
    """Return whether a node joins parts of a result of the model behind their dequantize nodes."""
    return JOINS_OUTPUT in node.meta.get("custom", {})


def is_functional(node: Node) -> bool:
    """Return whether the node is an input, a result, or a call of an operator that changes nothing in place."""
    if node.op in ("placeholder", "output") or is_getitem(node):
        return True
    overload = overload_of(node)
    return overload is not None and not overload._schema.is_mutable


def op_name(node: Node) -> str:
    """Return the operator as ``namespace.name.overload``, the same for ATen and edge dialect; ``""`` without a call."""
    if node.op != "call_function":
        return ""
    if node.target is operator.getitem:
        return GETITEM
    overload = overload_of(node)
    return str(overload) if overload is not None else getattr(node.target, "__name__", "?")


def short_name(node: Node) -> str:
    """Return the operator without its overload, for messages: ``aten.convolution``."""
    name = op_name(node)
    return name.rsplit(".", 1)[0] if name.count(".") == 2 else name


def is_quantize(node: Node) -> bool:
    return op_name(node) in QUANTIZE


def is_dequantize(node: Node) -> bool:
    return op_name(node) in DEQUANTIZE


def is_compute(node: Node) -> bool:
    """Return whether a node is a call that is neither quantize nor dequantize, nor part of a delegate call."""
    if node.op != "call_function" or is_quantize(node) or is_dequantize(node):
        return False
    return not is_delegated(node)


def is_delegated(node: Node) -> bool:
    """Return whether the node is an earlier delegate call, or takes a result of one."""
    call = node.all_input_nodes[0] if is_getitem(node) else node
    return call.target is executorch_call_delegate


def is_getitem(node: Node) -> bool:
    return node.target is operator.getitem


EXACT = (torch.int32, torch.int64, torch.bool)
"""Types of values that are computed and passed on as they are: integers and booleans."""


def is_exact(node: Node) -> bool:
    """Return whether the node's values are integers or booleans, no reals and nothing that stands for reals."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in EXACT and not is_quantize(node)


NUMBERS = (torch.uint8, torch.int8, torch.int16)
"""Types of integers that the NPU converts to numbers."""


def is_number(node: Node) -> bool:
    """Return whether the node's values are bytes or words that a program converts to float, and no quantized values."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype not in NUMBERS or is_quantize(node):
        return False
    return not any(is_dequantize(user) for user in node.users)


def shape_of(node: Node) -> tuple[int, ...]:
    """Return the extents of a node's tensor. Raises ValueError where one is not a fixed number."""
    value = node.meta["val"]
    extents = tuple(value.shape)
    if any(not isinstance(extent, int) for extent in extents):
        raise ValueError(f"its shape is {[str(extent) for extent in extents]}; every extent must be a fixed number")
    return tuple(int(extent) for extent in extents)


def has_fixed_shape(node: Node) -> bool:
    """Return whether every extent of a node's tensor is a fixed number."""
    return all(isinstance(extent, int) for extent in node.meta["val"].shape)


def depends_on_data(node: Node) -> bool:
    """Return whether the result, or an extent of it, is a number that torch.export can only name (``u0``)."""
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else (value,)
    numbers = [extent for item in values if isinstance(item, torch.Tensor) for extent in item.shape]
    numbers += [item for item in values if isinstance(item, torch.SymInt)]
    symbols = [symbol for item in numbers if isinstance(item, torch.SymInt) for symbol in item.node.expr.free_symbols]
    return any(str(symbol).startswith("u") for symbol in symbols)


def dtype_of(node: object) -> torch.dtype | None:
    """Return the type of a node's tensor; None for any other value."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return value.dtype if isinstance(value, torch.Tensor) else None


def is_channels_last(node: Node) -> bool:
    """Return whether a rank-4 tensor's values lie channels innermost (False too where that and contiguous are the
    same)."""
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor) or value.dim() != 4 or value.is_contiguous():
        return False
    return value.is_contiguous(memory_format=torch.channels_last)


def is_plain_layout(node: Node) -> bool:
    """Return whether ExecuTorch passes the tensor contiguous, or channels-last at rank 4.

    A computed tensor of other strides, such as a transposed one, is contiguous there: views are copies in the Edge program, and
    results of a delegate have the layout that the partition states (``pass_contiguous``).
    """
    value = node.meta["val"]
    return isinstance(value, torch.Tensor) and (node.op != "placeholder" or has_plain_strides(value))


def pass_contiguous(node: Node) -> None:
    """State that ExecuTorch passes a computed tensor contiguous if its strides are neither contiguous nor channels-last."""
    value = node.meta["val"]
    if node.op != "placeholder" and isinstance(value, torch.Tensor) and not has_plain_strides(value):
        node.meta["val"] = value.contiguous()


def has_plain_strides(value: torch.Tensor) -> bool:
    """Return whether a tensor is contiguous, or channels-last at rank 4."""
    return value.is_contiguous() or (value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last))


def module_path(node: Node) -> str:
    """Return the path of the node's module in the model, ``features.3.conv``; empty where PyTorch does not know it."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path = str(list(stack.values())[-1][0])
    return path.removeprefix("L['self'].").removeprefix("L__self___")


def source_line(node: Node) -> str:
    """Return ``file.py:12`` of the model's own code that made the node; empty where PyTorch does not know it."""
    trace = node.meta.get("stack_trace") or ""
    lines = re.findall(r'File "([^"]+)", line (\d+)', trace)
    own = [line for line in lines if "/torch/" not in line[0] and not line[0].startswith("<")]
    file, number = own[-1] if own else ("", "")
    return f"{file.rsplit('/', 1)[-1]}:{number}" if file else ""


def model_name(node: Node) -> str:
    """Return the name of a node for people: its module's path, such as ``features.3.conv``.

    An operator that the outermost ``forward`` calls has no module; its name is the function with the line of the model's source, such as
    ``max_pool2d (net.py:28)``. A node's own name is returned where PyTorch knows neither, and for inputs. The name of a quantize or
    dequantize node is that of its operand.
    """
    if (is_quantize(node) or is_dequantize(node)) and isinstance(node.args[0], Node):
        return model_name(node.args[0])
    if INPUT_NAME in node.meta:
        return str(node.meta[INPUT_NAME])
    line = source_line(node)
    return module_path(node) or (f"{written(node) or base_name(node)} ({line})" if line else node.name)


class Constants:
    """The constant tensors behind a program's placeholders.

    While ExecuTorch partitions, parameters are FakeTensors; ``state_dict`` may give the real ones by name. Where only the
    shape is known, zeros of that shape stand in, which take no memory.
    """

    def __init__(self, program: ExportedProgram, state_dict: Mapping[str, torch.Tensor] | None = None) -> None:
        signature = program.graph_signature
        mutated = set(signature.buffers_to_mutate.values())
        self._names = {
            **signature.inputs_to_parameters,
            **{name: target for name, target in signature.inputs_to_buffers.items() if target not in mutated},
            **signature.inputs_to_lifted_tensor_constants,
        }
        self._states = {name: target for name, target in signature.inputs_to_buffers.items() if target in mutated}
        self._places: tuple[Mapping[str, torch.Tensor], ...] = (
            state_dict or {},
            program.state_dict,
            program.constants,
        )

    def __contains__(self, node: Node) -> bool:
        return node.op == "placeholder" and node.name in self._names

    def tensor(self, node: Node) -> torch.Tensor:
        """Return the tensor of a constant placeholder, or of a buffer that the program changes (possibly a FakeTensor)."""
        target = self._names.get(node.name) or self._states[node.name]
        for place in self._places:
            found = place.get(target)
            if isinstance(found, torch.Tensor) and tuple(found.shape) == tuple(node.meta["val"].shape):
                return found.detach()
        value = node.meta["val"]
        assert isinstance(value, torch.Tensor)
        return value

    def state(self, node: Node) -> np.ndarray | None:
        """Return the first value of a buffer that the program changes; None where only its shape is known."""
        tensor = self.tensor(node)
        return None if isinstance(tensor, FakeTensor) else tensor.cpu().numpy()

    def array(self, node: Node) -> np.ndarray:
        """Return the values of a constant placeholder, row by row in the edge program's order of dimensions."""
        tensor = self.tensor(node)
        if isinstance(tensor, FakeTensor):
            dtype = DTYPE_OF_TORCH[tensor.dtype].numpy
            return np.broadcast_to(np.zeros((), dtype), tuple(int(extent) for extent in tensor.shape))
        return np.ascontiguousarray(tensor.cpu().numpy()).reshape(tuple(tensor.shape))


def quant_params(node: Node, constants: Constants) -> QuantParams:
    """Return scale and zero point of a quantize or dequantize node. Raises ValueError where they are computed at run
    time."""
    if op_name(node).endswith("per_channel.default"):
        scales, zero_points, axis = node.args[1:4]
        values, zeros = _numbers(scales, constants), _numbers(zero_points, constants)
        assert isinstance(axis, int)
        if zeros.any():
            return QuantParams(tuple(values.tolist()), tuple(zeros.astype(int).tolist()), axis)
        return per_channel(values, axis)
    scale, zero_point = (_numbers(item, constants) for item in node.args[1:3])
    return per_tensor(float(scale.reshape(-1)[0]), int(zero_point.reshape(-1)[0]))


ACTIVATIONS = (DType.INT8, DType.INT16)
"""The types of quantized activations."""

_LEAST: Mapping[torch.dtype, tuple[int, ...]] = MappingProxyType({torch.int8: (-128,), torch.int16: (-32768, -32767)})
"""The lower ends that activations may be clamped to. int16 is symmetric in most quantizers, and kernels saturate one step below."""


def activation_params(node: Node, constants: Constants) -> QuantParams:
    """Return scale and zero point of a quantize or dequantize node of values that are computed. Rejects one that clamps
    them to less than the type holds, which no kernel does, and an int16 zero point other than 0."""
    dtype, (low, high) = quantized_dtype(node), _range(node)
    if dtype in _LEAST and (low not in _LEAST[dtype] or high != torch.iinfo(dtype).max):
        ends = torch.iinfo(dtype)
        raise Rejected(
            f"its values are quantized to [{low}, {high}]; kernels saturate at [{ends.min}, {ends.max}]",
            f"Quantize activations with quant_min={ends.min} and quant_max={ends.max}.",
        )
    quant = quant_params(node, constants)
    if dtype == torch.int16 and any(quant.zero_points):
        raise Rejected(
            f"its values are int16 with zero point {quant.zero_points[0]}; it must be 0",
            "Quantize int16 symmetrically.",
        )
    return quant


def stored_type(node: Node) -> DType:
    """Return the type of the values that a quantize or dequantize node is for."""
    return DTYPE_OF_TORCH[quantized_dtype(node)]


def quantized_dtype(node: Node) -> torch.dtype:
    """Return the integer type a quantize or dequantize node is for."""
    return next((item for item in reversed(node.args) if isinstance(item, torch.dtype)), torch.int8)


def _numbers(item: object, constants: Constants) -> np.ndarray:
    if isinstance(item, (int, float)):
        return np.asarray(item, np.float64)
    if isinstance(item, Node) and item in constants:
        if isinstance(constants.tensor(item), FakeTensor):
            return np.ones(tuple(item.meta["val"].shape)) * (item.meta["val"].is_floating_point())
        return constants.array(item).astype(np.float64)
    raise ValueError("its scale or zero point is computed at run time; static quantization is what there is")


def quantized(values: np.ndarray, node: Node, quant: QuantParams) -> np.ndarray:
    """Return what a quantize node makes of constant values: rounded half to even, as PyTorch rounds, and saturated."""
    low, high = _range(node)
    scales, zeros = np.asarray(quant.scales), np.asarray(quant.zero_points)
    if quant.axis is not None:
        extents = [1] * values.ndim
        extents[quant.axis] = -1
        scales, zeros = scales.reshape(extents), zeros.reshape(extents)
    # PyTorch multiplies by the reciprocal in float32.
    inverse = (1.0 / scales).astype(np.float32)
    steps = np.rint(values.astype(np.float32) * inverse) + zeros
    return np.clip(steps, low, high).astype(DTYPE_OF_TORCH[quantized_dtype(node)].numpy)


def _range(node: Node) -> tuple[int, int]:
    numbers = [item for item in node.args[3:] if isinstance(item, int) and not isinstance(item, bool)]
    low, high = numbers[-2:]
    return low, high


def arguments_of(node: Node) -> dict[str, Any]:
    """Return every argument of a call, with the schema's defaults for those not given."""
    overload = overload_of(node)
    assert overload is not None
    arguments = overload._schema.arguments
    given = {item.name: value for item, value in zip(arguments, node.args, strict=False)} | dict(node.kwargs)
    return {item.name: given.get(item.name, item.default_value) for item in arguments}


def pair(item: Any, absent: Any = None) -> tuple[int, int]:
    """Return (rows, columns) of an argument that is a number, one number in a list, or two; ``absent`` for an empty
    list."""
    if isinstance(item, int):
        return item, item
    if not item:
        return pair(absent)
    return (item[0], item[0]) if len(item) == 1 else (item[0], item[1])


def written(node: Node) -> str:
    """Return the function or method that the user, or the module the user wrote, called: ``silu`` of the sigmoid it was
    made of.

    torch.export notes it (``torch_fn``), and keeps it through decompositions; empty where it does not. A file may have anything in this
    note.
    """
    noted = node.meta.get("torch_fn")
    if not isinstance(noted, (tuple, list)) or len(noted) != 2 or not isinstance(noted[1], str):
        return ""
    kind, _, name = noted[1].partition(".")
    if kind == "OpOverload":
        name = name.rpartition(".")[0]
    is_property = name == "__get__"  # x.real
    return "" if "quantize_per" in name or is_property else name.strip("_")


def call_of(node: Node) -> str:
    """Return a name that all nodes made of one call of the user's have in common; empty where it is not known."""
    return str(node.meta["torch_fn"][0]) if written(node) else ""


def base_name(node: Node) -> str:
    """Return the operator without namespace and overload, and without what makes it another form of the same: ``view``
    of ``aten.view_copy.default``."""
    parts = op_name(node).split(".")
    name = parts[1] if len(parts) > 1 else parts[0]
    return name.strip("_").removesuffix("_copy")


def title(node: Node) -> str:
    """Return the operator as the user knows it: ``aten.relu``; ``silu (aten.sigmoid)`` where it is made from another
    one."""
    parts = op_name(node).split(".")
    operator = ".".join(parts[:2])
    said = written(node)
    return operator if not said or said == base_name(node) else f"{said} ({operator})"


def is_decomposed(node: Node) -> bool:
    """Return whether the node is a part of a decomposed call of the user's, as far as its names tell."""
    said, base = written(node), base_name(node)
    overload = overload_of(node)
    return bool(said) and overload is not None and said != base and said not in base and base not in said


SAME = frozenset(
    ("aten::alias", "aten::alias_copy", "aten::clone", "aten::contiguous", "aten::detach", "aten::detach_copy",
     "aten::lift_fresh_copy", "dim_order_ops::_clone_dim_order")
)  # fmt: skip
"""Operators whose result is their input."""

CASTS = frozenset(("aten::_to_copy", "aten::to", "dim_order_ops::_to_dim_order_copy"))
"""Operators that give the same numbers another type."""

ALIKE = frozenset(("aten::full_like", "aten::ones_like", "aten::zeros_like"))
"""Operators that look at their input's shape alone."""


UNTAGGED = frozenset(
    f"aten::{name}"
    for name in ("divide", "hardswish", "log_sigmoid", "masked_fill", "multiply", "rsub", "special_expit", "subtract",
                 "true_divide", "where")
)  # fmt: skip
"""Operators that are pointwise although PyTorch has not tagged them so."""


STEPPED = frozenset(
    f"aten::{name}"
    for name in (
        "ceil",
        "floor",
        "floor_divide",
        "fmod",
        "frac",
        "heaviside",
        "remainder",
        "round",
        "sgn",
        "sign",
        "trunc",
    )
)
"""Operators whose results jump."""


def jumps(node: Node) -> bool:
    """Return whether a node's result may jump from one value to the next: the lines of an int16 table can't follow."""
    overload, value = overload_of(node), node.meta.get("val")
    name = "" if overload is None else overload._schema.name
    return name in STEPPED or (isinstance(value, torch.Tensor) and value.dtype == torch.bool)


def is_pointwise_operator(overload: torch._ops.OpOverload) -> bool:
    """Return whether each element of an operator's result depends on the elements at its own place alone, always in the
    same way."""
    if overload._schema.is_mutable or torch.Tag.nondeterministic_seeded in overload.tags:
        return False
    return torch.Tag.pointwise in overload.tags or overload._schema.name in SAME | CASTS | ALIKE | UNTAGGED


def is_pointwise(node: Node) -> bool:
    """Return whether a node calls such an operator."""
    overload = overload_of(node)
    return overload is not None and isinstance(node.meta.get("val"), torch.Tensor) and is_pointwise_operator(overload)


def is_real(node: Node) -> bool:
    """Return whether a node's result may stand inside a function: float32, or the booleans of a comparison."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in (torch.float32, torch.bool)


@dataclass(frozen=True, slots=True)
class Region:
    """A function of one value as nodes: ``nodes`` in execution order compute from ``root`` alone, the last one its result.

    Nothing outside reads any of them but the last.
    """

    root: Node
    nodes: tuple[Node, ...]

    @property
    def end(self) -> Node:
        return self.nodes[-1]


def find_regions(
    nodes: Sequence[Node], is_number: Callable[[Node], bool], runs_inside: Callable[[Node], Node | None]
) -> list[Region]:
    """Return the functions of one value among ``nodes`` (in execution order), as large as they can be.

    is_number: whether a node is one number, known now. runs_inside: the operator before a node that can take it in; a node is
    part of a function rather than that where that operator is part of it too.
    """
    region_of: dict[Node, Region] = {}
    for node in nodes:
        if not is_pointwise(node) or not is_real(node):
            continue
        host = runs_inside(node)
        if host is not None and host not in region_of:
            continue
        region = _joined(node, [source for source in node.all_input_nodes if not is_number(source)], region_of)
        if region is not None:
            region_of |= dict.fromkeys(region.nodes, region)
    found = {id(region): region for region in region_of.values()}
    return [region for region in found.values() if region.end.meta["val"].dtype == torch.float32]


def _joined(node: Node, sources: list[Node], region_of: dict[Node, Region]) -> Region | None:
    """Return the function that ends in ``node``, of the nearest tensor that allows one, or None."""
    ways = [[source, *([region_of[source].root] if source in region_of else [])] for source in sources]
    if len(ways) == 1 and len(ways[0]) == 2 and len(sources[0].users) == 1:
        ways = [ways[0][1:]]
    for root in ways[0] if ways else ():
        if any(root not in way for way in ways) or not _keeps_shape(root, node):
            continue
        inside: dict[Node, None] = {}
        for source in sources:
            if source is not root:
                inside |= dict.fromkeys(region_of[source].nodes)
        if all(user is node or user in inside for inner in inside for user in inner.users):
            return Region(root, (*inside, node))
    return None


def _keeps_shape(root: Node, node: Node) -> bool:
    value = root.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32 and value.shape == node.meta["val"].shape


def evaluate(nodes: Sequence[Node], known: dict[Node, torch.Tensor]) -> torch.Tensor:
    """Return what ``nodes`` compute of the values known of their sources, as the last one's result.

    Their own shapes don't matter: all values of ``known`` are of one shape, or single numbers.
    """
    for node in nodes:
        overload = overload_of(node)
        assert overload is not None
        if overload._schema.name in SAME:
            known[node] = known[node.all_input_nodes[0]]
        elif overload._schema.name in CASTS:
            known[node] = known[node.all_input_nodes[0]].to(node.meta["val"].dtype)
        else:
            args, kwargs = (map_arg(item, known.__getitem__) for item in (node.args, node.kwargs))
            known[node] = overload(*args, **{key: value for key, value in kwargs.items() if key != "memory_format"})
    return known[nodes[-1]]
