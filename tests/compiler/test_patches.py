# SPDX-License-Identifier: BSD-3-Clause
"""Chains of calls in patches: LiteRT's bytes for every kernel that takes part, however they are cut, in the cycles reckoned with."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.cost.cycles import call_cost, least_compute_cycles
from openneutron.compiler.driver import checked, finish
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.rewrite.passes import select_calls
from openneutron.compiler.search.cascade.choose import schedule_of
from openneutron.compiler.search.cascade.network import Network, mirrored, network, segment
from openneutron.compiler.search.cascade.patches import (
    Chain,
    PatchedNetwork,
    chain_at,
    even_spans,
    patched_network,
    patched_networks,
)
from openneutron.compiler.search.cascade.search import PlanSearch, candidates
from openneutron.compiler.search.cascade.stripes import Stripes, evaluate, turned
from openneutron.compiler.search.tuning import DEFAULT
from openneutron.compiler.select.calls import Storages
from openneutron.compiler.select.needs import in_place
from openneutron.errors import BudgetError
from openneutron.ir import Graph, Node, Tensor, per_tensor
from tests.support import oracle, random_graphs
from tests.support.random_images import chain_graph


def random_chain(made: Network, random: np.random.Generator) -> Chain | None:
    """A chain of random calls in random pieces, as often of channels as of columns."""
    by_channels = bool(random.integers(2))
    ranges = itertools.combinations(range(len(made.calls) + 1), 2)
    counts = [(first, end, int(random.integers(2, 7))) for first, end in ranges if end - first > 1]
    found = [chain_at(made, first, end, by_channels, count) for first, end, count in counts]
    there = [chain for chain in found if chain is not None]
    return there[int(random.integers(len(there)))] if there else None


def random_part(made: PatchedNetwork, random: np.random.Generator) -> tuple[int, Stripes] | None:
    """A cascade of the variant with its chain in it, in random stripes; and the original's first call of it."""
    count = len(made.at)
    cuts = [(first, end) for first in range(count) for end in range(first + 1, count + 1)]
    found = [(first, made.segment(first, end, count)) for first, end in cuts]
    inside = [(first, each) for first, each in found if each is not None]
    if not inside:
        return None
    first, here = inside[int(random.integers(len(inside)))]
    pace = int(random.choice([here.end - 1, here.first]))
    height = int(random.integers(1, max(2, made.network.calls[pace].rows)))
    return first, evaluate(here, pace, height, bool(random.integers(2)))


@dataclass(frozen=True, slots=True)
class Drawn:
    """A graph with one of its chains in patches, a cascade around it, and the calls before and behind that, computed whole."""

    graph: Graph
    legal: Graph
    storages: Storages
    chain: Chain
    parts: tuple[Stripes, ...]


@cache
def drawn(seed: int) -> Drawn:
    """The first graph behind this seed that has such a chain; every third cascade runs from the last rows to the first."""
    for attempt in itertools.count():
        graph, random = chain_graph(1000 * seed + attempt), np.random.default_rng(seed)
        legal = legalize(graph)
        storages, calls = select_calls(legal)
        if seed % 2:
            storages = in_place(storages, calls)
        made = network(calls, storages, oracle.TARGET, False)
        chain = random_chain(made, random)
        in_patches = patched_network(made, [chain]) if chain is not None else None
        found = random_part(in_patches, random) if in_patches is not None else None
        if chain is None or in_patches is None or found is None:
            continue
        first, part = found
        if seed % 3 == 0:
            part = turned(part, mirrored(in_patches.network)) or part
        inside = in_patches.network.calls[part.segment.first : part.segment.end]
        end = first + sum(1 if each.patch is None else len(each.patch.rows) for each in inside)
        whole = PlanSearch(made).whole
        return Drawn(
            graph, legal, storages, chain, (*map(whole, range(first)), part, *map(whole, range(end, len(calls))))
        )
    raise AssertionError("itertools.count() ends")


@pytest.mark.parametrize("seed", range(60))
def test_any_chain_in_any_pieces_gives_the_same_bytes(seed: int) -> None:
    it = drawn(seed)
    schedule, own = schedule_of(it.parts, it.storages)
    assert schedule.allocations
    compiled = checked(finish(it.graph, it.legal, own, schedule, oracle.TARGET, CompileOptions()))
    reckoned = sum(part.cycles for part in it.parts)
    assert compiled.report.cycles == reckoned
    inputs = oracle.random_inputs(it.graph, seed)
    (want,) = oracle.reference_outputs(it.graph, inputs)
    np.testing.assert_array_equal(oracle.simulated_outputs(compiled, inputs)[0], want, f"{it.chain}\n{it.graph}")


