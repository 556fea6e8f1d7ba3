# SPDX-License-Identifier: BSD-3-Clause
"""A slice stays on the CPU where any of its numbers is computed at run time."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron import ops
from openneutron.ir import DType, Graph, Node, Tensor, constant, per_tensor

WORDS = {1: "begin", 2: "end", 3: "strides"}


@pytest.mark.parametrize("place", WORDS)
def test_a_strided_slice_by_computed_numbers_is_refused(place: int) -> None:
    quant = per_tensor(0.5, 0)
    numbers = [constant(f"n{index}", np.array([value], np.int32)) for index, value in ((1, 0), (2, 4), (3, 1))]
    computed = Tensor(f"n{place}", (1,), DType.INT32, None)
    numbers[place - 1] = computed
    source, result = (Tensor(name, (4,), DType.INT8, quant) for name in "xy")
    masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    node = Node("strided_slice", ("x", "n1", "n2", "n3"), ("y",), {**masks, "offset": False})
    graph = Graph("g", {each.name: each for each in (source, *numbers, result)}, (node,), ("x", computed.name), ("y",))
    reason = ops.reject(graph, node)
    assert reason is not None and WORDS[place] in reason, reason
