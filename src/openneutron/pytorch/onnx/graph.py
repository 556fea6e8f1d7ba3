# SPDX-License-Identifier: BSD-3-Clause
"""An ONNX graph as a module of PyTorch that torch.export can record.

The graph is gone through once with the shapes of its inputs (``Importer``). What depends on constants and shapes alone is computed then, as
are branches and loops whose conditions are known. What remains is a list of steps, each a converter with its node.
"""

from __future__ import annotations

import collections
import keyword
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import Parameter, Signature
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from openneutron.errors import InvalidModelError
from openneutron.pytorch.onnx.idioms import idiom_of, plain_indices
from openneutron.pytorch.onnx.operators import OPERATORS, NodeView, Refused
from openneutron.pytorch.onnx.operators.elementwise import TYPES
from openneutron.pytorch.onnx.operators.table import OWN, Converter, cast

MOST_ITERATIONS = 1024
"""The most iterations of a loop whose body is written once for each."""

MOST_BODIES = 1 << 12
"""The most iterations of all loops, and branches, of a graph together: loops in loops multiply."""

MOST_NODES = 1 << 17
"""The most nodes of a graph whose functions are written out."""

MOST_CONSTANT_BYTES = 1 << 27
"""The most bytes of constants that are computed when a file is read, beside four times those in the file."""

_OWN = ("", "ai.onnx")

_ARRAYS = {
    np.dtype(np.float16): np.float32, np.dtype(np.float64): np.float32, np.dtype(np.uint32): np.int64, np.dtype(np.uint64): np.int64,
}  # fmt: skip
"""The types as which arrays are read whose own type PyTorch's operators lack, or the NPU does not compute."""


def array_of(tensor: onnx.TensorProto) -> np.ndarray[Any, Any]:
    """Return a tensor's values in a type that the importer supports: floats of other sizes become float32, uint32 and
    uint64 become int64, and int4 and uint4 become int8 and uint8. Other types stay."""
    array = numpy_helper.to_array(tensor)
    if array.dtype.name.startswith(("bfloat16", "float8", "float4")):
        return array.astype(np.float32)
    if array.dtype.name in ("int4", "uint4"):
        return array.astype(np.int8 if array.dtype.name == "int4" else np.uint8)
    return array.astype(_ARRAYS.get(array.dtype, array.dtype), copy=False)


def dense(tensor: onnx.SparseTensorProto) -> np.ndarray[Any, Any]:
    """Return a sparse tensor as a dense array. The sparse tensor's indices are either positions in the flattened
    tensor, or rows of one index for each axis.

    Raises Refused if the dense array has more than ``MOST_CONSTANT_BYTES``. Raises IndexError or ValueError for
    indices outside of the tensor.
    """
    values, places = array_of(tensor.values), numpy_helper.to_array(tensor.indices)
    if (size := math.prod(tensor.dims) * values.itemsize) > MOST_CONSTANT_BYTES:
        raise Refused(
            f"has the sparse tensor '{tensor.values.name}' of {size} bytes; at most {MOST_CONSTANT_BYTES} are read"
        )
    made = np.zeros(tuple(tensor.dims), values.dtype)
    if places.ndim == 2:
        made[tuple(places.T)] = values
    else:
        made.reshape(-1)[places] = values
    return made


