# SPDX-License-Identifier: BSD-3-Clause
"""Random graphs through every stage to the simulated NPU, byte for byte against LiteRT's reference kernels."""

from __future__ import annotations

import pytest

from openneutron.compiler import CompileOptions
from openneutron.ops import BY_NAME, reject
from tests.support import oracle, random_graphs
from tests.support.random_recurrent import WITHOUT_REFERENCE


def test_every_operator_has_a_sampler() -> None:
    assert set(random_graphs.SAMPLERS) == set(BY_NAME)


@pytest.mark.parametrize("op", sorted(BY_NAME.keys() - WITHOUT_REFERENCE))
def test_one_operator_is_bit_exact(op: str) -> None:
    for seed in range(20):
        graph = random_graphs.single(op, seed)
        assert not any(reject(graph, node) for node in graph.nodes), (seed, str(graph))
        oracle.assert_bit_exact(graph, (seed,))


@pytest.mark.parametrize("block", range(10))
def test_graphs_of_several_operators_are_bit_exact(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        graph = random_graphs.several(seed)
        options = CompileOptions(io_place=("arena", "caller")[seed % 2], prefetch_constants=seed % 3 == 0)
        oracle.assert_bit_exact(graph, (seed,), options)
