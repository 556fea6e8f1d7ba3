# SPDX-License-Identifier: BSD-3-Clause
"""Each suggestion of the error for a small budget works, and takes the stated memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from openneutron import targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.search.fitted import in_words, over_budget
from openneutron.errors import BudgetError
from openneutron.ir import Graph
from scripts.published_networks import Chain
from tests.support import oracle
from tests.support.random_images import image_graph

CHANGES: dict[str, dict[str, Any]] = {
    "without --prefetch-constants": {"prefetch_constants": False},
    "with --io-place caller": {"io_place": "caller"},
    "with --io-place arena": {"io_place": "arena"},
}


def short(graph: Graph, options: CompileOptions) -> BudgetError:
    with pytest.raises(BudgetError) as caught:
        compile_graph(graph, oracle.TARGET, options)
    return caught.value


@pytest.mark.without_tiles("the error for tiles has no suggestions")
@pytest.mark.parametrize("io", ["arena", "caller"])
@pytest.mark.parametrize("seed", range(4))
def test_each_suggestion_suffices(seed: int, io: str) -> None:
    graph = image_graph(seed)
    options = CompileOptions(sram_budget=1, io_place=io, prefetch_constants=True)
    error = short(graph, options)
    assert not error.suggestions
    options = replace(options, sram_budget=error.least_bytes - 1)
    for words, size in short(graph, options).suggestions.items():
        changed = options
        for part in words.split(" and "):
            changed = replace(changed, **CHANGES[part])
        report = compile_graph(graph, oracle.TARGET, changed).report
        assert report.sram_bytes == size < error.least_bytes


def weighty() -> Graph:
    """Far more constants than tensors."""
    return Chain("weighty", (1, 4, 4, 16)).conv(64, 3).conv(16, 3).graph()


@pytest.mark.without_tiles("the error for tiles has no suggestions")
def test_the_whole_message() -> None:
    options = CompileOptions(prefetch_constants=True, sram_budget=1536)
    assert str(short(weighty(), options)) == (
        "'weighty': it needs 5.8 KiB (5984 bytes) of SRAM; the budget is 1.5 KiB (1536 bytes). 'conv_2d_1' needs the most memory. "
        "Give it at least 6 KiB with --sram-budget (sram_budget=6144 in Python), or a smaller input. Without --prefetch-constants it takes 1.2 KiB (1280 bytes)."
    )
    least = short(weighty(), replace(options, sram_budget=1008))
    assert str(least).endswith(" in Python), or a smaller input.")


@pytest.mark.without_tiles("the error for tiles has no suggestions")
def test_a_chip_with_too_little_memory_is_named() -> None:
    """A larger budget is no advice where the chip has no more memory."""
    tiny = oracle.TARGET.with_sram(4)
    with pytest.raises(BudgetError) as caught:
        compile_graph(weighty(), tiny, CompileOptions(prefetch_constants=True))
    assert str(caught.value).endswith(
        f"the budget is 4.0 KiB (4096 bytes). 'conv_2d_1' needs the most memory. {tiny.name} has 4 KiB in all: "
        "give the model a target with more memory, or a smaller input. Without --prefetch-constants it takes 1.2 KiB (1280 bytes)."
    )


@dataclass(frozen=True)
class Part:
    least_bytes: int
    suggestions: Mapping[str, int]
    layers: tuple[str, ...] = ()


def test_several_partitions_name_what_helps_all_of_them() -> None:
    one = Part(3000, {"without --prefetch-constants": 2000, "with --io-place caller": 1000})
    other = Part(4000, {"without --prefetch-constants": 1500, "with --io-place caller": 1200})
    said = "Give it at least 4 KiB with --sram-budget (sram_budget=4096 in Python), or a smaller input."
    less = "Without --prefetch-constants it takes 2.0 KiB (2000 bytes)"
    assert str(over_budget("m", [one, other], 2, 2048, oracle.TARGET)) == (
        "'m': it needs 3.9 KiB (4000 bytes) of SRAM for the largest of its 2 partitions, which run one after the other; the "
        f"budget is 2.0 KiB (2048 bytes). {said} {less}, with --io-place caller it takes 1.2 KiB (1200 bytes)."
    )
    # A third one fits, and might not with its inputs elsewhere.
    assert str(over_budget("m", [one, other], 3, 2048, oracle.TARGET)).endswith(f"{said} {less}.")
    assert str(over_budget("m", [one, Part(4000, {})], 2, 2048, oracle.TARGET)).endswith(said)


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        ((), ""),
        (("a",), " 'a' needs the most memory."),
        (("a", "b", "c"), " 'a', 'b' and 'c' need the most memory."),
        (("a", "b", "c", "d"), " 'a', 'b', 'c' and 1 more layer need the most memory."),
    ],
)
def test_the_layers_of_an_error(layers: tuple[str, ...], said: str) -> None:
    assert in_words(layers) == said


@pytest.mark.parametrize("target", ["imxrt700", "imx95"])
def test_the_layers_beside_the_largest_tensors_are_named(target: str) -> None:
    graph = Chain("narrow", (1, 8, 8, 8)).conv(8, 1).conv(64, 8).conv(64, 8).conv(8, 1).graph()
    with pytest.raises(BudgetError) as caught:
        compile_graph(graph, targets.get(target), CompileOptions(sram_budget=64))
    assert caught.value.layers in {("conv_2d_2",), ("conv_2d_2", "conv_2d_3")}
    assert str(caught.value).count(" the most memory. Give it") == 1
