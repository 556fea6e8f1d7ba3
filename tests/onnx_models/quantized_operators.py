# SPDX-License-Identifier: BSD-3-Clause
"""Each operator of a file that onnxruntime quantized, fed with onnxruntime's own values.

    python -m tests.onnx_models.quantized_operators [--form int8] [--depths N] [NAME ...]

An operator is what stands between the quantized values that it reads and the QuantizeLinear that it ends with. Its inputs are the values that
onnxruntime computes for the first sample of the graph as it is written, so that differences of earlier operators have no part in its result. All
operators of a network are compiled together, as one model without connections between them. Prints for each kind of operator, and for all, how many
values differ by one step, and by more, and how far our result is at most from the real value that onnxruntime rounds, less the half of a step that any
rounding may take. ``--depths N`` takes no single operators: it cuts the network at N places, feeds the part behind each place with onnxruntime's own
values, and prints how many of the network's results are then within one step of onnxruntime's. Differences that add up leave more results within
one step the shorter the part is.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import sys
import tempfile
import warnings
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import helper, numpy_helper

import openneutron
from openneutron.options import CompileOptions, DelegationOptions
from tests.onnx_models.quantized import FORMS, OTHERS, OWN, exported, quantized, step_of

Array = np.ndarray[Any, Any]

_AROUND = ("QuantizeLinear", "DequantizeLinear", "Constant", "Identity")


@dataclass(slots=True)
class _File:
    """A quantized file, and the values of all its tensors for one sample."""

    model: onnx.ModelProto
    values: dict[str, Array]
    makers: dict[str, onnx.NodeProto] = field(init=False)
    held: dict[str, Array] = field(init=False)
    constants: set[str] = field(init=False)
    """The tensors that depend on no input of the graph."""

    def __post_init__(self) -> None:
        self.makers = {name: node for node in self.model.graph.node for name in node.output}
        self.held = {tensor.name: numpy_helper.to_array(tensor) for tensor in self.model.graph.initializer}
        self.constants = set(self.held)
        for node in self.model.graph.node:
            if self.constants.issuperset(filter(None, node.input)):
                self.constants.update(node.output)

    @property
    def ends(self) -> list[onnx.NodeProto]:
        """The QuantizeLinear nodes of all operators, in their order."""
        return [
            node
            for node in self.model.graph.node
            if node.op_type == "QuantizeLinear" and node.input[0] not in self.constants
        ]

    def behind(self, end: onnx.NodeProto, given: Set[str] | None) -> tuple[list[onnx.NodeProto], list[str]]:
        """Return the nodes from ``end`` back to the quantized values that they read, and the names of these values.

        given: the quantized values at which the way back ends; None: all of them.
        """
        found: dict[str, onnx.NodeProto] = {}
        read: dict[str, None] = {}
        waiting = [end]
        while waiting:
            node = waiting.pop()
            if node.output[0] in found:
                continue
            found[node.output[0]] = node
            for name in filter(lambda name: name and name not in self.held, node.input):
                begins = node.op_type == "DequantizeLinear" and name not in self.constants
                begins = begins and (given is None or name in given)
                if begins or name not in self.makers:
                    read[name] = None
                else:
                    waiting.append(self.makers[name])
        return [node for node in self.model.graph.node if node.output[0] in found], list(read)

    def kind(self, end: onnx.NodeProto) -> str:
        """Return the operators that end with a node."""
        return _kind(self.behind(end, None)[0])

    def real(self, end: onnx.NodeProto) -> Array:
        """Return the real values that a QuantizeLinear gives."""
        scale, zero = (self.held[parameter] for parameter in end.input[1:])
        return ((self.values[end.output[0]].astype(np.float32) - zero) * scale).astype(np.float32)

    def alone(
        self, end: onnx.NodeProto, given: Set[str] | None = None
    ) -> tuple[str, onnx.ModelProto, list[Array]] | None:
        """Return an operator's kind, its model and its inputs, which are floats. Return None if ``end`` only quantizes an input or a constant.

        given: as in ``behind``. With it the model is all that stands between these values and ``end``, which may be any node.
        """
        nodes, read = self.behind(end, given)
        kind = _kind(nodes)
        if not kind or not read:
            return None
        first, items, inputs = [], [], []
        for name in read:
            value, maker = self.values[name], self.makers.get(name)
            if maker is not None and maker.op_type == "QuantizeLinear":
                first.append(helper.make_node("QuantizeLinear", [f"{name} real", *maker.input[1:]], [name]))
                value, name = self.real(maker), f"{name} real"
            items.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape))
            inputs.append(value)
        result = helper.make_tensor_value_info("result", onnx.TensorProto.FLOAT, self.values[end.output[0]].shape)
        last = helper.make_node("Identity", [end.output[0]], ["result"])
        if end.op_type == "QuantizeLinear":
            last = helper.make_node("DequantizeLinear", [end.output[0], *end.input[1:]], ["result"])
        every = [*first, *nodes, last]
        names = {name for node in every for name in node.input}
        constants = [tensor for tensor in self.model.graph.initializer if tensor.name in names]
        graph = helper.make_graph(every, "operator", items, [result], constants)
        version = self.model.ir_version
        return kind, helper.make_model(graph, opset_imports=self.model.opset_import, ir_version=version), inputs


def _kind(nodes: list[onnx.NodeProto]) -> str:
    return " ".join(node.op_type for node in nodes if node.op_type not in _AROUND)


def with_values(path: Path, sample: dict[str, Array]) -> _File:
    model = onnx.load(path)
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    present = {item.name for item in shown.graph.output}
    names = [name for node in model.graph.node for name in node.output if name and name not in present]
    shown.graph.output.extend(helper.make_value_info(name, onnx.TypeProto()) for name in names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(shown.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found = session.run(None, sample)
    return _File(model, sample | dict(zip([item.name for item in session.get_outputs()], found, strict=True)))


def _program(path: Path, inputs: list[torch.Tensor]) -> openneutron.CompiledModel:
    """Return a file compiled for a chip with memory for the values of all operators at once."""
    delegation = DelegationOptions(must_delegate=False)
    options = CompileOptions(target="imx95")
    return openneutron.compile(path, calibration=[tuple(inputs)], options=options, delegation=delegation)


@dataclass(frozen=True, slots=True)
class Differences:
    """The values of one operator."""

    kind: str
    steps: Array
    """By how many steps each value differs from onnxruntime's."""
    beyond: float
    """The largest distance to the real value, in steps, less a half."""