@dataclass(frozen=True, slots=True)
class Step:
    """A node that is computed when the model runs.

    Attributes:
        node: The node.
        converter: The converter of the node's operator, from the table ``OPERATORS``.
        module: The name of the PyTorch module that computes the step. It is the node's own name if the node has one.
        inputs: The names of the inputs; "" for one that is left out.
        outputs: The names of the outputs.
    """

    node: NodeView
    converter: Converter
    module: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with each operator that has no converter replaced by its definition. The definition is a
    function in the file, or the function by which ONNX defines the operator. A node without a definition stays.

    Raises Refused if functions of the file call themselves or expand to too many nodes.
    """
    _check_functions(model)
    for _ in range(16):  # a definition may use operators that have definitions themselves
        own = [(function.domain, function.name) for function in model.functions]
        missing = {
            (node.domain, node.op_type)
            for node in _all_nodes(model.graph.node)
            if (_domain(node.domain), node.op_type) not in OPERATORS and node.op_type not in _CONTROL
        }
        wanted = [name for name in missing if name in own or _has_definition(name, model)]
        if not wanted:
            return model
        given = onnx.ModelProto()
        given.CopyFrom(model)
        for node in _all_nodes(given.graph.node):
            if (node.domain, node.op_type) in wanted:
                _give_defaults(node, given)
        try:
            made = onnx.inliner.inline_selected_functions(given, wanted, inline_schema_functions=True)
        except RuntimeError:  # a definition that needs the type of an input that is left out
            return model
        if made.SerializeToString() == model.SerializeToString():
            return model
        model = made
    return model


def _check_functions(model: onnx.ModelProto) -> None:
    """Raise Refused for functions of the file that call themselves, or that have more than ``MOST_NODES`` nodes when they are written out."""
    bodies = {(_domain(function.domain), function.name): function.node for function in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size_of(nodes: Iterable[onnx.NodeProto], callers: tuple[tuple[str, str], ...]) -> int:
        total = 0
        for node in _all_nodes(nodes):
            name = _domain(node.domain), node.op_type
            if name in callers:
                raise Refused(f"has a function '{node.op_type}' that calls itself. The file is damaged")
            if name in bodies and name not in sizes:
                sizes[name] = size_of(bodies[name], (*callers, name))
            total += sizes.get(name, 1)
        if total > MOST_NODES:
            raise Refused(f"has functions that become {total} nodes; at most {MOST_NODES} are read")
        return total

    size_of(model.graph.node, ())


def _give_defaults(node: onnx.NodeProto, model: onnx.ModelProto) -> None:
    """Add to a node the attributes that it leaves at their defaults, if ONNX defines its operator by a function. The
    inliner does not fill in these defaults."""
    if not _has_definition((node.domain, node.op_type), model):
        return
    schema = onnx.defs.get_schema(node.op_type, _version(node.domain, model), _domain(node.domain))
    there = {attribute.name for attribute in node.attribute}
    for name, attribute in schema.attributes.items():
        if name not in there and attribute.default_value.name:
            node.attribute.append(attribute.default_value)


def _domain(domain: str) -> str:
    return "" if domain in _OWN else domain


def _version(domain: str, model: onnx.ModelProto) -> int:
    return next((item.version for item in model.opset_import if _domain(item.domain) == _domain(domain)), 1)


def _has_definition(name: tuple[str, str], model: onnx.ModelProto) -> bool:
    try:
        schema = onnx.defs.get_schema(name[1], _version(name[0], model), _domain(name[0]))
    except (onnx.defs.SchemaError, TypeError):  # TypeError: a version of more than 32 bits
        return False
    return any(getattr(schema, name) for name in ("has_function", "has_context_dependent_function"))


def _all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterable[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _all_nodes(attribute.g.node)


QUANTIZING = {
    "QuantizeLinear": 1, "QLinearConv": 6, "QLinearMatMul": 6, "QLinearAdd": 6, "QLinearMul": 6, "QGemm": 7, "QLinearConcat": 0,
    **dict.fromkeys(("QLinearSigmoid", "QLinearLeakyRelu", "QLinearAveragePool", "QLinearGlobalAveragePool"), 3),
    **dict.fromkeys(("QLinearReduceMean", "QLinearSoftmax"), 3),
}  # fmt: skip
"""The place of the result's scale among the inputs of each operator whose result is quantized; the zero point is next to it."""

MOVES = (
    "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Split", "Gather", "Expand", "MaxPool", "DepthToSpace",
    "SpaceToDepth", "Identity", "Tile",
)  # fmt: skip
"""The operators whose results are elements of their first input, whatever the elements mean."""

REAL = (
    "LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization", "BatchNormalization", "LSTM", "GRU", "RNN",
)  # fmt: skip
"""The operators that take their parameters as real values."""

_CONTROL = ("If", "Loop", "Scan", "Shape", "Size", "DynamicQuantizeLinear", "CastLike")
"""The operators that the importer computes itself."""


