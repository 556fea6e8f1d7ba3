# SPDX-License-Identifier: BSD-3-Clause
"""More effort: never slower than the default one, never more memory, and the report says what it gained."""

from __future__ import annotations

import pytest

from openneutron.compiler import Compiled, CompileOptions, compile_graph
from openneutron.compiler.search.tuning import DEFAULT, HIGH
from openneutron.errors import BudgetError, InvalidOptionError
from scripts.published_networks import cifarnet
from tests.support import oracle
from tests.support.random_images import image_graph


def compiled(seed: int, budget: int, effort: str, fetch: bool) -> Compiled | int:
    """The program, or the least budget where there is none."""
    options = CompileOptions(sram_budget=budget, effort=effort, prefetch_constants=fetch)
    try:
        return oracle.assert_bit_exact(image_graph(seed), (seed,), options)
    except BudgetError as error:
        return error.least_bytes


@pytest.mark.parametrize("seed", range(8))
def test_high_effort_is_never_worse(seed: int) -> None:
    fetch = bool(seed % 2)
    least = [compiled(seed, 1, effort.name, fetch) for effort in (DEFAULT, HIGH)]
    bounds = [each for each in least if isinstance(each, int)]
    assert len(bounds) == 2, "no graph of images runs in a byte"
    assert bounds[1] <= bounds[0]
    for budget in (int(bounds[0] * share) for share in (1, 1.2, 1.6)):
        usual, high = (compiled(seed, budget, effort.name, fetch) for effort in (DEFAULT, HIGH))
        assert isinstance(usual, Compiled) and isinstance(high, Compiled)
        assert (usual.report.effort, usual.report.gained_cycles) == ("default", None)
        assert high.report.effort == "high"
        assert high.report.gained_cycles == usual.report.overlapped_cycles - high.report.overlapped_cycles >= 0


def test_what_copies_gain() -> None:
    """With constant prefetch, a high effort tries more shares of memory between constants and tensors."""
    with pytest.raises(BudgetError) as raised:
        compile_graph(cifarnet(), oracle.TARGET, CompileOptions(sram_budget=1, prefetch_constants=True))
    budget = int(raised.value.least_bytes * 1.2)
    options = CompileOptions(sram_budget=budget, prefetch_constants=True, effort="high")
    report = compile_graph(cifarnet(), oracle.TARGET, options).report
    assert report.gained_cycles is not None
    assert report.sram_bytes <= budget


def test_an_unknown_effort() -> None:
    with pytest.raises(InvalidOptionError, match=r"^effort: 'max' is unknown; there are default, high\.$"):
        CompileOptions(effort="max")
