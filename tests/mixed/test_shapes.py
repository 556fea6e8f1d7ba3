# SPDX-License-Identifier: BSD-3-Clause
"""The results of SHAPE and RANK are constants of the compiled file."""

from __future__ import annotations

import numpy as np

from openneutron import litert
from openneutron.device.mixed import FileSimulator, compile_file
from openneutron.device.mixed.tables import with_known_shapes
from tests.support.litert_files import BUILTIN, FileBuilder, mixed_file


def resized(returned: bool = False) -> bytes:
    """Return a RESIZE_NEAREST_NEIGHBOR of 4x4 to the extents of a vector, an input, by SHAPE; ``returned``: they are
    also an output."""
    b = FileBuilder()
    b.tensor("x", (1, 4, 4, 2))
    b.tensor("size_of", (6, 8))
    b.tensor("size", (2,), "int32")
    b.operator(BUILTIN.SHAPE, ["size_of"], ["size"], "ShapeOptions", outType=2)
    b.tensor("y", (1, 6, 8, 2))
    b.operator(BUILTIN.RESIZE_NEAREST_NEIGHBOR, ["x", "size"], ["y"], "ResizeNearestNeighborOptions", 3)
    return b.finish(["x", "size_of"], ["y", "size"] if returned else ["y"])


def test_a_size_that_is_the_shape_of_another_tensor_is_constant() -> None:
    made = compile_file(litert.read(resized()), "m")
    assert made.partitioning.on_cpu == ()
    data = made.to_bytes()
    assert [node.op for node in litert.read(data).graph.nodes] == ["CUSTOM NeutronGraph"]
    x = np.arange(32, dtype=np.int8).reshape(1, 4, 4, 2)
    (got,) = FileSimulator(data).run([x, np.zeros((6, 8), np.int8)])
    (want,) = FileSimulator(resized()).run([x, np.zeros((6, 8), np.int8)])
    np.testing.assert_array_equal(got, want)


def test_a_shape_that_is_returned_is_still_computed() -> None:
    model = litert.read(resized(returned=True))
    assert with_known_shapes(model) is model


def test_a_file_that_asks_for_no_shape_is_left_as_it_is() -> None:
    model = litert.read(mixed_file())
    assert with_known_shapes(model) is model


def test_the_rank_is_constant_too() -> None:
    b = FileBuilder()
    b.tensor("x", (1, 4, 4, 2))
    b.tensor("r", (), "int32")
    b.operator(BUILTIN.RANK, ["x"], ["r"], "RankOptions")
    b.tensor("y", (1, 2), "int32")
    b.operator(BUILTIN.EXPAND_DIMS, ["r", "r"], ["y"], "ExpandDimsOptions")
    rank = with_known_shapes(litert.read(b.finish(["x"], ["y"]))).graph["r"].data
    assert rank is not None and rank.tolist() == 4
