# SPDX-License-Identifier: BSD-3-Clause
"""Read the facts of an exported program's nodes: operator names, quantization, constants, layouts, origins, reasons."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
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
"""The suggestion for an operator that would compute with integers or booleans."""

REWRITE = "Write it with operators that docs/supported-ops.md lists."


@dataclass(frozen=True, slots=True)
class Reject:
    """The reason of a CPU fallback and a suggestion.

    ``reason`` is the end of a sentence that begins with the node's name. ``hint`` is the suggestion. ``rule`` names the lowering rule or
    the stage that refused the node.
    """

    reason: str
    hint: str = ""
    rule: str = ""


class Rejected(Exception):
    """Raised inside a lowering rule to refuse the node. ``lower`` catches it and returns ``reject``."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reject = Reject(reason, hint)


KEPT_FLOAT = "kept_float"
"""Metadata key: the name of the user's call that keeps the node float, such as ``set_global``."""

LEFT_FLOAT = "left_float"
"""Metadata key: True on nodes that the quantizer examined and has no rule for."""

JOINS_OUTPUT = "joins_output"
"""Metadata key: True on nodes that join parts of a result of the model after the dequantize nodes of the parts."""

WHOLE_NUMBERS = "whole_numbers"
"""Metadata key: the least and the largest value of a float tensor that holds integers. int8 represents each of them exactly."""

VMAP = "torch._functorch.predispatch"
"""The module of the functions that torch.export leaves in a graph for ``torch.vmap``.

The functions change the state of the process. If an operator between them fails, every later operator of the process fails too.
"""

STAYS_WHOLE = "stays_whole"
"""Metadata key: the reason why a decomposable operator was not decomposed, and a suggestion."""

WRITTEN_AS = "written_as"
"""Metadata key: the operator whose decomposition has the node."""

INPUT_NAME = "input_name"
"""Metadata key on the inputs of a partition: the name that messages use for the node (``model_name``)."""

NOT_DELEGATED = "not_delegated"
"""Metadata key: the entry of ``operators_not_to_delegate`` that matched the node before decomposition."""


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
"""By rank, the permutation that moves the channels of a line [N, C, W] or an image [N, C, H, W] to the last axis."""

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
    """Return the overload that a node calls, directly or in the edge dialect's wrapper; None where a node calls no overload."""
    target = node.target if isinstance(node.target, torch._ops.OpOverload) else getattr(node.target, "_op", None)
    return target if isinstance(target, torch._ops.OpOverload) else None


def is_vmapped(node: Node) -> bool:
    """Return whether a node is a part of ``torch.vmap`` in a graph before decomposition."""
    return node.op == "call_function" and getattr(node.target, "__module__", "") == VMAP


def joins_output(node: Node) -> bool:
    """Return whether a node joins parts of a result of the model after the dequantize nodes of the parts."""
    return JOINS_OUTPUT in node.meta.get("custom", {})


def is_functional(node: Node) -> bool:
    """Return whether the node is an input, a result, or a call of an operator that changes nothing in place."""
    if node.op in ("placeholder", "output") or is_getitem(node):
        return True
    overload = overload_of(node)
    return overload is not None and not overload._schema.is_mutable


def op_name(node: Node) -> str:
    """Return the operator as ``namespace.name.overload``, the same for ATen and edge dialect. A call of another
    function has the function's name, such as ``getitem``; a node that is no call has ``""``."""
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
    """Return whether the node is a delegate call of an earlier partitioner, or the ``getitem`` of one of its results."""
    call = node.all_input_nodes[0] if is_getitem(node) else node
    return call.target is executorch_call_delegate


def is_getitem(node: Node) -> bool:
    return node.target is operator.getitem


EXACT = (torch.int32, torch.int64, torch.bool)
"""The types whose values programs compute and return unquantized: integers and booleans."""


def is_exact(node: Node) -> bool:
    """Return whether the node's values are integers or booleans that are no quantized reals."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in EXACT and not is_quantize(node)


NUMBERS = (torch.uint8, torch.int8, torch.int16)
"""The integer types that the NPU converts to float."""


def is_number(node: Node) -> bool:
    """Return whether the node's values are of ``NUMBERS`` and are no quantized reals: nothing quantizes or dequantizes them."""
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
    """Return whether a node's result depends on data: it is a number that only a run can tell, or a tensor with such
    an extent. An example is the result of ``nonzero``. torch.export has a symbol (``u0``) for such a number."""
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
    """Return whether a rank-4 tensor is channels-last in memory. The result is False for a tensor that is contiguous too."""
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor) or value.dim() != 4 or value.is_contiguous():
        return False
    return value.is_contiguous(memory_format=torch.channels_last)


