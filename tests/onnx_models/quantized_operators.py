# SPDX-License-Identifier: BSD-3-Clause
"""Each operator of a file that onnxruntime quantized, compiled alone and fed with onnxruntime's own values.

    python -m tests.onnx_models.quantized_operators [--form int8] [--each N] [--depths N] [NAME ...]

An operator is what stands between the quantized values that it reads and the QuantizeLinear that it ends with. Its inputs are the values that
onnxruntime computes for the first sample of the graph as it is written, so that differences of earlier operators have no part in its result. Prints for
each network the ratio of signal to error in dB that onnxruntime's result and ours have against the float network, and for each kind of operator how
many values differ by one step, and by more. ``--each N`` takes the first N operators of each kind and shape. ``--depths N`` takes no single
operators: it cuts the network at N places, feeds the part behind each place with onnxruntime's own values, and prints how many of the network's
results are then within one step of onnxruntime's. Differences that add up leave more results within one step the shorter the part is.
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
from openneutron.options import DelegationOptions
from tests.onnx_models.node_cases import decibels
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

    def alone(
        self, end: onnx.NodeProto, given: Set[str] | None = None
    ) -> tuple[str, onnx.ModelProto, list[Array]] | None:
        """Return an operator's kind, its model and its inputs, which are floats. Return None if ``end`` only quantizes an input or a constant.

        given: as in ``behind``. With it the model is all that stands between these values and ``end``, which may be any node.
        """
        nodes, read = self.behind(end, given)
        kind = " ".join(node.op_type for node in nodes if node.op_type not in _AROUND)
        if not kind or not read:
            return None
        first, items, inputs = [], [], []
        for name in read:
            value, maker = self.values[name], self.makers.get(name)
            if maker is not None and maker.op_type == "QuantizeLinear":
                scale, zero = (self.held[parameter] for parameter in maker.input[1:])
                first.append(helper.make_node("QuantizeLinear", [f"{name} real", *maker.input[1:]], [name]))
                value, name = ((value.astype(np.float32) - zero) * scale).astype(np.float32), f"{name} real"
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


def _compiled(path: Path, inputs: list[torch.Tensor]) -> Array:
    program = openneutron.compile(path, calibration=[tuple(inputs)], delegation=DelegationOptions(must_delegate=False))
    return np.asarray(program.run(*inputs)[0])


def steps(file: _File, folder: Path, each: int | None) -> Iterator[tuple[str, Array]]:
    """Yield the kind of each operator, and by how many steps each of its values differs from onnxruntime's.

    each: the most operators of a kind and shape.
    """
    taken: collections.Counter[object] = collections.Counter()
    for end in file.ends:
        made = file.alone(end)
        if made is not None:
            kind, model, inputs = made
            key = kind, *(value.shape for value in inputs), file.values[end.output[0]].shape
            taken[key] += 1
            if each is not None and taken[key] > each:
                continue
            path = folder / "operator.onnx"
            path.write_bytes(model.SerializeToString())
            found = _compiled(path, [torch.from_numpy(np.ascontiguousarray(value)) for value in inputs])
            scale, zero = (file.held[name].astype(np.float64) for name in end.input[1:])
            yield kind, np.abs(np.round(found / scale) - (file.values[end.output[0]] - zero))


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
        found = _compiled(whole, [torch.from_numpy(np.ascontiguousarray(value)) for value in inputs])
        apart = np.abs(found - right) / step_of(file.model, right)
        yield (
            f"{name} {form}: {len(ends) - len(before)} of {len(ends)} quantized values computed by us: "
            f"{(apart <= 1.001).mean():.1%} of {right.size} results within one step, largest difference {apart.max():.1f} steps"
        )


def report(name: str, form: str, folder: Path, each: int | None) -> Iterator[str]:
    """Yield the lines of a network."""
    path, given = exported(name, folder)
    made, samples = quantized(path, form, given)
    whole = [
        onnxruntime.InferenceSession(str(one), providers=["CPUExecutionProvider"]).run(None, samples[0])[0]
        for one in (path, made)
    ]
    ours = _compiled(made, list(given[0]))
    yield (
        f"{name} {form}: against float onnxruntime {decibels(whole[1], whole[0]):.1f} dB, ours {decibels(ours, whole[0]):.1f} dB; "
        f"ours against onnxruntime {decibels(ours, whole[1]):.1f} dB"
    )
    found = collections.defaultdict(list)
    for kind, differences in steps(with_values(made, samples[0]), folder, each):
        found[kind].append(differences.ravel())
    for kind, rows in sorted(found.items()):
        values = np.concatenate(rows)
        yield (
            f"    {kind}: {len(rows)} operators, {values.size} values, {(values == 1).mean():.3%} differ by one step, {(values > 1).sum()} by more"
        )


def main(arguments: list[str]) -> int:
    """Print the lines of each network."""
    parser = argparse.ArgumentParser(prog="python -m tests.onnx_models.quantized_operators", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--form", choices=FORMS, default="int8")
    parser.add_argument("--each", type=int, metavar="N")
    parser.add_argument("--depths", type=int, metavar="N")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args(arguments)
    importlib.import_module("transformers.models.auto.processing_auto")  # before timm's stand-in for torchvision
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in given.names or (*OWN, *OTHERS):
            place = given.folder or Path(folder)
            lines = depths(name, given.form, place, given.depths) if given.depths else None
            for line in lines or report(name, given.form, place, given.each):
                print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
