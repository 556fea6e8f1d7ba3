# SPDX-License-Identifier: BSD-3-Clause
"""A file whose structures can't be right is refused where it is read, with the structure in the message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from openneutron import litert
from openneutron.device.mixed import FileSimulator, compile_file
from openneutron.errors import InvalidModelError, OpenNeutronWarning
from openneutron.litert.read import unpack
from openneutron.litert.write import pack
from tests.support.litert_files import BUILTIN, FileBuilder, mixed_file
from tests.support.stream_files import streaming_file


def stream() -> Any:
    return unpack(streaming_file(np.full((1, 2, 4, 2), -3, np.int8)), "stream")


def mixed() -> Any:
    return unpack(mixed_file(signature=True), "mixed")


def operator(model: Any, index: int) -> Any:
    return model.subgraphs[0].operators[index]


def _set(path: str, value: Any) -> Callable[[Any], None]:
    """Return a change of the attribute, or of the item of an array, at the end of a path such as ``operators.2.inputs.0``."""

    def change(model: Any) -> None:
        *steps, last = path.split(".")
        found = model if steps and steps[0] == "model" else model.subgraphs[0]
        for step in steps[1:] if found is model else steps:
            found = found[int(step)] if step.isdigit() else getattr(found, step)
        if last.isdigit():
            found[int(last)] = value
        else:
            setattr(found, last, value)

    return change


def int32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@pytest.mark.parametrize(
    ("made", "change", "words"),
    [
        (mixed, _set("outputs", int32(-1)), "the list of outputs names tensor -1; there are 17"),
        (mixed, _set("inputs", int32(22)), "the list of inputs names tensor 22; there are 17"),
        (mixed, _set("operators.0.inputs", int32(-2)), "operator 0 (QUANTIZE) names tensor -2; there are 17"),
        (mixed, _set("operators.1.outputs", int32(99)), "operator 1 (CONV_2D) names tensor 99; there are 17"),
        (mixed, _set("operators.1.opcodeIndex", 50), "operator 1 names operator code 50; there are 9"),
        (mixed, _set("tensors.0.buffer", 77), "tensor 0 names buffer 77; there are 8"),
        (mixed, _set("tensors.0.shape", int32(1, -3)), "tensor 0 has shape [1, -3]; an extent is 0 or more, or -1 where it is not known"),
        (mixed, _set("tensors.3.shape", int32(8, 3, 3, 5)), "tensor 3 has shape [8, 3, 3, 5], which takes 360 bytes; its buffer has 288"),
        (mixed, _set("tensors.3.shape", int32(-1, 3, 3, 4)), "tensor 3 has shape [-1, 3, 3, 4] and a buffer of 288 bytes; a constant has no open extents"),
        (mixed, _set("model.signatureDefs.0.inputs.0.tensorIndex", 33), "signature 0 names tensor 33; there are 17"),
        (mixed, _set("model.metadata.0.buffer", 10), "metadata 0 names buffer 10; there are 8"),
        (mixed, _set("operators.2.builtinOptionsType", 1), "operator 2 (MAX_POOL_2D) has the options of another operator, Conv2DOptions; its own are Pool2DOptions"),
        (stream, _set("operators.0.builtinOptions.initSubgraphIndex", 7), "operator 0 (CALL_ONCE) names subgraph 7; there are 2"),
        (stream, _set("operators.0.builtinOptionsType", 0), "operator 0 (CALL_ONCE) has no CallOnceOptions"),
    ],
)  # fmt: skip
def test_a_structure_that_can_not_be_right(made: Callable[[], Any], change: Callable[[Any], None], words: str) -> None:
    model = made()
    change(model)
    with pytest.raises(InvalidModelError) as caught:
        litert.read(pack(model))
    assert str(caught.value) == f"'model' is damaged: {words}. Convert the model again."


def test_options_of_a_call_that_are_those_of_a_convolution() -> None:
    model = stream()
    once = operator(model, 0)
    once.builtinOptionsType, once.builtinOptions = schema.BuiltinOptions.Conv2DOptions, schema.Conv2DOptionsT()
    with pytest.raises(InvalidModelError) as caught:
        litert.read(pack(model))
    assert str(caught.value) == (
        "'model' is damaged: operator 0 (CALL_ONCE) has the options of another operator, Conv2DOptions; its own are "
        "CallOnceOptions. Convert the model again."
    )


def test_an_operator_without_its_operand_stays_on_the_cpu() -> None:
    model = mixed()
    operator(model, 0).inputs = int32()
    compiled = compile_file(litert.read(pack(model)), "m")
    assert compiled.partitioning.on_cpu[0].reason == "it has 0 inputs and 1 outputs; it takes 1 and gives 1"


def test_an_output_that_nothing_computes() -> None:
    b = FileBuilder()
    b.tensor("x", (1, 4))
    b.tensor("y", (1, 4))
    b.tensor("z", (1, 4))
    b.operator(BUILTIN.RELU, ["x"], ["y"])
    with pytest.raises(InvalidModelError) as caught:
        litert.read(b.finish(["x"], ["y", "z"]))
    assert str(caught.value) == "the model's graph is damaged: output 'z' is never computed."


def test_tables_that_refer_to_each_other_take_no_more_memory_than_the_file_allows() -> None:
    """A vector of references to one table is 4 bytes for each object that a reader makes."""
    b = FileBuilder()
    b.tensor("x", (1, 4))
    b.tensor("y", (1, 4))
    b.operator(BUILTIN.RELU, ["x"], ["y"])
    data = bytearray(b.finish(["x"], ["y"]))
    model = schema.Model.GetRootAs(bytes(data), 0)
    place = model._tab.Offset(8)
    vector = model._tab.Vector(place) - 4
    data[vector : vector + 4] = (1 << 20).to_bytes(4, "little")
    with pytest.raises(InvalidModelError) as caught:
        litert.read(bytes(data))
    assert str(caught.value) == (
        f"'model' is damaged: it refers to 1048578 tables; its size allows {len(data) // 4}. Convert the model again."
    )


def old_depthwise() -> bytes:
    b = FileBuilder()
    b.tensor("x", (1, 5, 5, 4), scale=0.04)
    b.constant("w", np.random.default_rng(0).integers(-127, 128, (1, 3, 3, 4), np.int8))
    b.constant("b", np.array([100, -100, 50, 0], np.int32))
    quant = b.graph.tensors[b.places["w"]].quantization
    quant.scale, quant.zeroPoint = np.array([0.01, 0.02, 0.03, 0.04], np.float32), np.zeros(4, np.int64)
    b.tensor("y", (1, 5, 5, 4), scale=0.09)
    b.operator(
        BUILTIN.DEPTHWISE_CONV_2D, ["x", "w", "b"], ["y"], "DepthwiseConv2DOptions", 3,
        padding=0, strideH=1, strideW=1, depthMultiplier=1, dilationHFactor=1, dilationWFactor=1,
    )  # fmt: skip
    return b.finish(["x"], ["y"])


def test_scales_of_a_depthwise_weight_along_another_axis_are_those_of_its_channels() -> None:
    """LiteRT 2.3 refuses what the first converters wrote: quantized_dimension 0 of a weight with one scale for each channel."""
    data = old_depthwise()
    with pytest.warns(OpenNeutronWarning) as caught:
        model = litert.read(data)
    assert [str(item.message) for item in caught] == [
        "'model': the scales of the depthwise weight 'w' are stated along another axis than its channels, which LiteRT 2.3 refuses; "
        "they are read as those of the channels, as older versions of LiteRT did."
    ]
    compiled = compile_file(model, "old")
    assert compiled.partitioning.on_cpu == ()
    x = np.random.default_rng(1).integers(-128, 128, (1, 5, 5, 4)).astype(np.int8)
    with pytest.warns(OpenNeutronWarning):
        (want,) = FileSimulator(data).run([x])
    (got,) = FileSimulator(compiled.to_bytes()).run([x])
    np.testing.assert_array_equal(got, want)