def differences(file: _File, folder: Path) -> list[Differences]:
    """Return the differences of each operator, in their order."""
    ends = [end for end in file.ends if file.alone(end) is not None]
    path = folder / "operators.onnx"
    path.write_bytes(_apart(file, ends).SerializeToString())
    read = [file.values[item.name] for item in file.model.graph.input]
    inputs = [torch.from_numpy(np.ascontiguousarray(value)) for value in (*read, *map(file.real, ends))]
    results = _program(path, inputs).run(*inputs)
    return [_difference(file, end, np.asarray(found)) for end, found in zip(ends, results, strict=True)]


def _apart(file: _File, ends: list[onnx.NodeProto]) -> onnx.ModelProto:
    """Return a model of all operators, in which each reads inputs of the model, and its result is an output.

    The inputs are those of the network, and then the real values of all results in the order of ``ends``.
    """
    model = onnx.ModelProto()
    model.CopyFrom(file.model)
    graph = model.graph
    makers = {node.output[0]: node for node in graph.node}
    nodes = list(graph.node)
    first, last, results = [], [], []
    for end in ends:
        name, shape = end.output[0], file.values[end.output[0]].shape
        makers[name].output[0] = f"{name} made"
        first.append(helper.make_node("QuantizeLinear", [f"{name} real", *end.input[1:]], [name]))
        last.append(helper.make_node("DequantizeLinear", [f"{name} made", *end.input[1:]], [f"{name} result"]))
        graph.input.append(helper.make_tensor_value_info(f"{name} real", onnx.TensorProto.FLOAT, shape))
        results.append(helper.make_tensor_value_info(f"{name} result", onnx.TensorProto.FLOAT, shape))
    every = [*first, *nodes, *last]
    for repeated in (graph.node, graph.output, graph.value_info):
        del repeated[:]
    graph.node.extend(every)
    graph.output.extend(results)
    return model