def test_these_chains_are_of_every_kind() -> None:
    """Of columns and of channels, of two calls and more, with every kernel that takes part, strides, dilation and padding."""
    seen: Counter[str] = Counter()
    for chain in (drawn(seed).chain for seed in range(60)):
        one, other = (piece[-1].views["output"].extents for piece in chain.patch.pieces[:2])
        seen["columns" if one[3] == other[3] else "channels"] += 1
        seen["uneven"] += one != other
        seen["longer"] += len(chain.patch.rows) > 2
        for call in chain.patch.pieces[0]:
            seen[call.kernel] += 1
            seen["strides"] += call.params.get("stride_w", 1) > 1
            seen["dilation"] += call.params.get("dilation_w", 1) > 1
            seen["padding"] += call.params.get("pad_left", 0) > 0
    kernels = {
        "conv_2d_s8",
        "conv_2d_1x1_s8",
        "depthwise_conv_2d_s8",
        "average_pool_2d_s8",
        "max_pool_2d_s8",
        "lookup_s8",
    }
    assert kernels <= set(seen) and min(seen.values()) >= 3, seen


def bottlenecks(seed: int) -> Graph:
    """Two or three times from few channels to many and back, as in MobileNetV2, sometimes with the sum of both ends."""
    b = random_graphs.Builder(seed)
    value = b.input((1, 12 + b.up_to(12), 12 + b.up_to(12), b.up_to(8)))
    same = {"padding": "SAME", "dilation_h": 1, "dilation_w": 1}

    def constants(shape: tuple[int, ...], outputs: int, source: Tensor) -> tuple[Tensor, Tensor]:
        assert source.quant is not None
        weights = b.const(b.random.integers(-127, 128, shape).astype(np.int8), per_tensor(0.004, 0))
        bias = b.random.integers(-2000, 2000, outputs).astype(np.int32)
        return weights, b.const(bias, per_tensor(0.004 * source.quant.scale, 0))

    def convolution(source: Tensor, channels: int) -> Tensor:
        both = constants((channels, 1, 1, source.shape[3]), channels, source)
        made = b.new((*source.shape[:3], channels))
        return b.node("conv_2d", [source, *both], made, stride_h=1, stride_w=1, activation="RELU", **same)

    for _ in range(1 + b.up_to(2)):
        wide = convolution(value, 32 + 8 * b.up_to(4))
        channels, stride = wide.shape[3], b.up_to(2)
        both = constants((1, 3, 3, channels), channels, wide)
        made = b.new((1, -(-wide.shape[1] // stride), -(-wide.shape[2] // stride), channels))
        strides = {"stride_h": stride, "stride_w": stride, "depth_multiplier": 1, "activation": "RELU6"}
        narrow = convolution(b.node("depthwise_conv_2d", [wide, *both], made, **strides, **same), value.shape[3])
        if stride == 1 and b.random.random() < 0.5:
            narrow = b.node("add", [value, narrow], b.new(narrow.shape), activation="NONE")
        value = narrow
    return b.graph([value])


@pytest.mark.without_tiles("the search for tiles has no patches")
@pytest.mark.parametrize("seed", range(8))
def test_the_search_takes_patches_and_more_memory_never_costs_time(seed: int) -> None:
    graph, io = bottlenecks(seed), ("arena", "caller")[seed % 2]
    whole = compile_graph(graph, oracle.TARGET, CompileOptions(io_place=io)).report
    with pytest.raises(BudgetError) as caught:
        compile_graph(graph, oracle.TARGET, CompileOptions(sram_budget=1, io_place=io))
    least = caught.value.least_bytes
    cycles, patched = [], 0
    for budget in np.linspace(least, whole.sram_bytes, 6).astype(int).tolist():
        compiled = oracle.assert_bit_exact(graph, (seed,), CompileOptions(sram_budget=budget, io_place=io))
        assert compiled.report.sram_bytes <= budget
        cycles.append(compiled.report.cycles)
        patched += bool(compiled.schedule.allocations)
    assert cycles == sorted(cycles, reverse=True) and cycles[-1] == whole.cycles
    assert patched, "no budget gets patches"


@pytest.mark.parametrize("seed", (*range(28), 151, 243))
def test_nothing_takes_fewer_cycles_than_the_search_leaves_out(seed: int) -> None:
    """In patches or not, and where rows are never read: those of the input behind a pool's last window are not computed."""
    random = np.random.default_rng(seed)
    storages, calls = select_calls(legalize(chain_graph(seed)))
    made = network(calls, storages, oracle.TARGET, False)
    effort = replace(DEFAULT, patches=((False, 3), (True, 3), (False, 8)), pieces=6)
    search = PlanSearch(made, effort=effort)
    for first, end in itertools.combinations(range(len(calls) + 1), 2):
        plain = segment(made, first, end) if made.calls[first].by_rows else None
        patched = [each.segment(first, end, len(calls)) for each in patched_networks(made, effort)]
        for found in (each for each in (plain, *patched) if each is not None):
            tried = [each for each in candidates(found, effort) if random.random() < 0.3]
            spent = [evaluate(found, *each).cycles for each in tried]
            assert min(spent, default=1 << 60) >= search.least_cycles(first, end), (first, end, tried)


@pytest.mark.parametrize("shape", [(126, 1, 10), (61, 3, 9), (20, 1, 3)])
def test_no_stripes_compute_for_less_than_the_bound(shape: tuple[int, int, int]) -> None:
    """Rows of one column are shared out among the pipelines, but for a short stripe output channels may be the cheaper way."""
    b = random_graphs.Builder(0)
    height, width, channels = shape
    source = b.input((1, height, width, 2))
    made = [random_graphs.SAMPLERS[name](b, source) for name in ("conv_2d", "average_pool_2d", "logistic", "softmax")]
    weights = b.const(np.ones((channels, 1, 1, 2), np.int8), per_tensor(0.5, 0))
    bias = b.const(np.zeros(channels, np.int32), per_tensor(0.5 * source.quant.scale, 0))
    strides = {"stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1}
    outputs = [*(each for each in made if each is not None), b.new((1, height, width, channels))]
    b.node("conv_2d", [source, weights, bias], outputs[-1], padding="SAME", activation="NONE", **strides)
    _, calls = select_calls(legalize(b.graph(outputs)))
    for call in calls:
        rows = call.views["output"].extents[1]
        least = least_compute_cycles(call, oracle.TARGET, rows)
        for stripe in range(1, rows + 1):
            full, rest = divmod(rows, stripe)
            parts = [stripe] * full + [rest] * (rest > 0)
            assert sum(call_cost(call, oracle.TARGET, part).compute_cycles for part in parts) >= least, (call, stripe)


@pytest.mark.parametrize(("extent", "count", "unit"), [(9, 2, 1), (24, 2, 8), (20, 3, 8), (7, 7, 1), (17, 2, 8)])
def test_pieces_cover_everything_once(extent: int, count: int, unit: int) -> None:
    spans = list(even_spans(extent, count, unit))
    assert [place for span in spans for place in range(*span)] == list(range(extent))
    assert len(spans) == count and all(first % unit == 0 and first < end for first, end in spans)


@pytest.mark.parametrize("by_channels", [False, True])
def test_a_row_between_calls_on_int16_has_two_bytes_an_element(by_channels: bool) -> None:
    window = {"kernel_h": 3, "kernel_w": 3, "stride_h": 1, "stride_w": 1, "padding": "SAME", "activation": "NONE"}
    tensors = [oracle.wide_activation(name, (1, 12, 10, 24)) for name in ("x", "a", "b", "y")]
    pools = [
        Node("max_pool_2d", (before.name,), (after.name,), window) for before, after in itertools.pairwise(tensors)
    ]
    storages, calls = select_calls(legalize(oracle.graph_of(tensors[:1], pools, tensors[1:])))
    chain = chain_at(network(calls, storages, oracle.TARGET, False), 0, 3, by_channels, 2)
    assert chain is not None
    held = [12 * row_bytes for row_bytes in chain.patch.row_bytes]
    assert held == [max(each.size_bytes for each in made) for made in zip(*chain.patch.storages, strict=True)]
