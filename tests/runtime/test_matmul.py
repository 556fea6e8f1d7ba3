# SPDX-License-Identifier: BSD-3-Clause
"""Products of matrices: the kernel against LiteRT's reference kernel."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openneutron.ir import Graph, Node
from openneutron.ops import reject
from tests.runtime import element_calls
from tests.support import oracle


def _graph(a: tuple[int, ...], b: tuple[int, ...], y: tuple[int, ...], numbers: list[float], x: bool, t: bool) -> Graph:
    node = Node("batch_matmul", ("a", "b"), ("y",), {"adj_x": x, "adj_y": t})
    a_scale, a_zero, b_scale, b_zero, y_scale, y_zero = numbers
    inputs = [oracle.activation("a", a, a_scale, int(a_zero)), oracle.activation("b", b, b_scale, int(b_zero))]
    return oracle.graph_of(inputs, [node], [oracle.activation("y", y, y_scale, int(y_zero))])


@st.composite
def products(draw: st.DrawFn) -> Graph:
    """Ranks 2 to 5, batches that broadcast on either side, any zero points."""
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    batches = draw(st.lists(st.integers(1, 3), max_size=3))
    sides = [[1 if random.random() < 0.3 else extent for extent in batches] for _ in range(2)]
    sides[1] = sides[1][draw(st.integers(0, len(batches))) :]
    rows, depth, columns = draw(st.integers(1, 9)), draw(st.integers(1, 40)), draw(st.sampled_from([1, 3, 8, 33, 40]))
    x, t = draw(st.booleans()), draw(st.booleans())
    a = (*sides[0], *((depth, rows) if x else (rows, depth)))
    b = (*sides[1], *((columns, depth) if t else (depth, columns)))
    y = (*np.broadcast_shapes(tuple(sides[0]), tuple(sides[1])), rows, columns)
    scales = np.exp(random.uniform(np.log(1e-3), np.log(0.5), 2))
    y_scale = scales[0] * scales[1] * 64 * depth**0.5 * random.uniform(0.3, 3)
    zeros = random.integers(-128, 128, 3)
    return _graph(a, b, y, [scales[0], zeros[0], scales[1], zeros[1], float(y_scale), zeros[2]], x, t)


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(products(), st.integers(0, 2**31))
def test_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    element_calls.assert_bit_exact(graph, seed)


def test_what_can_not_be_multiplied_is_said() -> None:
    numbers = [0.1, 0, 0.1, 0, 0.1, 0]
    graph = _graph((2, 3), (4, 5), (2, 5), numbers, False, False)
    assert reject(graph, graph.nodes[0]) == "its matrices are [2, 3] and [4, 5], which do not multiply"
    graph = _graph((1, 32769), (32769, 1), (1, 1), numbers, False, False)
    assert reject(graph, graph.nodes[0]) == "it adds 32769 products; at most 32768"
    graph = _graph((1, 32768), (32768, 1), (1, 1), numbers, False, False)
    assert reject(graph, graph.nodes[0]) is None
