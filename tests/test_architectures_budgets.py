# SPDX-License-Identifier: BSD-3-Clause
"""Real architectures from PyTorch within budgets: LiteRT's bytes, the least memory, and never slower for more.

``python -m tests.fuzz.architectures`` goes through more of them, and at both efforts.
"""

from __future__ import annotations

import pytest
import torch

import openneutron
from openneutron.compiler import compile_graph
from openneutron.options import CompileOptions
from tests import architectures
from tests.fuzz.architectures import graphs
from tests.fuzz.budgets import check_graph
from tests.support import oracle

LEAST_KIB = {
    "deeplab": 25.6,
    "densenet": 34.0,
    "pyramid": 19.2,
    "siamese": 3.2,
    "super_resolution": 8.0,
    "tcn": 1.1,
    "unet_bilinear": 14.5,
    "vit": 4.2,
}
"""The limits of the smallest budgets, input and output included; images have their channels outermost.

With tiles, the memory holds constants too, and the next tile beside the one in use: half of the bytes without a budget is the limit.
"""


@pytest.mark.parametrize("name", LEAST_KIB)
def test_architectures_within_budgets(name: str) -> None:
    (graph,) = graphs(name)
    in_tiles = oracle.TARGET.moves_tiles
    most = compile_graph(graph, oracle.TARGET).report.sram_bytes / 2 if in_tiles else LEAST_KIB[name] * 1024
    assert oracle.least_budget(graph, False, "arena") <= most
    for fetch, io, times in ((False, "arena", 1.3), (True, "caller", 1.7)):
        check_graph(graph, fetch, io, lambda least, most, times=times: [min(most, int(least * times))])


def test_a_program_of_the_least_budget_computes_what_one_without_a_budget_does() -> None:
    model, example = architectures.get("siamese")
    least = -(-oracle.least_budget(graphs("siamese")[0], False, "caller") // 1024)
    tight, free = (
        openneutron.compile(
            model, example, calibration=[example], options=CompileOptions(target=oracle.TARGET.name, sram_budget=budget)
        )
        for budget in (least * 1024, None)
    )
    for got, want in zip(tight.run(*example), free.run(*example), strict=True):
        assert torch.equal(got, want)
