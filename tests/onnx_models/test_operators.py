# SPDX-License-Identifier: BSD-3-Clause
"""Each converter computes what ONNX's reference implementation does. `python -m tests.onnx_models.node_cases` runs all of ONNX's own cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the extra [onnx] is not installed")

import torch  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import openneutron.pytorch  # noqa: E402, F401
from openneutron.errors import InvalidModelError  # noqa: E402
from openneutron.pytorch.onnx.read import module_of  # noqa: E402
from tests.onnx_models.made import OPSET, model, random  # noqa: E402

IMAGE = (1, 4, 6, 8)

INTS = np.int64

# operator, attributes, shapes of the inputs that are data, constants after them ("" leaves an input out)
CASES: list[tuple[str, dict[str, Any], list[tuple[int, ...]], list[Any]]] = [
    *[
        (name, {}, [(2, 5)], [])
        for name in (
            "Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "HardSwish", "HardSigmoid", "Identity", "LeakyRelu", "Mish", "Neg", "Relu",
            "Round", "Selu", "Sigmoid", "Sign", "Softplus", "Softsign", "Tanh", "Elu", "Celu", "Gelu", "Shrink", "ThresholdedRelu",
            "Hardmax", "Softmax", "LogSoftmax", "Flatten", "Transpose", "LpNormalization", "ReduceSumSquare", "ReduceL1",
        )
    ],
    *[(name, {}, [(2, 5), (5,)], []) for name in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean", "PRelu")],
    ("Gelu", {"approximate": "tanh"}, [(2, 5)], []),
    ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}, [(2, 5)], []),
    ("PRelu", {}, [IMAGE], [random(4, 1, 1)]),
    ("Clip", {}, [(2, 5)], [np.float32(-0.5), np.float32(0.25)]),
    ("Clip", {}, [(2, 5)], ["", np.float32(0.25)]),
    ("Clip", {}, [(2, 5)], [np.float32(0.5), np.float32(-0.5)]),
    ("Pow", {}, [(2, 5)], [np.float32(2)]),
    ("CumSum", {"exclusive": 1, "reverse": 1}, [(2, 5)], [np.array(1, INTS)]),
    ("Cast", {"to": onnx.TensorProto.INT32}, [(2, 5)], []),
    ("MatMul", {}, [(2, 3, 5), (5, 4)], []),
    ("Gemm", {"alpha": 0.5, "beta": 2.0, "transA": 1}, [(5, 2), (5, 4), (4,)], []),
    ("Gemm", {"transB": 1}, [(2, 5), (4, 5), (4,)], []),
    ("Einsum", {"equation": "bij, bjk -> bik"}, [(2, 3, 4), (2, 4, 5)], []),
    ("DFT", {}, [(1, 5, 3, 2)], ["", np.array(1, INTS)]),
    ("DFT", {"onesided": 1}, [(1, 3, 5, 1)], [np.array(8, INTS)]),
    ("DFT", {"inverse": 1}, [(1, 3, 5, 2)], [np.array(4, INTS)]),
    ("DFT", {"inverse": 1, "onesided": 1}, [(1, 4, 3, 2)], [np.array(7, INTS), np.array(1, INTS)]),
    ("DFT", {"inverse": 1, "onesided": 1}, [(1, 2, 5, 2)], []),
    ("STFT", {}, [(1, 20, 1)], [np.array(3, INTS), np.hanning(8).astype(np.float32)]),
    ("STFT", {"onesided": 0}, [(1, 20, 2)], [np.array(4, INTS), "", np.array(6, INTS)]),
    ("ReduceMean", {"keepdims": 0}, [IMAGE], [np.array([2, 3], INTS)]),
    ("ReduceMax", {}, [IMAGE], [np.array([-1], INTS)]),
    ("ReduceSum", {"noop_with_empty_axes": 1}, [IMAGE], []),
    ("ReduceL2", {}, [IMAGE], [np.array([1], INTS)]),
    ("ReduceLogSumExp", {}, [IMAGE], [np.array([1], INTS)]),
    ("ReduceProd", {}, [(2, 3)], [np.array([1], INTS)]),
    ("ArgMax", {"axis": 1, "keepdims": 0}, [IMAGE], []),
    ("ArgMin", {"axis": -1, "select_last_index": 1}, [IMAGE], []),
    ("TopK", {"axis": 1}, [(2, 6)], [np.array([3], INTS)]),
    ("Reshape", {}, [(2, 6)], [np.array([0, 3, -1], INTS)]),
    ("Squeeze", {}, [(1, 2, 1)], [np.array([0], INTS)]),
    ("Unsqueeze", {}, [(2, 3)], [np.array([0, -1], INTS)]),
    ("Concat", {"axis": -1}, [(2, 3), (2, 4)], []),
    ("Split", {"axis": 1, "num_outputs": 3}, [(2, 7)], []),
    ("Slice", {}, [(5, 7)], [np.array([1, -1], INTS), np.array([5, -9], INTS), np.array([0, 1], INTS), np.array([2, -3], INTS)]),
    ("Slice", {}, [(5, 7)], [np.array([-1], INTS), np.array([-99], INTS), np.array([1], INTS), np.array([-1], INTS)]),
    ("Expand", {}, [(3, 1)], [np.array([2, 1, 4], INTS)]),
    ("Tile", {}, [(2, 3)], [np.array([2, 2], INTS)]),
    ("Trilu", {"upper": 0}, [(4, 4)], [np.array(-1, INTS)]),
    ("EyeLike", {"k": 1}, [(3, 4)], []),
    ("Gather", {"axis": 1}, [(2, 5)], [np.array([[0, -1], [2, 2]], INTS)]),
    ("Gather", {"axis": 1}, [(2, 5)], [np.array([1, 2, 3], INTS)]),
    ("Gather", {"axis": 1}, [(2, 5)], [np.array(-2, INTS)]),
    ("GatherElements", {"axis": 1}, [(2, 3)], [np.array([[0, -1], [2, 1]], INTS)]),
    ("GatherND", {"batch_dims": 1}, [(2, 3, 4)], [np.array([[1], [0]], INTS)]),
    ("ScatterElements", {"axis": 1}, [(2, 5)], [np.array([[1, 3], [0, 4]], INTS), random(2, 2)]),
    ("ScatterND", {"reduction": "add"}, [(4, 3)], [np.array([[1], [3]], INTS), random(2, 3)]),
    ("Pad", {}, [IMAGE], [np.array([0, 0, 1, 2, 0, 0, 3, 0], INTS), np.float32(1.5)]),
    ("Pad", {"mode": "reflect"}, [IMAGE], [np.array([0, 0, 1, 2, 0, 0, 3, 0], INTS)]),
    ("Pad", {"mode": "edge"}, [(2, 5)], [np.array([1, 2, 0, 3], INTS)]),
    ("Pad", {"mode": "wrap"}, [(2, 5)], [np.array([0, 2, 0, 3], INTS)]),
    ("DepthToSpace", {"blocksize": 2}, [IMAGE], []),
    ("DepthToSpace", {"blocksize": 2, "mode": "CRD"}, [IMAGE], []),
    ("SpaceToDepth", {"blocksize": 2}, [IMAGE], []),
    ("ReverseSequence", {}, [(4, 2, 3)], [np.array([2, 4], INTS)]),
    ("Compress", {"axis": 1}, [(2, 4)], [np.array([True, False, True, True])]),
    ("OneHot", {}, [], [np.array([0, 2, -1], INTS), np.array(3, INTS), np.array([-1, 1], np.float32)]),
    ("GridSample", {}, [(1, 2, 4, 4), (1, 3, 3, 2)], []),
    ("Resize", {}, [IMAGE], ["", np.array([1, 1, 2, 2], np.float32)]),
    ("Resize", {"mode": "linear"}, [IMAGE], ["", np.array([1, 1, 0.5, 0.75], np.float32)]),
    ("Resize", {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}, [IMAGE], ["", np.array([1, 1, 2, 3], np.float32)]),
    ("Resize", {"mode": "cubic"}, [IMAGE], ["", "", np.array([1, 4, 9, 8], INTS)]),
    ("Resize", {"nearest_mode": "ceil"}, [IMAGE], ["", "", np.array([1, 4, 4, 11], INTS)]),
    ("BatchNormalization", {}, [IMAGE, (4,), (4,), (4,)], [np.abs(random(4)) + 0.5]),
    ("InstanceNormalization", {}, [IMAGE, (4,), (4,)], []),
    ("LayerNormalization", {"axis": 1}, [IMAGE, IMAGE[1:], IMAGE[1:]], []),
    ("Conv", {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2], "group": 2}, [IMAGE, (6, 2, 3, 2), (6,)], []),
    ("Conv", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, [IMAGE, (3, 4, 3, 3)], []),
    ("Conv", {"auto_pad": "SAME_LOWER"}, [(1, 3, 9), (2, 3, 4)], []),
    ("CausalConvWithState", {"activation": "silu"}, [(1, 4, 6), (4, 1, 3), (4,), (1, 4, 2)], []),
    ("DeformConv", {"pads": [1, 0, 1, 2], "strides": [2, 1], "dilations": [1, 2]}, [IMAGE, (2, 4, 3, 2), (1, 12, 3, 8), (2,), (1, 6, 3, 8)], []),
    ("DeformConv", {"group": 2, "offset_group": 2}, [IMAGE, (2, 2, 2, 2), (1, 16, 5, 7)], []),
    ("ConvTranspose", {"strides": [2, 2], "output_padding": [1, 1], "pads": [1, 1, 1, 1]}, [IMAGE, (4, 2, 3, 3), (2,)], []),
    ("ConvTranspose", {"strides": [2, 3], "pads": [0, 1, 1, 2]}, [IMAGE, (4, 2, 3, 3)], []),
    ("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 0, 1]}, [IMAGE], []),
    ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, [IMAGE], []),
    ("AveragePool", {"kernel_shape": [3, 3], "pads": [0, 1, 2, 1]}, [IMAGE], []),
    ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 0, 0], "count_include_pad": 1}, [IMAGE], []),
    ("LpPool", {"kernel_shape": [2, 2]}, [IMAGE], []),
    ("GlobalMaxPool", {}, [IMAGE], []),
    ("LSTM", {"hidden_size": 3}, [(5, 2, 4)], [random(1, 12, 4), random(1, 12, 3), random(1, 24)]),
    ("GRU", {"hidden_size": 3, "linear_before_reset": 1}, [(5, 2, 4)], [random(1, 9, 4), random(1, 9, 3), random(1, 18)]),
    ("GRU", {"hidden_size": 3}, [(5, 2, 4)], [random(1, 9, 4), random(1, 9, 3), random(1, 18)]),
    ("RNN", {"hidden_size": 3}, [(5, 2, 4)], [random(1, 3, 4), random(1, 3, 3), random(1, 6)]),
]  # fmt: skip


def both(made: onnx.ModelProto, given: dict[str, np.ndarray[Any, Any]]) -> None:
    """Compare the module of a model with ONNX's reference implementation."""
    wanted = ReferenceEvaluator(made).run(None, given)
    module, _ = module_of(made, "net.onnx")
    for found, right in zip(module(*map(torch.from_numpy, given.values())), wanted, strict=True):
        assert tuple(found.shape) == right.shape
        np.testing.assert_allclose(found.numpy(), right, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_an_operator(case: tuple[str, dict[str, Any], list[tuple[int, ...]], list[Any]]) -> None:
    operator, attributes, shapes, constants = case
    data = {f"x{place}": random(*shape, seed=place + 1) for place, shape in enumerate(shapes)}
    fixed = {f"c{place}": value for place, value in enumerate(constants) if not isinstance(value, str)}
    inputs = [*data, *("" if isinstance(value, str) else f"c{place}" for place, value in enumerate(constants))]
    count = {"Split": 3, "TopK": 2, "LSTM": 3, "GRU": 2, "RNN": 2, "CausalConvWithState": 2}.get(operator, 1)
    outputs = [f"y{place}" for place in range(count)]
    node = helper.make_node(operator, inputs, outputs, **attributes)
    # A graph needs an input, also where an operator of constants does not read it.
    given = data or {"unused": random(1, seed=1)}
    both(model([node], {name: value.shape for name, value in given.items()}, outputs, fixed, OPSET), given)


@pytest.mark.parametrize(("rows", "is_plain"), [(6, True), (5, False)])
def test_indices_that_may_be_negative_are_read_without_it(rows: int, is_plain: bool) -> None:
    """tf2onnx writes these nodes for tf.gather. Added to 5 rows, 6 would be another index."""
    nodes = [
        helper.make_node("Add", ["x", "rows"], ["more"]),
        helper.make_node("Less", ["x", "zero"], ["below"]),
        helper.make_node("Not", ["below"], ["above"]),
        *(helper.make_node("Cast", [name], [f"{name}_1"], to=onnx.TensorProto.INT64) for name in ("below", "above")),
        helper.make_node("Mul", ["x", "above_1"], ["a"]),
        helper.make_node("Mul", ["below_1", "more"], ["b"]),
        helper.make_node("Add", ["a", "b"] if is_plain else ["a", "rows"], ["index"]),
        helper.make_node("Gather", ["table", "index"], ["y"]),
    ]
    constants = {"rows": np.array(rows), "zero": np.array(0), "table": random(12, 3)[: rows if is_plain else 12]}
    made = model(nodes, {"x": [1, 4]}, ["y"], constants, kind=onnx.TensorProto.INT64)
    both(made, {"x": np.array([[0, 3, 1, 5]])})
    module, _ = module_of(made, "net.onnx")
    assert (len(list(module.children())) == 1) == is_plain


@pytest.mark.parametrize("scale", [np.float32(0.5), np.array([0.5, 2, 1], np.float32)])
def test_weights_of_floats_of_8_bits(scale: Any) -> None:
    weights = numpy_helper.to_array(helper.make_tensor("w", onnx.TensorProto.FLOAT8E4M3FN, [4, 3], random(12)))
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["real"], axis=1),
        helper.make_node("MatMul", ["x", "real"], ["y"]),
    ]
    both(model(nodes, {"x": [2, 4]}, ["y"], {"w": weights, "s": scale}), {"x": random(2, 4)})