def is_plain_layout(node: Node) -> bool:
    """Return whether a tensor is contiguous, or channels-last at rank 4, when ExecuTorch runs the program.

    Every computed tensor is: even a transposed one has a plain layout there, because views are copies in the Edge program, and the
    results of a delegate have the layout that the partition states (``pass_contiguous``). An input has the strides of its value.
    """
    value = node.meta["val"]
    return isinstance(value, torch.Tensor) and (node.op != "placeholder" or has_plain_strides(value))


def pass_contiguous(node: Node) -> None:
    """Make the fake value of a computed tensor contiguous if it is neither contiguous nor channels-last.

    ExecuTorch then passes the tensor contiguous. Inputs stay as they are.
    """
    value = node.meta["val"]
    if node.op != "placeholder" and isinstance(value, torch.Tensor) and not has_plain_strides(value):
        node.meta["val"] = value.contiguous()


def has_plain_strides(value: torch.Tensor) -> bool:
    """Return whether a tensor is contiguous, or channels-last at rank 4."""
    return value.is_contiguous() or (value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last))


def module_path(node: Node) -> str:
    """Return the path of the node's module in the model, such as ``features.3.conv``; empty where PyTorch noted none."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path = str(list(stack.values())[-1][0])
    return path.removeprefix("L['self'].").removeprefix("L__self___")


def source_line(node: Node) -> str:
    """Return the line of the model's own code that made the node, as ``file.py:12``; empty where PyTorch noted none."""
    trace = node.meta.get("stack_trace") or ""
    lines = re.findall(r'File "([^"]+)", line (\d+)', trace)
    own = [line for line in lines if "/torch/" not in line[0] and not line[0].startswith("<")]
    file, number = own[-1] if own else ("", "")
    return f"{file.rsplit('/', 1)[-1]}:{number}" if file else ""


def model_name(node: Node) -> str:
    """Return the name of a node in messages: the path of its module, such as ``features.3.conv``.

    An operator that the outermost ``forward`` calls has no module. Its name is the called function with the line of
    the model's source, such as ``max_pool2d (net.py:28)``. A quantize or dequantize node has the name of its operand,
    and an input of a partition has the name under ``INPUT_NAME``. Any other node without a module and a source line,
    such as an input, has its name in the graph.
    """
    if (is_quantize(node) or is_dequantize(node)) and isinstance(node.args[0], Node):
        return model_name(node.args[0])
    if INPUT_NAME in node.meta:
        return str(node.meta[INPUT_NAME])
    line = source_line(node)
    return module_path(node) or (f"{written(node) or base_name(node)} ({line})" if line else node.name)


