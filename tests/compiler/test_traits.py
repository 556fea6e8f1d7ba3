# SPDX-License-Identifier: BSD-3-Clause
"""The compiler asks traits, not names: kernels that declare nothing compile correctly, only slower."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.isa.kernels.row import NOTHING_DECLARED
from openneutron.isa.rows import KERNEL_BY_NAME
from scripts.published_networks import cifarnet
from tests.fuzz.budgets import least_budget
from tests.support import oracle, random_graphs
from tests.support.random_images import image_graph

COMPILER = Path(__file__).parents[2] / "src" / "openneutron" / "compiler"

EVERY_KERNEL = tuple(KERNEL_BY_NAME)
COMPUTING = tuple(name for name, row in KERNEL_BY_NAME.items() if not row.is_transfer)
"""All kernels but the transfers of the copy engine, whose traits decide which memories they access."""
SETS = (
    ("add_s8", "conv_2d_s8", "lookup_s8", "average_pool_2d_s8"),
    ("conv_2d_1x1_s8", "copy_s8", "max_pool_2d_s8", "pad_s8", "softmax_s8"),
    ("depthwise_conv_2d_s8", "mul_s8", "resize_bilinear_s8", "gather_s8", "mean_s8"),
    COMPUTING,
)


PATTERNS = ("accesses", "attention", "chain", "jobs", "join", "language")
"""Modules of the audit and of ``rewrite`` that know a pattern of kernels, and the instructions of language models' kernels."""


def test_kernel_names_stand_in_selection_and_audit_alone() -> None:
    names = re.compile(rf"\b({'|'.join(EVERY_KERNEL)})\b")
    found = [
        f"{path.relative_to(COMPILER)}: {name}"
        for path in sorted(COMPILER.rglob("*.py"))
        if path.relative_to(COMPILER).parts[0] != "select" and path.stem not in PATTERNS
        for name in names.findall(path.read_text())
    ]
    assert found == []


@pytest.fixture(params=range(len(SETS)))
def silent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ...]]:
    """Kernels that declare nothing."""
    names = SETS[request.param]
    for name in names:
        monkeypatch.setitem(KERNEL_BY_NAME, name, replace(KERNEL_BY_NAME[name], traits=NOTHING_DECLARED))
    yield names


def test_kernels_that_declare_nothing_compute_the_same(silent: tuple[str, ...]) -> None:
    called = set()
    graphs = [*map(image_graph, range(6)), *(random_graphs.several(seed) for seed in range(20))]
    for seed, graph in enumerate(graphs):
        options = CompileOptions(io_place=("arena", "caller")[seed % 2], prefetch_constants=seed % 3 == 0)
        if seed % 4:
            least = least_budget(graph, options.prefetch_constants, options.place)
            options = replace(options, sram_budget=least)
        compiled = oracle.assert_bit_exact(graph, (seed,), options)
        called |= {call.kernel for call in compiled.schedule.calls}
    assert called & set(silent)


def test_kernels_that_declare_nothing_are_slower_and_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = cifarnet()
    cycles, least = compile_graph(graph, oracle.TARGET).report.cycles, least_budget(graph, False, "arena")
    for name in COMPUTING:
        monkeypatch.setitem(KERNEL_BY_NAME, name, replace(KERNEL_BY_NAME[name], traits=NOTHING_DECLARED))
    assert compile_graph(graph, oracle.TARGET).report.cycles > cycles
    assert least_budget(graph, False, "arena") > least