def test_activations_of_floats_of_8_bits_are_refused() -> None:
    zero = numpy_helper.to_array(helper.make_tensor("z", onnx.TensorProto.FLOAT8E4M3FN, [], [0.0]))
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], "first")
    with pytest.raises(InvalidModelError) as caught:
        module_of(model([node], {"x": [1, 4]}, ["y"], {"s": np.float32(0.5), "z": zero}), "net.onnx")
    assert str(caught.value) == (
        "'net.onnx': node 'first' (QuantizeLinear) quantizes with floats of 8 or 4 bits, which the NPU does not have. Quantize to int8, or "
        "compile the float model."
    )


LINEAR = {"coefficients": [0.5, -1.0, 0.25, 2.0, 0.1, -0.3], "intercepts": [0.1, -0.2]}


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("Scaler", {"offset": [0.5, 1.0, -1.0], "scale": [2.0, 0.5, 3.0]}),
        ("Binarizer", {"threshold": 0.25}),
        *[("Normalizer", {"norm": norm}) for norm in ("MAX", "L1", "L2")],
        ("LinearRegressor", {**LINEAR, "targets": 2}),
        ("LinearClassifier", {**LINEAR, "classlabels_ints": [7, 3], "post_transform": "SOFTMAX"}),
        (
            "LinearClassifier",
            {
                "coefficients": [0.5, -1.0, 0.25],
                "intercepts": [0.1],
                "classlabels_ints": [0, 1],
                "post_transform": "LOGISTIC",
            },
        ),
    ],
)
def test_an_operator_around_networks(operator: str, attributes: dict[str, Any]) -> None:
    outputs = ["y", "scores"][: 1 + (operator == "LinearClassifier")]
    node = helper.make_node(operator, ["x"], outputs, domain="ai.onnx.ml", **attributes)
    both(model([node], {"x": [4, 3]}, outputs), {"x": random(4, 3)})