class Constants:
    """The constant tensors of a program's placeholders: parameters, buffers that no run changes, and lifted constants.

    While ExecuTorch partitions, parameters are FakeTensors. ``state_dict`` may have the real tensors by name. ``array`` returns zeros
    that take no memory where only the shape of a constant is known.
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
        """Return the initial value of a buffer that the program changes; None where only its shape is known."""
        tensor = self.tensor(node)
        return None if isinstance(tensor, FakeTensor) else tensor.cpu().numpy()

    def array(self, node: Node) -> np.ndarray:
        """Return the values of a constant placeholder as a contiguous array with the dimensions of the edge program."""
        tensor = self.tensor(node)
        if isinstance(tensor, FakeTensor):
            dtype = DTYPE_OF_TORCH[tensor.dtype].numpy
            return np.broadcast_to(np.zeros((), dtype), tuple(int(extent) for extent in tensor.shape))
        return np.ascontiguousarray(tensor.cpu().numpy()).reshape(tuple(tensor.shape))


def quant_params(node: Node, constants: Constants) -> QuantParams:
    """Return scale and zero point of a quantize or dequantize node. Where only the shape of their constants is known,
    the scales are 1 and the zero points 0. Raise ValueError where a run computes them."""
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
"""The values of ``quant_min`` that activations may have. Most quantizers use -32767 for int16; kernels saturate at -32768."""


def activation_params(node: Node, constants: Constants) -> QuantParams:
    """Return scale and zero point of a quantize or dequantize node of an activation.

    Raise Rejected where the node clamps int8 or int16 values to a smaller range than that of the type, which no
    kernel does, and where an int16 zero point is not 0. A lower end of -32767 is allowed for int16. Raise ValueError
    where a run computes scale or zero point.
    """
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
    """Return the type of the quantized values of a quantize or dequantize node."""
    return DTYPE_OF_TORCH[quantized_dtype(node)]


def quantized_dtype(node: Node) -> torch.dtype:
    """Return the torch type of the quantized values of a quantize or dequantize node."""
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
    """Return constant values as a quantize node quantizes them: rounded half to even, as PyTorch rounds, and saturated."""
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
    """Return every argument of a call by name. An argument that the call leaves out has the default of the schema."""
    overload = overload_of(node)
    assert overload is not None
    arguments = overload._schema.arguments
    given = {item.name: value for item, value in zip(arguments, node.args, strict=False)} | dict(node.kwargs)
    return {item.name: given.get(item.name, item.default_value) for item in arguments}


def pair(item: Any, absent: Any = None) -> tuple[int, int]:
    """Return an argument such as a stride as (rows, columns).

    ``item`` is a number, or a list of one or two numbers. ``absent`` is used for an empty list and for None.
    """
    if isinstance(item, int):
        return item, item
    if not item:
        return pair(absent)
    return (item[0], item[0]) if len(item) == 1 else (item[0], item[1])


def written(node: Node) -> str:
    """Return the function or method that the model's code called, such as ``silu`` for the sigmoid of its decomposition.

    torch.export notes the call (``torch_fn``), and keeps the note through decompositions. The result is empty if there is no note, or if the note has another form, as in a file that another program wrote.
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
    """Return a name that the nodes of one call in the model's code have in common; empty where ``written`` is empty."""
    return str(node.meta["torch_fn"][0]) if written(node) else ""


def base_name(node: Node) -> str:
    """Return the operator without namespace, overload and the marks of its variants: ``view`` for ``aten.view_copy.default``."""
    parts = op_name(node).split(".")
    name = parts[1] if len(parts) > 1 else parts[0]
    return name.strip("_").removesuffix("_copy")


def title(node: Node) -> str:
    """Return the operator for messages: ``aten.relu``, or ``silu (aten.sigmoid)`` if the model's code called ``silu``."""
    parts = op_name(node).split(".")
    operator = ".".join(parts[:2])
    said = written(node)
    return operator if not said or said == base_name(node) else f"{said} ({operator})"


def is_decomposed(node: Node) -> bool:
    """Return whether the node is a part of a decomposed call: neither the operator's name nor the call's contains the other."""
    said, base = written(node), base_name(node)
    overload = overload_of(node)
    return bool(said) and overload is not None and said != base and said not in base and base not in said


SAME = frozenset(
    ("aten::alias", "aten::alias_copy", "aten::clone", "aten::contiguous", "aten::detach", "aten::detach_copy",
     "aten::lift_fresh_copy", "dim_order_ops::_clone_dim_order")
)  # fmt: skip
"""Operators whose result is their input."""

CASTS = frozenset(("aten::_to_copy", "aten::to", "dim_order_ops::_to_dim_order_copy"))
"""Operators that convert their input to another type."""

ALIKE = frozenset(("aten::full_like", "aten::ones_like", "aten::zeros_like"))
"""Operators whose result depends only on the shape of their input."""


UNTAGGED = frozenset(
    f"aten::{name}"
    for name in ("divide", "hardswish", "log_sigmoid", "masked_fill", "multiply", "rsub", "special_expit", "subtract",
                 "true_divide", "where")
)  # fmt: skip
"""Pointwise operators that PyTorch has not tagged as pointwise."""


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
"""Pointwise functions that are not continuous."""


def jumps(node: Node) -> bool:
    """Return whether a node computes a function that is not continuous.

    The linear interpolation in an int16 table can't represent such a function.
    """
    overload, value = overload_of(node), node.meta.get("val")
    name = "" if overload is None else overload._schema.name
    return name in STEPPED or (isinstance(value, torch.Tensor) and value.dtype == torch.bool)


