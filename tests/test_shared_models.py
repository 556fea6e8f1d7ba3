# SPDX-License-Identifier: BSD-3-Clause
"""Five networks as they come, against LiteRT's reference kernels: outputs, every tensor in between, and the arena."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from openneutron import litert, targets
from openneutron.compiler import Compiled, CompileOptions, compile_graph
from openneutron.compiler.select.calls import View
from openneutron.device.mixed import compile_file
from openneutron.device.simulator import Moment, Simulator
from openneutron.ops.shape import VIEWS
from tests.support.oracle import TARGET, random_inputs

KIB = 1024

MODELS = {
    "mobilenet_v2_224_random_int8": 1470 * KIB,
    "mlperf_tiny_vww96_int8": 54 * KIB,
    "mlperf_tiny_resnet8_int8": 48 * KIB,
    "mlperf_tiny_kws_int8": 16000,
    "mlperf_tiny_ad01_int8": 768,
}
"""Each model's whole-tensor bound: the most bytes live at once, input and output included (docs/explanation/compiler.md)."""

RANDOM_INPUTS = 20


class Case:
    """A shared model, compiled for a chip, beside LiteRT's interpreter of it."""

    def __init__(self, path: Path, target: targets.Target) -> None:
        self.file = litert.read(path)
        self.compiled: Compiled = compile_graph(self.file.graph, target, CompileOptions(io_place="arena"))
        self.simulator = Simulator(self.compiled.program)
        self.interpreter = Interpreter(
            str(path),
            experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
            experimental_preserve_all_tensors=True,
            num_threads=1,
        )
        self.interpreter.allocate_tensors()

    def interpret(self, inputs: list[np.ndarray]) -> None:
        for detail, value in zip(self.interpreter.get_input_details(), inputs, strict=True):
            self.interpreter.set_tensor(detail["index"], value)
        self.interpreter.invoke()

    def reference(self, tensor: str) -> np.ndarray:
        return self.interpreter.get_tensor(self.file.tensor_index[tensor])


SMALL = [name for name in MODELS if MODELS[name] < targets.get("mcxn94x").sram.value * KIB]
CASES = list(dict.fromkeys([*((name, TARGET.name) for name in MODELS), *((name, "mcxn94x") for name in SMALL)]))
"""Model and chip; MCX N takes those that its memory holds whole."""

WHOLE = [(name, chip) for name, chip in CASES if MODELS[name] < targets.get(chip).sram.value * KIB]
"""The cases whose chip's memory holds whole tensors."""

in_whole_tensors = pytest.mark.parametrize("case", WHOLE, indirect=True, ids=" for ".join)


@pytest.fixture(scope="module", params=CASES, ids=" for ".join)
def case(request: pytest.FixtureRequest, shared_models: Path) -> Case:
    model, chip = request.param
    return Case(shared_models / f"{model}.tflite", targets.get(chip))


def test_it_compiles_whole_and_outputs_are_byte_equal(case: Case) -> None:
    graph = case.file.graph
    whole = litert.read(compile_file(case.file, "model").to_bytes()).graph
    assert [node.op for node in whole.nodes] == ["CUSTOM NeutronGraph"]
    for seed in range(RANDOM_INPUTS):
        inputs = random_inputs(graph, seed)
        case.interpret(inputs)
        for name, got in zip(graph.outputs, case.simulator.run(inputs), strict=True):
            assert got.tobytes() == case.reference(name).tobytes(), f"{name}, seed {seed}"


def seen_through(view: View, tensor: np.ndarray) -> np.ndarray:
    """The part of a tensor that a view names, as (batches, rows, columns, channels)."""
    flat = np.ascontiguousarray(tensor).reshape(-1).view(np.int8)
    return np.lib.stride_tricks.as_strided(flat[view.offset :], view.extents, view.pitches, writeable=False)


@pytest.mark.without_tiles("a tile is a part of a tensor, and other calls transfer it")
@in_whole_tensors
def test_every_intermediate_tensor_is_byte_equal(case: Case) -> None:
    """Each kernel call's output right after it, while later calls have not yet taken its memory."""
    compiled = case.compiled
    inputs = random_inputs(case.file.graph, RANDOM_INPUTS)
    case.interpret(inputs)
    walked = []

    def after_call(moment: Moment) -> None:
        view = compiled.schedule.calls[moment.operator].views["output"]
        name = view.tensor.split("@")[0]
        np.testing.assert_array_equal(moment.output(), seen_through(view, case.reference(name)), str(view))
        walked.append(name)

    case.simulator.run(inputs, after_call)
    computed = {name for node in compiled.legalized.nodes if node.op not in VIEWS for name in node.outputs}
    assert set(walked) >= computed


@pytest.mark.without_tiles("the memory of the NPU has tiles, and constants too")
@in_whole_tensors
def test_the_arena_is_the_least_possible(case: Case, request: pytest.FixtureRequest) -> None:
    report = case.compiled.report
    assert report.arena_bytes == report.bound_bytes == MODELS[request.node.callspec.params["case"][0]]