@pytest.mark.parametrize("classes", [[0, 1, 2], [5, 1, 9]])
def test_the_classes_of_a_classifier(classes: list[int]) -> None:
    nodes = [
        helper.make_node("ArgMax", ["x"], ["best"], axis=1, keepdims=0),
        helper.make_node("ArrayFeatureExtractor", ["classes", "best"], ["y"], domain="ai.onnx.ml"),
    ]
    both(model(nodes, {"x": [4, 3]}, ["y"], {"classes": np.array(classes, INTS)}), {"x": random(4, 3)})


def test_operands_without_elements_are_left_out() -> None:
    node = helper.make_node("Concat", ["none", "x", "none"], ["y"], axis=1)
    module, _ = module_of(model([node], {"x": [2, 3]}, ["y"], {"none": np.zeros((2, 0), np.float32)}), "net.onnx")
    assert not list(module.named_buffers()) and not list(module.named_parameters())
    assert torch.equal(module(torch.ones(2, 3))[0], torch.ones(2, 3))


def test_a_spectrum_of_values_without_an_axis_of_parts() -> None:
    node = helper.make_node("STFT", ["x", "step", "window"], ["y"])
    constants = {"step": np.array(4, INTS), "window": np.hanning(8).astype(np.float32)}
    x = torch.from_numpy(random(1, 20))
    flat, real = (
        module_of(model([node], {"x": value.shape}, ["y"], constants), "net.onnx")[0](value)[0]
        for value in (x, x[..., None])
    )
    assert flat.shape == (1, 4, 5, 2) and torch.equal(flat, real)