def is_pointwise_operator(overload: torch._ops.OpOverload) -> bool:
    """Return whether an operator is pointwise: each element of the result depends only on the operands' elements at its place.

    The result is False for random operators and for those that change an operand in place.
    """
    if overload._schema.is_mutable or torch.Tag.nondeterministic_seeded in overload.tags:
        return False
    return torch.Tag.pointwise in overload.tags or overload._schema.name in SAME | CASTS | ALIKE | UNTAGGED


def is_pointwise(node: Node) -> bool:
    """Return whether a node calls a pointwise operator (``is_pointwise_operator``) whose result is a tensor."""
    overload = overload_of(node)
    return overload is not None and isinstance(node.meta.get("val"), torch.Tensor) and is_pointwise_operator(overload)


def is_real(node: Node) -> bool:
    """Return whether a node's result has a type that a pointwise function may have inside: float32, or boolean."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in (torch.float32, torch.bool)


@dataclass(frozen=True, slots=True)
class Region:
    """A pointwise function of the result of ``root``.

    ``nodes`` compute the function in execution order, from only ``root`` and constants. The last node has the result. The other nodes
    have no readers outside of ``nodes``.
    """

    root: Node
    nodes: tuple[Node, ...]

    @property
    def end(self) -> Node:
        return self.nodes[-1]


def find_regions(
    nodes: Sequence[Node], is_number: Callable[[Node], bool], runs_inside: Callable[[Node], Node | None]
) -> list[Region]:
    """Return the largest pointwise functions among ``nodes`` (in execution order) whose result is float32.

    ``is_number`` returns whether a node is a constant number. ``runs_inside`` returns the operator into which a node can be fused; None
    without one. A node that can be fused is part of a function only if the operator that it can be fused into is part of one.
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
    """Return the region (a pointwise function) that ends in ``node``, or None if there is none.

    The region begins at one root for all ``sources``: each source is this root, or ends a region with this root. The
    root is float32 and has the result's shape. Nodes between the root and ``node`` have no readers outside of the
    region.

    A root that is itself a source is tried first. It is not tried if it is the only source, ends a region and has no
    reader but ``node``: ``node`` can then only extend that region.
    """
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
    """Execute ``nodes`` in order on the values in ``known``, and return the result of the last node.

    ``known`` has a value for each node that ``nodes`` read from outside. Each result is added to ``known``. The
    values may have another shape than in the graph: it is the same for all of them, except for single numbers.
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


_aten = torch.ops.aten


class Change(IntEnum):
    """The most that an operator changes. Each kind may change what the kinds before it may."""

    SAME = 0
    """The result is the operand."""
    VIEW = 1
    """The result has the elements of the operand in the same order in another shape."""
    PERMUTED = 2
    """The result has each element of the operand once."""
    TAKEN = 3
    """Each element of the result is an element of the operand. An element may be left out or repeated."""


MOVES: Mapping[object, Change] = MappingProxyType(
    {
        **{getattr(_aten, name).default: Change.SAME for name in ("alias", "clone", "contiguous", "detach")},
        _aten.flatten.using_ints: Change.VIEW,
        _aten.reshape.default: Change.VIEW,
        _aten.squeeze.default: Change.VIEW,
        _aten.squeeze.dim: Change.VIEW,
        _aten.squeeze.dims: Change.VIEW,
        _aten.unflatten.int: Change.VIEW,
        _aten.unsqueeze.default: Change.VIEW,
        _aten.view.default: Change.VIEW,
        _aten.flip.default: Change.PERMUTED,
        _aten.permute.default: Change.PERMUTED,
        _aten.t.default: Change.PERMUTED,
        _aten.transpose.int: Change.PERMUTED,
        _aten.expand.default: Change.TAKEN,
        _aten.gather.default: Change.TAKEN,
        _aten.index.Tensor: Change.TAKEN,
        _aten.index_select.default: Change.TAKEN,
        _aten.repeat.default: Change.TAKEN,
        _aten.select.int: Change.TAKEN,
        _aten.slice.Tensor: Change.TAKEN,
    }
)
"""The operators with their kinds.

A result that depends only on the values, such as their bounds, is the same before and after most moves. A sum or a mean is the same
before and after views and permutations only: a move of kind ``TAKEN`` changes how often each element is added.
"""


def is_move(node: Node, most: Change = Change.TAKEN) -> bool:
    """Return whether a node calls an operator of ``MOVES`` whose kind is at most ``most``."""
    return node.op == "call_function" and MOVES.get(node.target, most + 1) <= most