@dataclass(slots=True)
class Importer:
    """The importer of a graph for one set of input shapes. It computes what is constant, and collects the other nodes as steps.

    Attributes:
        name: The model's name in messages.
        versions: The version of the operator set of each domain.
        constants: The values that are known, by name.
        shapes: The values that depend on inputs, by name, as fake tensors that have a shape and a type but no data.
    """

    name: str
    versions: Mapping[str, int]
    constants: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict, repr=False)
    shapes: dict[str, Any] = field(default_factory=dict, repr=False)
    steps: list[Step] = field(default_factory=list, repr=False)
    _mode: FakeTensorMode = field(default_factory=lambda: FakeTensorMode(allow_non_fake_inputs=True), repr=False)
    _modules: set[str] = field(default_factory=set, repr=False)
    _makers: dict[str, Step] = field(default_factory=dict, repr=False)
    _readers: dict[str, list[str]] = field(default_factory=lambda: collections.defaultdict(list), repr=False)
    _derived: set[str] = field(default_factory=set, repr=False)
    _quantization: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    _iterations: int = 0
    _given_bytes: int = 0
    _constant_bytes: int = 0

    def add_output(self, name: str) -> None:
        """Record that the graph returns a value, as a reader of the value. This comes before ``run``, which looks at
        the readers."""
        self._readers[name].append("")

    def add_input(self, name: str, example: Tensor) -> None:
        """Enter an input of the graph."""
        self.shapes[name] = self._mode.from_tensor(example)

    def run(self, nodes: Sequence[onnx.NodeProto], scope: Mapping[str, str]) -> dict[str, str]:
        """Import the nodes in order. Return ``scope`` with the names of their outputs added.

        ``scope`` maps a value's name in the file to its name in the importer. It differs in loops, where each
        iteration has names of its own.

        Raises InvalidModelError for a node that can't be used.
        """
        names = dict(scope)
        suffix = f"@{self._iterations}" if scope else ""
        for proto in _all_nodes(nodes):
            for name in proto.input:
                self._readers[name].append(proto.op_type)
        for proto in nodes:
            inputs = tuple(names.get(name, name) for name in proto.input)
            outputs = tuple(f"{name}{suffix}" if name else "" for name in proto.output)
            names |= {name: new for name, new in zip(proto.output, outputs, strict=True) if name}
            self._node(proto, inputs, outputs, names)
        return names

    def _node(
        self, proto: onnx.NodeProto, inputs: tuple[str, ...], outputs: tuple[str, ...], names: dict[str, str]
    ) -> None:
        words = f"'{self.name}': node {_spoken(proto)}"
        for name in inputs:
            if name and name not in self.constants and name not in self.shapes:
                raise InvalidModelError(f"{words} reads '{name}', which no earlier node computes. The file is damaged.")
        if twice := [name for name in outputs if name and (name in self.constants or name in self.shapes)]:
            raise InvalidModelError(f"{words} computes '{twice[0]}', which the graph has already. The file is damaged.")
        try:
            if proto.op_type in _CONTROL and _domain(proto.domain) == "":
                getattr(self, f"_{proto.op_type.lower()}_node")(proto, inputs, outputs, names)
                return
            domain = _domain(proto.domain)
            row = OPERATORS.get((domain, proto.op_type))
            if row is None:
                raise Refused(_absent(domain, proto.op_type))
            node = NodeView(proto.op_type, self.versions.get(domain, 1), _attributes(proto), outputs)
            self._step(node, row, proto, inputs, outputs)
        except InvalidModelError:  # of a node in the body of this one
            raise
        except Refused as reason:
            raise InvalidModelError(f"{words} {reason}.") from reason
        except (
            LookupError,
            RuntimeError,
            ValueError,
            TypeError,
            AttributeError,
            ArithmeticError,
            AssertionError,
        ) as error:
            first = str(error).strip().partition("\n")[0].rstrip(".")
            raise InvalidModelError(
                f"{words} does not fit its inputs {self._spoken_inputs(inputs)}: {first or type(error).__name__}. Check the file with "
                "onnx.checker.check_model(path, full_check=True)."
            ) from error

    def _step(
        self, node: NodeView, row: Converter, proto: onnx.NodeProto, inputs: tuple[str, ...], outputs: tuple[str, ...]
    ) -> None:
        if node.operator in MOVES and inputs[0] in self._quantization:
            self._moved(node, row, proto, inputs, outputs)
            return
        inputs = self._with_real_numbers(node, inputs)
        is_known = all(not name or name in self.constants for name in inputs)
        if is_known and row.folds:
            with self._mode:
                sizes = [
                    value.numel() * value.element_size()
                    for value in _as_tuple(row.function(node, *self._arguments(row, inputs, self._shape)))
                ]
            self._take(sum(sizes))
            values = _as_tuple(row.function(node, *self._arguments(row, inputs, self._known)))
            for name, value in zip(outputs, values, strict=False):
                if name:
                    self.constants[name] = value.detach().numpy()
            return
        if node.operator == "Where" and self._is_guard_against_nan(inputs):
            self._alias(outputs[0], inputs[2])
            return
        if node.operator == "Mul" and (factor := self._factor_of_one(inputs)) is not None:
            self._alias(outputs[0], factor)
            return
        if node.operator == "Concat" and not all(
            parts := [self._extents(name)[node.get("axis", 1)] for name in inputs]
        ):
            inputs = tuple(name for name, extent in zip(inputs, parts, strict=True) if extent) or inputs[:1]
            if len(inputs) == 1:
                self._alias(outputs[0], inputs[0])
                return
        if node.operator == "Gather" and inputs[1] in self.shapes:
            inputs = inputs[0], plain_indices(self, inputs[1], self._extents(inputs[0])[node.get("axis", 0)])
        if (idiom := idiom_of(self, node, inputs)) is not None:
            node = replace(node, operator=idiom.operator, attributes=idiom.attributes)
            row, inputs = OPERATORS[OWN, idiom.operator], idiom.inputs
        arguments = self._arguments(row, inputs, self._shape)
        with self._mode:
            values = _as_tuple(row.function(node, *arguments))
        self.shapes |= {name: value for name, value in zip(outputs, values, strict=False) if name}
        self.steps.append(Step(node, row, self._module(proto), inputs, outputs))
        self._makers |= dict.fromkeys(filter(None, outputs), self.steps[-1])
        if all(not name or name in self.constants or name in self._derived for name in inputs):
            self._derived.update(outputs)
        if (place := QUANTIZING.get(node.operator)) is not None and place < len(inputs):
            self._quantization[outputs[0]] = inputs[place : place + 2]

    def _with_real_numbers(self, node: NodeView, inputs: tuple[str, ...]) -> tuple[str, ...]:
        """Return the inputs of a node. In an operator of ``REAL``, such as LSTM, each parameter that is computed from constants alone,
        such as dequantized weights, is replaced by a new constant with the computed values. The first input is no parameter. The new
        constants are entered in ``constants``."""
        made = list(inputs)
        for place in range(1, len(inputs)) if node.operator in REAL else ():
            if inputs[place] in self._derived:
                made[place] = f"{inputs[place]}@real"
                steps = self._behind(inputs[place])
                self.constants[made[place]] = self.computed(steps, {})[inputs[place]].numpy()
        return tuple(made)

    def _behind(self, name: str) -> list[Step]:
        """Return the steps that make a value of constants, in their order."""
        wanted, steps = {name}, []
        for step in reversed(self.steps):
            if wanted.intersection(step.outputs):
                steps.append(step)
                wanted.update(step.inputs)
        return steps[::-1]

    def _moved(
        self, node: NodeView, row: Converter, proto: onnx.NodeProto, inputs: tuple[str, ...], outputs: tuple[str, ...]
    ) -> None:
        """Enter an operator that moves quantized values as one of real values between both conversions, as quantized models have it."""
        held = self._quantization[inputs[0]]
        self.enter("DequantizeLinear", {}, (inputs[0], *held), f"{outputs[0]}@real")
        between = tuple(name and f"{name}@moved" for name in outputs)
        self._step(replace(node, names=between), row, proto, (f"{outputs[0]}@real", *inputs[1:]), between)
        for name in filter(None, outputs):
            self.enter("QuantizeLinear", {}, (f"{name}@moved", *held), name)

    def maker(self, name: str) -> Step | None:
        """Return the step that computes a value; None for inputs and constants."""
        return self._makers.get(name)

    def readers(self, name: str) -> list[str]:
        """Return the operators of the nodes that read a value; "" stands for an output of the graph."""
        return self._readers[name]

    def computed(self, steps: Iterable[Step], values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the results of steps by name. ``values`` has those of the inputs that are no constants."""
        held = dict(values)

        def value(name: str) -> Any:
            return held[name] if name in held else self._known(name)

        for step in steps:
            results = _as_tuple(
                step.converter.function(step.node, *self._arguments(step.converter, step.inputs, value))
            )
            held.update(zip(step.outputs, results, strict=False))
        return held

    def _is_guard_against_nan(self, inputs: tuple[str, ...]) -> bool:
        """Return whether the inputs of a Where are ``(IsNaN(x), y, x)``, so that the result is ``x`` wherever ``x``
        is a number. Exporters write it behind the softmax of attention, for rows without a key.

        The node can be left out: int8 and int16 hold no NaN. A result that stays float keeps its NaN.
        """
        made = self.maker(inputs[0])
        return made is not None and made.node.operator == "IsNaN" and made.inputs[0] == inputs[2]

    def _factor_of_one(self, inputs: tuple[str, ...]) -> str | None:
        """Return ``x`` if the inputs are ``x`` and a constant of ones, and their product has the shape of ``x``. Otherwise return None.

        Exporters write such products for masks that mask nothing.
        """
        for ones, other in (inputs, inputs[::-1]):
            known = self.constants.get(ones)
            if known is None or other not in self.shapes or not known.size or (known != 1).any():
                continue
            shape = tuple(self.shapes[other].shape)
            if len(known.shape) <= len(shape) and np.broadcast_shapes(known.shape, shape) == shape:
                return other
        return None

    def _arguments(self, row: Converter, inputs: Sequence[str], tensor: Callable[[str], Any]) -> list[Any]:
        made: list[Any] = []
        for place, name in enumerate(inputs):
            if not name:
                made.append(None)
            elif place in row.structure and name not in self.constants:
                raise Refused(f"has an input {place} that is computed from data ('{name}'). It must be a constant")
            elif name in self.constants and place in row.structure | row.constants:
                made.append(self.constants[name])
            else:
                made.append(tensor(name))
        return made

    def _known(self, name: str) -> Tensor:
        return torch.from_numpy(np.array(self.constants[name]))

    def _shape(self, name: str) -> Any:
        return self.shapes[name] if name in self.shapes else self._mode.from_tensor(self._known(name))

    def _take(self, size: int) -> None:
        """Add ``size`` to the bytes of computed constants, before these constants are computed. Raises Refused if the total exceeds
        MOST_CONSTANT_BYTES + 4 * (bytes of the file's constants)."""
        self._constant_bytes += size
        most = MOST_CONSTANT_BYTES + 4 * self._given_bytes
        if self._constant_bytes > most:
            raise Refused(f"makes {size} bytes of constants; all computed constants have at most {most}")

    def add_constant(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Enter a constant of the graph."""
        self.constants[name] = value
        self._given_bytes += value.nbytes

    def _module(self, proto: onnx.NodeProto) -> str:
        """Return a module's name for a node, which is used once."""
        base = re.sub(r"[^\w/]", "_", (proto.name or f"{proto.op_type}_{proto.output[0]}").strip("/")) or proto.op_type
        name, number = base, 1
        while name in self._modules:
            number += 1
            name = f"{base}_{number}"
        self._modules.add(name)
        return name

    def _spoken_inputs(self, inputs: Sequence[str]) -> str:
        known = [self.constants[name] if name in self.constants else self.shapes.get(name) for name in inputs if name]
        return ", ".join("x".join(map(str, getattr(value, "shape", ()))) or "()" for value in known) or "(none)"

    # -- nodes whose values are known from shapes, and control flow -----------------------------------------------------

    def _extents(self, name: str) -> list[int]:
        value = self.constants[name] if name in self.constants else self.shapes[name]
        return [int(size) for size in value.shape]

    def _shape_node(
        self, proto: onnx.NodeProto, inputs: tuple[str, ...], outputs: tuple[str, ...], names: dict[str, str]
    ) -> None:
        given = _attributes(proto)
        self.constants[outputs[0]] = np.array(
            self._extents(inputs[0])[slice(given.get("start", 0), given.get("end"))], np.int64
        )

    def _dynamicquantizelinear_node(
        self, proto: onnx.NodeProto, inputs: tuple[str, ...], outputs: tuple[str, ...], names: dict[str, str]
    ) -> None:
        """Replace a dynamic quantization by its float input, with the scale 1 and the zero point 0. Integer products of the result thus
        become float products.

        Raises Refused if a node other than MatMulInteger, ConvInteger or DequantizeLinear reads the integers, or if a result is an output
        of the graph.
        """
        readers = [operator for name in proto.output for operator in self.readers(name)]
        if "" in readers or not set(self.readers(proto.output[0])) <= {
            "MatMulInteger",
            "ConvInteger",
            "DequantizeLinear",
        }:
            raise Refused(
                "gives integers with a scale that is computed from data. Quantize the float model with fixed scales, as onnxruntime's "
                "quantize_static does, or compile the float model"
            )
        self._alias(outputs[0], inputs[0])
        self.constants |= {outputs[1]: np.array(1, np.float32), outputs[2]: np.array(0, np.uint8)}

    def _castlike_node(
        self, proto: onnx.NodeProto, inputs: tuple[str, ...], outputs: tuple[str, ...], names: dict[str, str]
    ) -> None:
        """Convert to the type of another value, which is known before the value is."""
        like = self._known(inputs[1]) if inputs[1] in self.constants else self.shapes[inputs[1]]
        if inputs[0] in self.constants:
            self.constants[outputs[0]] = cast(self._known(inputs[0]), like.dtype).numpy()
        elif self.shapes[inputs[0]].dtype == like.dtype:
            self._alias(outputs[0], inputs[0])
        else:
            number = next(number for number, kind in TYPES.items() if kind == like.dtype)
            self.enter("Cast", {"to": number}, inputs[:1], outputs[0])

    def _size_node(
        self, proto: onnx.NodeProto, inputs: tuple[str, ...], outputs: tuple[str, ...], names: dict[str, str]
    ) -> None:
        self.constants[outputs[0]] = np.array(np.prod(self._extents(inputs[0]), dtype=np.int64))

    def _known_value(self, name: str, what: str) -> Any:
        if name not in self.constants:
            raise Refused(f"has {what} that is computed from data")
        return self.constants[name].reshape(())

    def _if_node(
        self, proto: onnx.NodeProto, inputs: tuple[str, ...], outputs: tuple[str, ...], names: dict[str, str]
    ) -> None:
        chosen = "then_branch" if self._known_value(inputs[0], "a condition") else "else_branch"
        body = _attributes(proto)[chosen]
        made = self._body(body, names, {})
        for output, new in zip(body.output, outputs, strict=True):
            self._alias(new, made.get(output.name, output.name))

    def _loop_node(
        self, proto: onnx.NodeProto, inputs: tuple[str, ...], outputs: tuple[str, ...], names: dict[str, str]
    ) -> None:
        body = _attributes(proto)["body"]
        most = int(self._known_value(inputs[0], "a number of iterations")) if inputs[0] else MOST_ITERATIONS + 1
        goes_on = bool(self._known_value(inputs[1], "a condition")) if len(inputs) > 1 and inputs[1] else True
        carried, count = list(inputs[2:]), len(inputs) - 2
        scans: list[list[str]] = [[] for _ in body.output[1 + count :]]
        place = 0
        while goes_on and place < most:
            if place >= MOST_ITERATIONS:
                raise Refused(f"has more than {MOST_ITERATIONS} iterations, or a number that is computed from data")
            self._iterations += 1
            first, condition = f"iteration@{self._iterations}", f"condition@{self._iterations}"
            self.constants |= {first: np.array(place, np.int64), condition: np.array(True)}
            given = dict(zip([item.name for item in body.input], [first, condition, *carried], strict=True))
            made = self._body(body, names, given)
            results = [made.get(item.name, item.name) for item in body.output]
            goes_on = bool(self._known_value(results[0], "a condition"))
            carried = results[1 : 1 + count]
            for held, value in zip(scans, results[1 + count :], strict=True):
                held.append(value)
            place += 1
        for new, value in zip(outputs, carried, strict=False):
            self._alias(new, value)
        self._stack(proto, outputs[count:], scans, [0] * len(scans))

    def _scan_node(
        self, proto: onnx.NodeProto, inputs: tuple[str, ...], outputs: tuple[str, ...], names: dict[str, str]
    ) -> None:
        given = _attributes(proto)
        body, scanned = given["body"], given["num_scan_inputs"]
        if self.versions.get("", 1) < 9:
            raise Refused("is of a version before 9")
        states, sources = list(inputs[: len(inputs) - scanned]), inputs[len(inputs) - scanned :]
        axes = list(given.get("scan_input_axes", [0] * scanned))
        back = list(given.get("scan_input_directions", [0] * scanned))
        length = self._extents(sources[0])[axes[0]]
        if length > MOST_ITERATIONS:
            raise Refused(f"has {length} iterations; at most {MOST_ITERATIONS} are allowed")
        count = len(body.output) - len(states)
        scans: list[list[str]] = [[] for _ in range(count)]
        for place in range(length):
            self._iterations += 1
            rows = []
            for number, (source, axis, reverse) in enumerate(zip(sources, axes, back, strict=True)):
                at, row = f"place@{self._iterations}.{number}", f"row@{self._iterations}.{number}"
                self.constants[at] = np.array(length - 1 - place if reverse else place, np.int64)
                self.enter("Gather", {"axis": axis}, (source, at), row)
                rows.append(row)
            made = self._body(body, names, dict(zip([item.name for item in body.input], [*states, *rows], strict=True)))
            results = [made.get(item.name, item.name) for item in body.output]
            states = results[: len(states)]
            for held, value in zip(scans, results[len(states) :], strict=True):
                held.append(value)
        for new, value in zip(outputs, states, strict=False):
            self._alias(new, value)
        ends = list(given.get("scan_output_directions", [0] * count))
        scans = [held[::-1] if reverse else held for held, reverse in zip(scans, ends, strict=True)]
        self._stack(proto, outputs[len(states) :], scans, list(given.get("scan_output_axes", [0] * count)))

    def _body(self, body: onnx.GraphProto, names: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
        self._iterations += 1
        if self._iterations > MOST_BODIES:
            raise Refused(f"is in loops of more than {MOST_BODIES} iterations together")
        local = {**names, **given}
        for tensor in body.initializer:
            new = f"{tensor.name}@{self._iterations}"
            self.constants[new] = array_of(tensor)
            local[tensor.name] = new
        return self.run(body.node, {**local, "": ""})

    def _stack(
        self, proto: onnx.NodeProto, outputs: Sequence[str], scans: Sequence[Sequence[str]], axes: Sequence[int]
    ) -> None:
        for new, held, axis in zip(outputs, scans, axes, strict=False):
            if not new:
                continue
            if not held:
                raise Refused("has no iteration, and an output of one element for each")
            places = []
            for number, value in enumerate(held):
                at, row = f"axis@{new}.{number}", f"part@{new}.{number}"
                self.constants[at] = np.array([axis], np.int64)
                self.enter("Unsqueeze", {"axes": [axis]}, (value,), row)
                places.append(row)
            self.enter("Concat", {"axis": axis}, tuple(places), new)

    def enter(self, operator: str, attributes: Mapping[str, Any], inputs: tuple[str, ...], output: str) -> None:
        """Enter a node that the graph does not have itself."""
        row = OPERATORS["", operator]
        node = NodeView(operator, self.versions.get("", 1), attributes, (output,))
        self._step(node, row, onnx.NodeProto(op_type=operator, output=[output]), inputs, (output,))

    def _alias(self, new: str, value: str) -> None:
        if not new:
            return
        if value in self.constants:
            self.constants[new] = self.constants[value]
        else:
            self.enter("Identity", {}, (value,), new)


_ADVICE = {
    **dict.fromkeys(
        ("RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Multinomial", "Bernoulli"),
        "makes random values, which a compiled program has not. Export the model in inference mode, or make the values an input",
    ),
    **dict.fromkeys(
        ("NonZero", "Unique", "NonMaxSuppression"),
        "has a result whose shape depends on data. End the model before it, and compute the rest in the application",
    ),
    **dict.fromkeys(("Optional", "OptionalGetElement", "OptionalHasElement"), "has an optional value. Export the model with tensors alone"),
    **dict.fromkeys(
        ("StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch", "TfIdfVectorizer"),
        "works on text. Do this step in the application, and begin the model with its numbers",
    ),
}  # fmt: skip
"""The advice in the error about an operator that is refused whatever its attributes are."""


def _absent(domain: str, operator: str) -> str:
    if domain in ("ai.onnx.ml", "ai.onnx.preview.training", "ai.onnx.training"):
        return f"is an operator of the domain '{domain}'. Operators of neural networks alone are read: compute it in the application"
    if not domain and operator in _ADVICE:
        return _ADVICE[operator]
    where = f" of the domain '{domain}'" if domain else ""
    return f"is an operator{where} that has no form in PyTorch here"


def _as_tuple(values: Any) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, (tuple, list)) else (values,)


def _spoken(proto: onnx.NodeProto) -> str:
    return f"'{proto.name}' ({proto.op_type})" if proto.name else f"{proto.op_type} of '{next(iter(proto.output), '')}'"


def _attributes(proto: onnx.NodeProto) -> dict[str, Any]:
    made = {}
    for attribute in proto.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, onnx.TensorProto):
            value = array_of(value)
        elif isinstance(value, onnx.SparseTensorProto):
            value = dense(value)
        elif isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            value = list(value)
        made[attribute.name] = value
    return made


def _hold(module: nn.Module, name: str, tensor: Tensor) -> None:
    """Give a tensor to a module: a parameter, or a buffer if it is no float or a mask with infinite values."""
    if tensor.is_floating_point() and not tensor.isinf().any():
        module.register_parameter(name, nn.Parameter(tensor, requires_grad=False))
    else:
        module.register_buffer(name, tensor)


class _Node(nn.Module):
    """A step as a module, so that what is recorded of it has the node's name."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step
        for name, array in step.node.kept.items():
            _hold(self, name, torch.from_numpy(array))

    def forward(self, *inputs: Any) -> Any:
        node = self.step.node
        kept = {name: getattr(self, name) for name in node.kept}
        return self.step.converter.function(replace(node, kept=kept), *inputs)


class OnnxModule(nn.Module):
    """The steps of a graph as a module. It takes the graph's inputs in their order, and returns its outputs in a tuple."""

    def __init__(self, importer: Importer, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__()
        self._inputs, self._outputs, self._constants = tuple(inputs), tuple(outputs), importer.constants
        self._used: dict[str, str] = {}
        self._steps: list[tuple[Step, str]] = []
        needed = set(outputs)
        for step in reversed(importer.steps):  # steps without a reader are left out
            if needed.intersection(step.outputs):
                needed |= set(step.inputs)
                self._steps.append((step, step.module))
        self._steps.reverse()
        self.forward = self._named(inputs)
        for step, module in self._steps:
            self.add_module(module, _Node(step))
            for place, name in enumerate(step.inputs):
                if name in importer.constants and place not in step.converter.structure | step.converter.constants:
                    self._keep(name, importer.constants[name])
        for name in outputs:
            if name in importer.constants:
                self._keep(name, importer.constants[name])

    def _named(self, inputs: Sequence[str]) -> Callable[..., Any]:
        """Return ``run`` with the graph's names of inputs, which torch.export then uses."""

        def forward(*values: Tensor) -> tuple[Any, ...]:
            return self.run(*values)

        taken: dict[str, None] = {}
        for name in inputs:
            base = re.sub(r"\W", "_", name)
            base = base if base.isidentifier() and not keyword.iskeyword(base) else f"input_{base}"
            taken[base if base not in taken else f"{base}_{len(taken)}"] = None
        kinds = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in taken]
        forward.__signature__ = Signature(kinds)  # type: ignore[attr-defined]
        return forward

    def _keep(self, name: str, value: np.ndarray[Any, Any]) -> None:
        if name in self._used:
            return
        base = re.sub(r"\W", "_", name) or "constant"
        attribute, number = base, 1
        while hasattr(self, attribute):
            number += 1
            attribute = f"{base}_{number}"
        self._used[name] = attribute
        _hold(self, attribute, torch.from_numpy(np.array(value)))

    def _value(self, name: str, values: Mapping[str, Any], as_array: bool) -> Any:
        if not name:
            return None
        if name in values:
            return values[name]
        return self._constants[name] if as_array else getattr(self, self._used[name])

    def run(self, *inputs: Tensor) -> tuple[Any, ...]:
        """Return the outputs of the graph."""
        values: dict[str, Any] = dict(zip(self._inputs, inputs, strict=True))
        for step, module in self._steps:
            arrays = step.converter.structure | step.converter.constants
            arguments = [self._value(name, values, place in arrays) for place, name in enumerate(step.inputs)]
            results = _as_tuple(getattr(self, module)(*arguments))
            values |= {name: value for name, value in zip(step.outputs, results, strict=False) if name}
        return tuple(self._value(name, values, False) for name in self._outputs)