def test_a_transform_that_is_too_long_for_a_matrix() -> None:
    node = helper.make_node("DFT", ["x"], ["y"], "spectrum")
    with pytest.raises(InvalidModelError) as caught:
        module_of(model([node], {"x": [1, 4097, 1]}, ["y"]), "net.onnx")
    assert str(caught.value) == (
        "'net.onnx': node 'spectrum' (DFT) transforms 4097 values; the matrix of a transform has 1 to 16777216 weights."
    )


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize(
    "constant", [np.float32(3), np.full((1, 1), 3, np.float32), random(1, 5), np.full((1, 1, 1), 3, np.float32)]
)
def test_a_constant_on_either_side(operator: str, constant: Any) -> None:
    nodes = [helper.make_node(operator, ["x", "c"], ["y"]), helper.make_node(operator, ["c", "x"], ["z"])]
    both(model(nodes, {"x": [2, 5]}, ["y", "z"], {"c": constant}), {"x": np.abs(random(2, 5)) + 1})


def of_adaptive_pool() -> tuple[list[onnx.NodeProto], dict[str, Any]]:
    """Return the nodes that torch.onnx writes for pooling of 3 rows to 2: rows 0 and 1, and rows 1 and 2."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["moved"], perm=[2, 3, 0, 1]),
        helper.make_node("GatherND", ["moved", "places"], ["taken"]),
        helper.make_node("Transpose", ["taken"], ["index"], perm=[4, 5, 0, 1, 2, 3]),
        helper.make_node("Where", ["never", "zero", "index"], ["masked"]),
    ]
    for first in (0, 1):
        nodes.append(helper.make_node("Gather", ["masked", f"n{first}"], [f"row{first}"], axis=3))
        nodes += [
            helper.make_node("Gather", [f"row{first}", f"n{second}"], [f"part{first}{second}"], axis=4)
            for second in (0, 1)
        ]
    for name, left, right in (("a", "part00", "part01"), ("b", "a", "part10"), ("c", "b", "part11")):
        nodes.append(helper.make_node("Add", [left, right], [name]))
    nodes.append(helper.make_node("Div", ["c", "counts"], ["y"]))
    window = np.array([[0, 1], [1, 2]])
    places = np.stack(np.broadcast_arrays(window[:, :, None, None], window[None, None]), -1)
    return nodes, {
        "places": places, "never": np.zeros((2, 1, 1), bool), "zero": np.float32(0), "n0": np.array(0), "n1": np.array(1),
        "counts": np.full((2, 2), 4, np.float32),
    }  # fmt: skip


def of_group_norm() -> tuple[list[onnx.NodeProto], dict[str, Any]]:
    nodes = [
        helper.make_node("Reshape", ["x", "grouped"], ["a"]),
        helper.make_node("InstanceNormalization", ["a", "ones", "zeros"], ["b"]),
        helper.make_node("Reshape", ["b", "whole"], ["c"]),
        helper.make_node("Mul", ["c", "scale"], ["d"]),
        helper.make_node("Add", ["bias", "d"], ["y"]),
    ]
    return nodes, {
        "grouped": np.array([0, 2, -1], INTS), "ones": np.ones(2, np.float32), "zeros": np.zeros(2, np.float32),
        "whole": np.array([1, 4, 3, 3], INTS), "scale": random(4, 1, 1), "bias": random(1, 4, 1, 1, seed=1),
    }  # fmt: skip


def of_attention() -> tuple[list[onnx.NodeProto], dict[str, Any]]:
    """Return the nodes of attention of ``x`` to itself, with scaled keys in the way that torch.onnx transposes them."""
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[0, 2, 1]),
        helper.make_node("Reshape", ["b", "keys"], ["c"]),
        helper.make_node("Mul", ["x", "root"], ["queries"]),
        helper.make_node("Mul", ["c", "root"], ["scaled"]),
        helper.make_node("MatMul", ["queries", "scaled"], ["d"]),
        helper.make_node("Add", ["d", "mask"], ["e"]),
        helper.make_node("Softmax", ["e"], ["f"], axis=-1),
        helper.make_node("MatMul", ["f", "x"], ["y"]),
    ]
    return nodes, {
        "flat": np.array([-1, 3, 3], INTS), "keys": np.array([1, 4, 3, 3], INTS), "root": np.array([0.8], np.float32), "mask": random(3, 3),
    }  # fmt: skip


def of_reciprocal_root() -> tuple[list[onnx.NodeProto], dict[str, Any]]:
    return [helper.make_node("Sqrt", ["x"], ["root"]), helper.make_node("Reciprocal", ["root"], ["y"])], {}


def of_softmax() -> tuple[list[onnx.NodeProto], dict[str, Any]]:
    nodes = [
        helper.make_node("ReduceMax", ["x", "axis"], ["most"]),
        helper.make_node("Sub", ["x", "most"], ["shifted"]),
        helper.make_node("Exp", ["shifted"], ["exp"]),
        helper.make_node("ReduceSum", ["exp", "negative"], ["sum"]),
    ]
    return [*nodes, helper.make_node("Div", ["exp", "sum"], ["y"])], {"axis": np.array([1]), "negative": np.array([-3])}


def of_log_softmax() -> tuple[list[onnx.NodeProto], dict[str, Any]]:
    nodes, constants = of_softmax()
    end = [helper.make_node("Log", ["sum"], ["log"]), helper.make_node("Sub", ["shifted", "log"], ["y"])]
    return [*nodes[:-1], *end], constants


def of_linear() -> tuple[list[onnx.NodeProto], dict[str, Any]]:
    """Return a layer behind a product with ones."""
    nodes = [
        helper.make_node("Mul", ["x", "ones"], ["a"]),
        helper.make_node("MatMul", ["a", "weights"], ["b"]),
        helper.make_node("Add", ["b", "bias"], ["y"]),
    ]
    return nodes, {"ones": np.ones((3, 1), np.float32), "weights": random(3, 5), "bias": random(5, seed=1)}


def of_mean() -> tuple[list[onnx.NodeProto], dict[str, Any]]:
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["sum"]), helper.make_node("Div", ["sum", "count"], ["y"])]
    return nodes, {"axes": np.array([1, -1]), "count": np.full((3, 1), 12, np.float32)}


def of_exchange() -> tuple[list[onnx.NodeProto], dict[str, Any]]:
    return [helper.make_node("Transpose", ["x"], ["y"], perm=[0, 3, 2, 1])], {}


IDIOMS = [
    (of_linear, "linear.default"),
    (of_mean, "mean.dim"),
    (of_exchange, "transpose.int"),
    (of_softmax, "softmax.int"),
    (of_log_softmax, "log_softmax.int"),
    (of_reciprocal_root, "rsqrt.default"),
    (of_group_norm, "group_norm.default"),
    (of_attention, "scaled_dot_product_attention.default"),
    (of_adaptive_pool, "adaptive_avg_pool2d.default"),
]


@pytest.mark.parametrize(("nodes", "operator"), IDIOMS, ids=[operator for _, operator in IDIOMS])
def test_nodes_that_exporters_write_for_one_operator(nodes: Any, operator: str) -> None:
    written, constants = nodes()
    made = model(written, {"x": [1, 4, 3, 3]}, ["y"], constants)
    both(made, {"x": np.abs(random(1, 4, 3, 3)) + 1})
    module, examples = module_of(made, "net.onnx")
    graph = torch.export.export(module, tuple(examples)).graph
    assert [str(node.target) for node in graph.nodes if node.op == "call_function"] == [f"aten.{operator}"]


def test_zeros_for_rows_without_a_key_are_left_out_behind_attention() -> None:
    """ONNX's definition of Attention has this choice. A choice by another maximum stays."""
    written, constants = of_attention()
    guard = [
        helper.make_node("ReduceMax", ["mask", "last"], ["most"]),
        helper.make_node("Equal", ["most", "infinite"], ["hidden"]),
        helper.make_node("Where", ["hidden", "zero", "f"], ["g"]),
        helper.make_node("MatMul", ["g", "x"], ["y"]),
    ]
    x, mask = np.abs(random(1, 4, 3, 3)) + 1, random(3, 3)
    mask[0, 1] = -np.inf
    for axis, choices in (-1, []), (0, ["aten.where.self"]):
        constants |= {"last": np.array([axis]), "infinite": np.float32(-np.inf), "zero": np.float32(0)}
        known = {name: value for name, value in constants.items() if name != "mask"}
        made = model([*written[:-1], *guard], {"x": [1, 4, 3, 3], "mask": [3, 3]}, ["y"], known)
        both(made, {"x": x, "mask": mask})
        module, _ = module_of(made, "net.onnx")
        graph = torch.export.export(module, (torch.from_numpy(x), torch.from_numpy(mask))).graph
        assert [str(node.target) for node in graph.nodes if "where" in str(node.target)] == choices


