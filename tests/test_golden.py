# SPDX-License-Identifier: BSD-3-Clause
"""A small graph in each stage of the compiler, as text to read: a change of any stage shows in tests/golden."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from openneutron.compiler import compile_graph
from openneutron.isa import decode, listing
from tests.support.oracle import TARGET
from tests.support.small_graphs import small_graph


@pytest.mark.imxrt700
def test_stages_of_a_small_graph(golden: Callable[[str, str], None]) -> None:
    graph = small_graph()
    compiled = compile_graph(graph, TARGET)
    golden("1_graph", f"{graph}\n")
    golden("2_legalized", f"{compiled.legalized}\n")
    golden("3_kernel_calls", "".join(f"{call}\n" for call in compiled.schedule.calls))
    golden("4_listing", listing(decode(compiled.program)))
