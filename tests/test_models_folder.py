# SPDX-License-Identifier: BSD-3-Clause
"""The folder of test models: the trained ones, or networks of the same shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from openneutron import litert
from openneutron.compiler import compile_graph
from tests.support import made_networks, oracle
from tests.support.made_networks import TRAINED_MODELS


@pytest.fixture(scope="module")
def trained() -> Path:
    if not TRAINED_MODELS.is_dir():
        pytest.skip(f"{TRAINED_MODELS} is absent: it holds the trained models; the tests run on made networks instead")
    return TRAINED_MODELS


@pytest.mark.without_tiles("the memory of the NPU has constants too, among them tables of other sizes")
@pytest.mark.parametrize("name", made_networks.NETWORKS)
def test_a_made_network_has_the_operators_memory_and_cycles_of_its_model(name: str, trained: Path) -> None:
    made, model = made_networks.NETWORKS[name](), litert.read(trained / f"{name}.tflite").graph
    assert [node.op for node in made.nodes] == [node.op for node in model.nodes]
    one, other = compile_graph(made, oracle.TARGET).report, compile_graph(model, oracle.TARGET).report
    assert one.arena_bytes == other.arena_bytes
    cycles = [[item.cycles for item in report.operators if item.kernel != "softmax_s8"] for report in (one, other)]
    assert cycles[0] == cycles[1]
    # The exponentials of a softmax are a table of at most 1,024 bytes, which a smaller scale makes longer.
    assert abs(one.cycles - other.cycles) <= 1024 / oracle.TARGET.constants_memory.bandwidth.value