def test_a_maximum_of_another_axis_makes_no_softmax() -> None:
    nodes, constants = of_softmax()
    made = model(nodes, {"x": [1, 4, 3, 3]}, ["y"], {**constants, "axis": np.array([2])})
    both(made, {"x": random(1, 4, 3, 3)})
    module, examples = module_of(made, "net.onnx")
    assert "softmax" not in str(torch.export.export(module, tuple(examples)).graph)


def test_a_mask_with_infinite_values_is_a_buffer() -> None:
    mask = np.where(np.tri(3), 0, -np.inf).astype(np.float32)
    module, _ = module_of(
        model([helper.make_node("Add", ["x", "mask"], ["y"])], {"x": [3, 3]}, ["y"], {"mask": mask}), "net.onnx"
    )
    assert [name for name, _ in module.named_buffers()] == ["Add_y.b"] and not list(module.parameters())


def test_an_old_softmax_joins_axes() -> None:
    made = model([helper.make_node("Softmax", ["x"], ["y"])], {"x": [2, 3, 4]}, ["y"], opset=11)
    x = random(2, 3, 4)
    module, _ = module_of(made, "net.onnx")
    np.testing.assert_allclose(module(torch.from_numpy(x))[0].numpy().sum(axis=(1, 2)), [1, 1], rtol=1e-6)


