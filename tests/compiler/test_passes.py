# SPDX-License-Identifier: BSD-3-Clause
"""Group norms in two passes: the bytes of one pass, and less memory than the norm's input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from openneutron import targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.driver import checked, finish
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.rewrite.call_list import CallList, edited
from openneutron.compiler.rewrite.join import in_two_passes, norm_bytes
from openneutron.compiler.rewrite.passes import select_calls
from openneutron.compiler.rewrite.shapes import by_rows
from openneutron.compiler.schedule.schedule import Rows, Schedule, Step, Whole
from tests.support import oracle
from tests.support.norm_graphs import stem

STEMS = {
    "image": ((12, 5, 3), 8, 2, (3, 3)),
    "signal": ((1, 61, 2), 16, 16, (1, 5)),
    "many groups": ((9, 3, 2), 40, 40, (3, 1)),
    "one group": ((7, 7, 4), 12, 1, (1, 1)),
}
"""Shape, filters, groups and kernel."""


@pytest.mark.parametrize("name", STEMS)
@pytest.mark.parametrize(("again", "logistic"), [(False, True), (True, True), (True, False)])
def test_any_stripes_of_both_passes_compute_the_same(name: str, again: bool, logistic: bool) -> None:
    """The table of a logistic behind the norm is part of the second pass."""
    graph = stem(len(name), *STEMS[name], logistic)
    legal = legalize(graph)
    storages, calls = select_calls(legal)
    turned = edited(CallList(tuple(calls), storages), by_rows)
    given = turned or CallList(tuple(calls), storages)
    (size,) = norm_bytes(given.calls, storages)
    found = edited(given, in_two_passes, size if again else size + 1)
    assert found is not None and len(found.calls) == len(calls) + 1 + again - logistic
    kernels = [call.kernel for call in found.calls]
    assert ("group_norm_by_sums_lookup_s8" if logistic else "group_norm_by_sums_s8") in kernels
    steps: list[Step] = []
    random = np.random.default_rng(len(name))
    for number, call in enumerate(found.calls):
        rows = call.views["output"].extents[1]
        cut = sorted({0, rows, *random.integers(0, rows + 1, 2).tolist()})
        stripes = [Rows(number, first, end) for first, end in itertools.pairwise(cut)]
        steps += [stripes[index] for index in random.permutation(len(stripes))] if rows > 1 else [Whole(number)]
    schedule = Schedule(found.calls, tuple(steps))
    compiled = checked(finish(graph, legal, found.storages, schedule, oracle.TARGET, CompileOptions()))
    inputs = oracle.random_inputs(graph, 1)
    (got,), (want,) = oracle.simulated_outputs(compiled, inputs), oracle.reference_outputs(graph, inputs)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["image", "signal"])
def test_norms_within_budgets_have_the_bytes_of_whole_ones(name: str) -> None:
    graph = stem(3, *STEMS[name])
    least = oracle.least_budget(graph)
    for budget in (least, 2 * least):
        oracle.assert_bit_exact(graph, (budget,), CompileOptions(sram_budget=budget))


def test_neither_the_input_nor_the_output_of_a_norm_is_in_memory() -> None:
    """Input and output of the norm take 10,240 B each, the graph's input 640 B and its output 2,544 B. Without a budget, both are in memory but
    for a row, as a result takes rows of its input that nobody reads any more."""
    graph = stem(0, (1, 320, 2), 32, 8, (1, 5))
    assert compile_graph(graph, oracle.TARGET).report.sram_bytes >= (2 * 320 - 1) * 32
    least = oracle.least_budget(graph)
    assert least < 0.7 * 320 * 32
    oracle.assert_bit_exact(graph, (0,), CompileOptions(sram_budget=least))


def test_a_norm_larger_than_the_memory_of_the_npu_is_in_two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Input and output of the norm take 10,240 B each. External memory holds both, and each pass reads the input in tiles."""
    monkeypatch.setattr(oracle, "TARGET", targets.get("imx943").with_sram(6))
    kernels = oracle.kernels_of(oracle.assert_bit_exact(stem(0, (1, 320, 2), 32, 8, (1, 5)), (0,)))
    assert [kernel for kernel in kernels if "group" in kernel] == ["group_sums_s8", "group_norm_by_sums_lookup_s8"]


def test_a_call_that_others_read_is_not_computed_again() -> None:
    storages, calls = select_calls(legalize(stem(0, *STEMS["image"])))
    norm = next(place for place, call in enumerate(calls) if call.traits.passes is not None)
    twice = [*calls[:norm], calls[norm], *calls[norm:]]
    found = edited(CallList(tuple(twice), storages), in_two_passes, 0)
    assert found is not None and len(found.calls) == len(twice) + 2