def _difference(file: _File, end: onnx.NodeProto, found: Array) -> Differences:
    right = file.values[end.output[0]]
    scale, zero = (file.held[name].astype(np.float64) for name in end.input[1:])
    ours, bounds = np.round(found / scale) + zero, np.iinfo(right.dtype)
    real = np.clip(file.values[end.input[0]].astype(np.float64) / scale + zero, bounds.min, bounds.max)
    return Differences(file.kind(end), np.abs(ours - right.astype(np.float64)), float(np.abs(ours - real).max()) - 0.5)


def depths(name: str, form: str, folder: Path, count: int) -> Iterator[str]:
    """Yield a line for each of ``count`` places at which the network is cut: its results within one step of onnxruntime's."""
    path, given = exported(name, folder)
    made, samples = quantized(path, form, given)
    file = with_values(made, samples[0])
    output = file.model.graph.output[0].name
    right, ends = file.values[output].astype(np.float64), file.ends
    for place in range(count):
        before = ends[: max(round(len(ends) * place / count), 1)]
        cut = file.alone(file.makers[output], {node.output[0] for node in before})
        assert cut is not None
        whole, (_, model, inputs) = folder / "behind.onnx", cut
        whole.write_bytes(model.SerializeToString())
        tensors = [torch.from_numpy(np.ascontiguousarray(value)) for value in inputs]
        found = np.asarray(_program(whole, tensors).run(*tensors)[0])
        apart = np.abs(found - right) / step_of(file.model, right)
        yield (
            f"{name} {form}: {len(ends) - len(before)} of {len(ends)} quantized values computed by us: "
            f"{(apart <= 1.001).mean():.1%} of {right.size} results within one step, largest difference {apart.max():.1f} steps"
        )


def report(name: str, form: str, folder: Path) -> Iterator[str]:
    """Yield a line for each kind of operator of a network, and one for all."""
    path, given = exported(name, folder)
    made, samples = quantized(path, form, given)
    every = differences(with_values(made, samples[0]), folder)
    found = collections.defaultdict(list)
    for one in every:
        found[one.kind].append(one)
    for kind, rows in sorted(found.items()):
        yield f"{name} {form}: {kind}, {_summary(rows)}"
    yield f"{name} {form}: all, {_summary(every)}"


def _summary(rows: list[Differences]) -> str:
    values = np.concatenate([row.steps.ravel() for row in rows])
    return (
        f"{len(rows)} operators, {values.size} values: {(values == 1).mean():.3%} differ by one step, {(values > 1).sum()} by more; "
        f"at most {max(row.beyond for row in rows):.3f} steps beyond a half"
    )


def main(arguments: list[str]) -> int:
    """Print the lines of each network."""
    parser = argparse.ArgumentParser(prog="python -m tests.onnx_models.quantized_operators", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--form", choices=FORMS, default="int8")
    parser.add_argument("--depths", type=int, metavar="N")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args(arguments)
    importlib.import_module("transformers.models.auto.processing_auto")  # before timm's stand-in for torchvision
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in given.names or (*OWN, *OTHERS):
            place = given.folder or Path(folder)
            of_network = depths(name, given.form, place, given.depths) if given.depths else None
            for line in of_network or report(name, given.form, place):
                print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