def test_a_shape_that_is_computed_from_shapes_is_a_constant() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["rows"]),
        helper.make_node("Concat", ["rows", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["y"]),
    ]
    constants = {"one": np.array([1], INTS), "rest": np.array([-1], INTS)}
    both(model(nodes, {"x": [2, 3, 4]}, ["y"], constants), {"x": random(2, 3, 4)})


def test_branches_and_loops_of_known_conditions_are_written_out() -> None:
    def body(nodes: list[onnx.NodeProto], inputs: list[str], outputs: list[str]) -> onnx.GraphProto:
        kinds = {"i": onnx.TensorProto.INT64, "go": onnx.TensorProto.BOOL, "on": onnx.TensorProto.BOOL}
        return helper.make_graph(
            nodes,
            "body",
            [helper.make_tensor_value_info(name, kinds.get(name, 1), None) for name in inputs],
            [helper.make_tensor_value_info(name, kinds.get(name, 1), None) for name in outputs],
        )

    step = body(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Mul", ["state", "x"], ["more"]),
            helper.make_node("Relu", ["more"], ["row"]),
        ],
        ["i", "go", "state"],
        ["on", "more", "row"],
    )
    yes = body([helper.make_node("Neg", ["end"], ["negative"])], [], ["negative"])
    no = body([helper.make_node("Abs", ["end"], ["absolute"])], [], ["absolute"])
    nodes = [
        helper.make_node("Loop", ["three", "true", "x"], ["end", "rows"], body=step),
        helper.make_node("If", ["true"], ["y"], then_branch=yes, else_branch=no),
    ]
    constants = {"three": np.array(3, INTS), "true": np.array(True)}
    x = random(2, 3)
    module, _ = module_of(model(nodes, {"x": [2, 3]}, ["y", "rows"], constants), "net.onnx")
    y, rows = module(torch.from_numpy(x))
    np.testing.assert_allclose(y.numpy(), -(x**4), rtol=1e-5)
    np.testing.assert_allclose(rows.numpy(), np.maximum([x**2, x**3, x**4], 0), rtol=1e-5)


