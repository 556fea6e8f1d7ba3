# SPDX-License-Identifier: BSD-3-Clause
"""An ONNX file the whole way to a result, its names and its errors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the extra [onnx] is not installed")

import torch  # noqa: E402
from onnx import helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import openneutron  # noqa: E402
from openneutron import LoadingOptions  # noqa: E402
from openneutron.device.forms import ONNX, form_of  # noqa: E402
from openneutron.errors import InvalidModelError, OpenNeutronError  # noqa: E402
from tests.onnx_models.made import model, random, saved, small_network  # noqa: E402

Array = np.ndarray[Any, Any]


def decibels(found: Array, right: Array) -> float:
    return float(10 * np.log10((right**2).sum() / ((found - right) ** 2).sum()))


def test_a_file_is_compiled_and_runs(tmp_path: Path) -> None:
    made = small_network()
    helper.set_model_props(made, {"task": "detect", "names": "{0: 'cat'}"})
    path = saved(tmp_path, made)
    samples = [torch.from_numpy(random(1, 3, 8, 8, seed=seed)) for seed in range(4)]
    program = openneutron.compile(path, calibration=samples)
    assert len(program.partitions) == 1 and not program.report.on_cpu
    assert {item.module for item in program.delegation.on_npu} >= {"stem/conv", "head"}
    wanted = ReferenceEvaluator(small_network()).run(None, {"image": samples[0].numpy()})[0]
    assert decibels(np.asarray(program.run(samples[0])[0]), wanted) > 30
    program.save(tmp_path / "net.pte")
    assert (
        program.metadata == openneutron.load(tmp_path / "net.pte").metadata == {"task": "detect", "names": "{0: 'cat'}"}
    )


def test_the_content_decides(tmp_path: Path) -> None:
    assert form_of(saved(tmp_path, small_network(), "net.bin")) is ONNX


def quantize(
    name: str, source: str, scale: float, kind: type, zero: int
) -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    """Return nodes that quantize a value and make it real again, as ``<name>``."""
    names = [source, f"{name}_scale", f"{name}_zero"]
    nodes = [
        helper.make_node("QuantizeLinear", names, [f"{name}_q"]),
        helper.make_node("DequantizeLinear", [f"{name}_q", *names[1:]], [name]),
    ]
    return nodes, {names[1]: np.float32(scale), names[2]: np.array(zero, kind)}


@pytest.mark.parametrize(("kind", "zero"), [(np.int8, 3), (np.uint8, 131)])
def test_a_quantized_file_keeps_its_values(tmp_path: Path, kind: type, zero: int) -> None:
    """uint8 becomes int8 without loss: both files give the results of the reference, and the same bytes as each other. Two nodes have one
    name but for a slash."""
    first, constants = quantize("x", "image", 0.05, kind, zero)
    first[1].name = "stem_w"
    last, more = quantize("y", "a", 0.1, kind, zero)
    weights = np.arange(-54, 54).reshape(4, 3, 3, 3).astype(np.int8)
    constants |= more | {
        "w_q": weights,
        "w_scale": np.array([0.01, 0.02, 0.03, 0.04], np.float32),
        "w_zero": np.zeros(4, np.int8),
    }
    nodes = [
        *first,
        helper.make_node("DequantizeLinear", ["w_q", "w_scale", "w_zero"], ["w"], "stem/w", axis=0),
        helper.make_node("Conv", ["x", "w"], ["a"], "conv"),
        *last,
    ]
    made = model(nodes, {"image": [1, 3, 6, 6]}, ["y"], constants)
    program = openneutron.compile(saved(tmp_path, made))
    assert len(program.partitions) == 1 and not program.report.on_cpu
    image = random(1, 3, 6, 6, seed=7)
    wanted = ReferenceEvaluator(made).run(None, {"image": image})[0]
    steps = np.abs(np.asarray(program.run(torch.from_numpy(image))[0]) - wanted) / 0.1
    assert steps.max() < 1.01 and (steps > 0.5).mean() < 0.01


def test_an_axis_that_is_not_fixed_is_given(tmp_path: Path) -> None:
    made = model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["batch", "width"]}, ["y"])
    path = saved(tmp_path, made)
    shapes = LoadingOptions(input_shapes={"x": (2, 5)})
    program = openneutron.compile(path, calibration=[torch.randn(2, 5)], loading=shapes)
    assert program.run(torch.ones(2, 5))[0].shape == (2, 5)


def test_a_shape_that_the_file_does_not_have_is_given(tmp_path: Path) -> None:
    made = model([helper.make_node("Relu", ["x"], ["y"])], {"x": [1]}, ["y"])
    _without_a_shape(made)
    program = ONNX.read(saved(tmp_path, made), LoadingOptions(input_shapes={"x": (2, 5)}))
    assert program.example_inputs[0][0].shape == (2, 5)


@pytest.mark.parametrize("places", [[1, 9], [[0, 1], [1, 4]]])
def test_a_sparse_weight_is_read_with_all_its_values(tmp_path: Path, places: list[Any]) -> None:
    values = onnx.numpy_helper.from_array(np.array([2, 3], np.float32), "w")
    weights = helper.make_sparse_tensor(values, onnx.numpy_helper.from_array(np.array(places)), [2, 5])
    made = model(
        [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Constant", [], ["c"], sparse_value=weights),
         helper.make_node("MatMul", ["x", "c"], ["b"]), helper.make_node("Add", ["a", "b"], ["y"])],
        {"x": [1, 2]}, ["y"],
    )  # fmt: skip
    made.graph.sparse_initializer.append(weights)
    program = ONNX.read(saved(tmp_path, made))
    assert program.module()(torch.ones(1, 2))[0].tolist() == [[0, 4, 0, 0, 6]]


def damaged(change: Callable[[onnx.ModelProto], None]) -> bytes:
    made = small_network()
    change(made)
    return made.SerializeToString()


def _of_another_domain(made: onnx.ModelProto) -> None:
    made.graph.node[1].domain, made.graph.node[1].op_type = "my.own", "Relu9"


def _truncated_data(made: onnx.ModelProto) -> None:
    made.graph.initializer[0].dims[0] = 2**40


def _without_producer(made: onnx.ModelProto) -> None:
    del made.graph.node[0]


def _wrong_shape(made: onnx.ModelProto) -> None:
    made.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 5


def _open_axis(made: onnx.ModelProto) -> None:
    made.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"


def _unknown_type(made: onnx.ModelProto) -> None:
    made.graph.input[0].type.tensor_type.elem_type = 98


def _external(made: onnx.ModelProto) -> None:
    tensor = made.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../weights.bin")


def _huge_constant(made: onnx.ModelProto) -> None:
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array([10**5, 10**5]), "sizes"))
    made.graph.node.insert(0, helper.make_node("ConstantOfShape", ["sizes"], ["huge"], "fill"))


def _huge_input(made: onnx.ModelProto) -> None:
    made.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 2**40


def _newer(made: onnx.ModelProto) -> None:
    made.opset_import[0].version = 999


def _cycle(made: onnx.ModelProto) -> None:
    made.graph.node[0].input[0] = "b"


def _without_numbers(made: onnx.ModelProto) -> None:
    made.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(np.full(8, np.nan, np.float32), "bias"))


def _function(made: onnx.ModelProto, name: str, calls: str, times: int) -> None:
    nodes = [helper.make_node(calls, [f"t{place}"], [f"t{place + 1}"], domain="own") for place in range(times)]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    made.functions.append(helper.make_function("own", name, ["t0"], [f"t{times}"], nodes, opsets))


def _calls_itself(made: onnx.ModelProto) -> None:
    made.graph.node[1].domain, made.graph.node[1].op_type = "own", "First"
    _function(made, "First", "Second", 1)
    _function(made, "Second", "First", 1)


def _multiplies(made: onnx.ModelProto) -> None:
    """Functions of functions: 100 calls of 100 calls of 100 nodes of each other."""
    made.graph.node[1].domain, made.graph.node[1].op_type = "own", "First"
    _function(made, "First", "Second", 100)
    _function(made, "Second", "Third", 100)
    _function(made, "Third", "Relu", 100)


def _loops_in_loops(made: onnx.ModelProto) -> None:
    """Four loops of 1000 iterations in each other."""
    kinds = {"i": onnx.TensorProto.INT64, "on": onnx.TensorProto.BOOL}

    def body(depth: int) -> onnx.GraphProto:
        loop = (
            helper.make_node("Loop", ["many", "", "s"], ["t"], f"loop{depth}", body=body(depth - 1))
            if depth
            else helper.make_node("Neg", ["s"], ["t"])
        )
        ends = [
            [helper.make_tensor_value_info(name, kinds.get(name, 1), None) for name in names]
            for names in (["i", "on", "s"], ["on", "t"])
        ]
        return helper.make_graph([loop], "body", *ends)

    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1000), "many"))
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0, np.float32), "zero"))
    made.graph.node.append(helper.make_node("Loop", ["many", "", "zero"], ["end"], "loop4", body=body(4)))


def _without_inputs(made: onnx.ModelProto) -> None:
    del made.graph.input[:]
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((1, 3, 8, 8), np.float32), "image"))


def _without_outputs(made: onnx.ModelProto) -> None:
    del made.graph.output[:]


def _without_a_shape(made: onnx.ModelProto) -> None:
    made.graph.input[0].type.tensor_type.ClearField("shape")


def _computed_twice(made: onnx.ModelProto) -> None:
    made.graph.node[1].output[0] = "a"


def _without_nodes(made: onnx.ModelProto) -> None:
    del made.graph.node[:]
    made.graph.output[0].name = "image"


def _random(made: onnx.ModelProto) -> None:
    made.graph.node[1].op_type = "RandomNormalLike"


BAD = [
    (_without_inputs, "has no input: its results are constants. Export it with its input as an input of the graph."),
    (_without_outputs, "has no output. Export it with the tensors that it computes as outputs."),
    (_without_a_shape, "the file has no shape for the input 'image'. Give it, such as --input-shape image=1x3x224x224."),
    (_computed_twice, "node 'stem/relu' (Relu) computes 'a', which the graph has already. The file is damaged."),
    (_without_nodes, "it has no operator to run on the NPU."),
    (
        _random,
        "node 'stem/relu' (RandomNormalLike) makes random values, which a compiled program has not. Export the model in inference mode, or "
        "make the values an input.",
    ),
    (_cycle, "node 'stem/conv' (Conv) reads 'b', which no earlier node computes. The file is damaged."),
    (_calls_itself, "has a function 'First' that calls itself. The file is damaged."),
    (_multiplies, "has functions that become 1000000 nodes; at most 131072 are read."),
    (_loops_in_loops, "node 'loop1' (Loop) is in loops of more than 64 iterations together."),
    (
        _newer,
        f"has version 999 of ONNX's operators; versions 7 to {onnx.defs.onnx_opset_version()} are known. Export it with one of these, "
        "or install a newer onnx.",
    ),
    (_of_another_domain, "node 'stem/relu' (Relu9) is an operator of the domain 'my.own' that has no form in PyTorch here."),
    (
        _truncated_data,
        "'kernel' has 864 bytes of data; its shape takes 118747255799808. The file is damaged.",
    ),
    (
        _huge_constant,
        "node 'fill' (ConstantOfShape) makes 40000000000 bytes of constants; all computed constants have at most 134221888.",
    ),
    (_huge_input, "the input 'image' has 26388279066624 elements; at most 268435456 are taken."),
    (_without_producer, "node 'stem/relu' (Relu) reads 'a', which no earlier node computes. The file is damaged."),
    (_unknown_type, "the input 'image' has the type 98; inputs are float32, int8, int16, int32, int64, uint8 or bool."),
    (
        _open_axis,
        "the shape 1x3xheightx8 of the input 'image' is not fixed. Give it: --input-shape image=1x3x1x8, with your sizes.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), BAD, ids=lambda given: getattr(given, "__name__", ""))
def test_a_file_that_can_not_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[onnx.ModelProto], None], message: str
) -> None:
    monkeypatch.setattr("openneutron.pytorch.onnx.graph.MOST_BODIES", 64)
    path = tmp_path / "net.onnx"
    path.write_bytes(damaged(change))
    with pytest.raises(InvalidModelError) as caught:
        openneutron.compile(path, calibration=[torch.ones(1, 3, 8, 8)])
    assert str(caught.value) == f"'net.onnx'{' ' if message.startswith('has') else ': '}{message}"


def test_weights_that_are_no_numbers(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(damaged(_without_numbers))
    with pytest.raises(InvalidModelError) as caught:
        openneutron.compile(tmp_path / "net.onnx", calibration=[torch.ones(1, 3, 8, 8)])
    assert str(caught.value) == (
        "'bias': a parameter of the model with 8 of 8 values that are NaN or infinite; int8 takes finite ones. Load weights of a "
        "training that converged."
    )


@pytest.mark.parametrize("place", ["../weights.bin", "/etc/hostname", "a/../../weights.bin", "link.bin"])
def test_external_data_outside_the_folder_is_not_read(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "weights.bin").write_bytes(bytes(864))
    (folder / "link.bin").symlink_to(tmp_path / "weights.bin")
    (folder / "a").mkdir()

    def change(made: onnx.ModelProto) -> None:
        _external(made)
        made.graph.initializer[0].external_data[0].value = place

    (folder / "net.onnx").write_bytes(damaged(change))
    with pytest.raises(
        InvalidModelError, match=r"^'net\.onnx': its external data can't be read: .*must lie in its folder\.$"
    ):
        ONNX.read(folder / "net.onnx")


def test_a_file_that_is_cut_at_any_byte(tmp_path: Path) -> None:
    whole = small_network().SerializeToString()
    for end in range(0, len(whole), 11):
        (tmp_path / "net.onnx").write_bytes(whole[:end])
        with pytest.raises(OpenNeutronError):
            ONNX.read(tmp_path / "net.onnx")


def test_nothing_of_other_formats_is_imported_for_a_pytorch_model() -> None:
    code = (
        "import sys, torch, openneutron\n"
        "x = torch.ones(1, 3, 4, 4)\n"
        "openneutron.compile(torch.nn.Conv2d(3, 4, 1).eval(), (x,), calibration=[(x,)])\n"
        "names = ('onnx', 'onnxruntime', 'onnxscript', 'keras', 'tensorflow', 'ultralytics', 'ai_edge_quantizer')\n"
        "print([name for name in names if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_other_libraries_words_are_in_the_message(tmp_path: Path) -> None:
    for change, begins in (
        (_wrong_shape, "'net.onnx': node 'stem/conv' (Conv) does not fit its inputs 1x5x8x8, 8x3x3x3, 8: "),
        (_external, "'net.onnx': its external data can't be read: "),
    ):
        (tmp_path / "net.onnx").write_bytes(damaged(change))
        with pytest.raises(InvalidModelError, match="^" + begins.replace("(", r"\(").replace(")", r"\)")):
            openneutron.compile(tmp_path / "net.onnx")


def test_files_that_are_cut_or_changed_give_an_error_of_ours(tmp_path: Path) -> None:
    """A short slice of `python -m tests.fuzz.onnx_files`."""
    from tests.fuzz.onnx_files import mutated, wholes

    files = wholes()
    for seed in (*range(36), 16438):  # an integer constant that became float
        (tmp_path / "net.onnx").write_bytes(mutated(files[seed % 3], seed))
        try:
            ONNX.read(tmp_path / "net.onnx")
        except OpenNeutronError as error:
            assert str(error).endswith(".")
