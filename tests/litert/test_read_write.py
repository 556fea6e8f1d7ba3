# SPDX-License-Identifier: BSD-3-Clause
"""Graphs to flatbuffers and back, and what damaged files say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openneutron import litert
from openneutron.errors import InvalidModelError
from tests.support.small_graphs import small_graph


def test_a_graph_comes_back_as_it_was() -> None:
    graph = small_graph()
    data = litert.write(graph)
    back = litert.read(data).graph
    assert str(back) == str(graph)
    for name, tensor in graph.tensors.items():
        assert back[name].quant == tensor.quant
        if tensor.data is not None:
            np.testing.assert_array_equal(back[name].data, tensor.data)
    assert litert.write(back) == data


def test_text_of_a_graph() -> None:
    assert str(small_graph()) == (
        "graph main(%x: int8[1,5,4,2] scale=0.1 zp=3) {\n"
        "  const %b: int32[3]\n"
        "  const %shape: int32[2]\n"
        "  const %w: int8[3,2,2,2] scale[3] axis=0\n"
        "  %c = conv_2d(%x, %w, %b) padding=SAME stride_h=2 stride_w=1 dilation_h=1 dilation_w=1 activation=RELU6"
        " : int8[1,3,4,3] scale=0.1 zp=3\n"
        "  %y = reshape(%c, %shape) new_shape=(1,36) : int8[1,36] scale=0.1 zp=3\n"
        "  return %y\n"
        "}"
    )


def test_a_file_that_is_no_model() -> None:
    with pytest.raises(InvalidModelError) as caught:
        litert.read(b"not a model at all")
    assert str(caught.value) == (
        "'model' is no LiteRT model: bytes 4 to 7 are b'a mo'; a .tflite file has b'TFL3' there."
    )


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError) as caught:
        litert.read(tmp_path / "nothing.tflite")
    assert str(caught.value) == "'nothing.tflite' can't be read: No such file or directory."


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_damaged_files_are_refused_or_read(data: st.DataObject) -> None:
    blob = bytearray(litert.write(small_graph()))
    for _ in range(data.draw(st.integers(1, 4))):
        blob[data.draw(st.integers(8, len(blob) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(8, len(blob)))
    try:
        litert.read(bytes(blob[:cut]))
    except InvalidModelError:
        return