def test_a_layer_without_an_initial_state_has_no_product_with_one_in_its_first_step() -> None:
    """A GRU of one step, whose state is a matrix product only if the file has it."""
    given: dict[str, np.ndarray[Any, Any]] = {"x": random(1, 2, 4)}
    weights = {"w": random(1, 9, 4), "r": random(1, 9, 3), "b": random(1, 18)}
    for state, products in ([], 1), (["h"], 3):
        names = ["x", "w", "r", "b", "", *state]
        made = model(
            [helper.make_node("GRU", names, ["y"], hidden_size=3)],
            {"x": [1, 2, 4], **{name: [1, 2, 3] for name in state}},
            ["y"],
            weights,
        )
        inputs = given | {name: random(1, 2, 3, seed=1) for name in state}
        both(made, inputs)
        module, _ = module_of(made, "net.onnx")
        graph = torch.export.export(module, tuple(map(torch.from_numpy, inputs.values()))).graph
        assert sum("linear" in str(node.target) for node in graph.nodes) == products


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 27, reason="ONNX has LinearAttention from version 27")
@pytest.mark.parametrize(
    ("rule", "heads", "others"),
    [
        ("linear", 2, {"past": (1, 2, 4, 4)}),
        ("gated", 4, {"decay": (1, 3, 8)}),
        ("delta", 2, {"beta": (1, 3, 1)}),
        ("gated_delta", 2, {"past": (1, 2, 4, 4), "decay": (1, 3, 2), "beta": (1, 3, 2)}),
    ],
)
def test_linear_attention_with_any_of_its_inputs(rule: str, heads: int, others: dict[str, tuple[int, ...]]) -> None:
    shapes = {"q": (1, 3, 4 * heads), "k": (1, 3, 8), "v": (1, 3, 8), **others}
    places = ["q", "k", "v", *(name if name in others else "" for name in ("past", "decay", "beta"))]
    node = helper.make_node(
        "LinearAttention", places, ["y", "state"], update_rule=rule, q_num_heads=heads, kv_num_heads=2
    )
    given = {name: random(*shape, seed=place) for place, (name, shape) in enumerate(shapes.items())}
    both(model([node], shapes, ["y", "state"], opset=27), given)
