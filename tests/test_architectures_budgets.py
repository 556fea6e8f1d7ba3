# SPDX-License-Identifier: BSD-3-Clause
"""Real architectures from PyTorch within budgets: LiteRT's bytes, the least memory, and never slower for more.

``python -m tests.fuzz.architectures`` goes through more of them, and at both efforts.
"""

from __future__ import annotations

import pytest
import torch

import openneutron
from openneutron.options import CompileOptions
from tests import architectures
from tests.fuzz.architectures import graphs
from tests.fuzz.budgets import check_graph
from tests.support.oracle import least_budget

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
"""The limits of the smallest budgets, input and output included; images have their channels outermost."""


@pytest.mark.without_tiles("the least budget in tiles may be a fourth too large: tests.fuzz.tiles")
@pytest.mark.parametrize("name", LEAST_KIB)
def test_architectures_within_budgets(name: str) -> None:
    (graph,) = graphs(name)
    assert least_budget(graph, False, "arena") <= LEAST_KIB[name] * 1024
    for fetch, io, times in ((False, "arena", 1.3), (True, "caller", 1.7)):
        check_graph(graph, fetch, io, lambda least, most, times=times: [min(most, int(least * times))])


def test_a_program_of_the_least_budget_computes_what_one_without_a_budget_does() -> None:
    model, example = architectures.get("siamese")
    least = -(-least_budget(graphs("siamese")[0], False, "caller") // 1024)
    tight, free = (
        openneutron.compile(model, example, calibration=[example], options=CompileOptions(sram_budget=budget))
        for budget in (least * 1024, None)
    )
    for got, want in zip(tight.run(*example), free.run(*example), strict=True):
        assert torch.equal(got, want)
