# SPDX-License-Identifier: BSD-3-Clause
"""Random graphs at random budgets: ``python -m tests.fuzz.budgets FIRST END`` goes through the seeds from FIRST up to END; with
``wide`` behind them through graphs of int16 activations.

Each graph of 3 to 30 operators with branches is compiled for the least budget, for two between that and what whole tensors take, and
for that; with and without copies of constants, with inputs and outputs in the arena and with the caller. Each program goes through
the compiler's check and is compared with LiteRT byte by byte; it takes no more than its budget, and no more cycles than one of a
smaller budget. On chips with tiles, only graphs of few calls are never slower with more memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from openneutron.compiler import Compiled, CompileOptions, compile_graph
from openneutron.compiler.driver import compile_prepared, prepared
from openneutron.compiler.search.tuning import DEFAULT
from openneutron.errors import BudgetError, InvalidModelError
from openneutron.ir import Graph
from tests.support import oracle, random_graphs, random_wide
from tests.support.oracle import least_budget

MOST_OPERATORS = 30


def modelled(compiled: Compiled) -> int:
    """The cycles that a budget buys: those of a port that copies in the background."""
    return compiled.report.overlapped_cycles


def int8_graph(seed: int) -> Graph:
    """Return the graph of 3 to 30 operators of a seed."""
    return random_graphs.several(seed, 3, MOST_OPERATORS)


def int16_graph(seed: int) -> Graph:
    """Return the graph of 3 to 30 operators on int16 of a seed; some of them are between conversions to int8 and back."""
    return random_wide.several(seed, 3, MOST_OPERATORS)


GRAPHS = {"narrow": int8_graph, "wide": int16_graph}


def check(seed: int, kind: str = "narrow") -> int:
    """Compiles and compares the graph of this seed at several budgets; how many programs there were.

    A graph that is no valid model (a scale that LiteRT refuses) counts as none. Raises AssertionError for any difference.
    """
    graph = GRAPHS[kind](seed)
    fetch, io = bool(seed % 2), ("arena", "caller")[seed // 2 % 2]
    random = np.random.default_rng(seed)
    try:
        return check_graph(graph, fetch, io, lambda least, most: random.integers(least, most + 1, 2).tolist(), seed)
    except InvalidModelError:
        return 0


def check_graph(
    graph: Graph,
    fetch: bool,
    io: str,
    between: Callable[[int, int], Sequence[int]],
    seed: int = 0,
    effort: str = DEFAULT.name,
) -> int:
    """Compiles and compares the graph at its least budget, at those ``between`` makes of that and of what whole tensors take, and
    at that; how many programs there were. ``seed`` is that of the inputs. All compiles go on with one search; one of them has
    a search of its own, too, and gives the same program. Raises AssertionError for any difference."""
    usual = CompileOptions(prefetch_constants=fetch, io_place=io, effort=effort)
    kept = prepared(graph, kept=True)
    whole = compile_prepared(kept, oracle.TARGET, usual)
    least, most = least_budget(graph, fetch, io, effort, given=kept), whole.report.sram_bytes
    # A least budget in tiles is one of a list of sizes, of which the schedule may leave some bytes free.
    most = max(least, most) if oracle.TARGET.moves_tiles else most
    assert least <= most, f"{graph.name}: the least budget is {least}, whole tensors take {most}"
    budgets = sorted({least, *between(least, most), most})
    before: int | None = None
    for budget in budgets:
        options = replace(usual, sram_budget=budget)
        compiled = oracle.assert_bit_exact(graph, (seed,), options, kept)
        if budget == budgets[seed % len(budgets)]:
            alone = compile_graph(graph, oracle.TARGET, replace(options, check=True))
            assert alone.program == compiled.program, f"{graph.name}: another program with a search of its own"
            if not fetch and oracle.is_never_slower_with_more(compiled):
                taken = compiled.report.sram_bytes
                tight = compile_prepared(kept, oracle.TARGET, replace(usual, sram_budget=taken))
                assert modelled(tight) <= modelled(compiled), (
                    f"{graph.name}: {taken} of {budget} bytes, slower with so many"
                )
        assert compiled.report.sram_bytes <= budget, f"{graph.name}: {compiled.report.sram_bytes} of {budget} bytes"
        if oracle.is_never_slower_with_more(compiled):
            assert before is None or modelled(compiled) <= before, f"{graph.name}: slower with {budget} bytes"
        before = modelled(compiled)
    below = oracle.infeasible_budget(least)
    if below > 0:
        try:
            compile_prepared(kept, oracle.TARGET, replace(usual, sram_budget=below))
        except BudgetError as error:
            assert error.least_bytes == least, f"{graph.name}: the least is {least} once, {error.least_bytes} then"
        else:
            raise AssertionError(f"{graph.name}: {least} bytes are said to be the least, and {below} do")
    return len(budgets)


def main(first: int, end: int, kind: str = "narrow") -> int:
    """Checks seeds [first, end), each in a process of its own; prints each failure, and the sum. 1 where anything failed."""
    return sweep(first, end, partial(check, kind=kind), GRAPHS[kind])


def sweep(first: int, end: int, check_seed: Callable[[int], int], graph_of: Callable[[int], Graph]) -> int:
    """Call ``check_seed`` for each of the seeds, each in a process of its own; print each failure, and the sum.

    ``check_seed`` returns the number of its programs. Where it fails, LiteRT alone runs the graph of the seed; if that fails too, the seed is
    no failure. Return 1 where anything failed.
    """
    graphs = programs = failures = without_oracle = 0
    for seed in range(first, end):
        made, said = _in_a_child(seed, check_seed)
        if made is None and _in_a_child(seed, partial(_reference_alone, graph_of))[0] is None:
            # LiteRT's softmax ends the process where 512 values or more are nearly the largest (gemmlowp's RoundingDivideByPOT).
            without_oracle += 1
        elif made is None:
            failures += 1
            print(f"seed {seed}: {said}", flush=True)
        else:
            graphs += made > 0
            programs += made
    print(
        f"{graphs} graphs, {programs} programs, {failures} failures; {without_oracle} graphs LiteRT itself gives up on"
    )
    return int(failures > 0)


def _reference_alone(graph_of: Callable[[int], Graph], seed: int) -> int:
    graph = graph_of(seed)
    oracle.reference_outputs(graph, oracle.random_inputs(graph, seed))
    return 0


def _in_a_child(seed: int, work: Callable[[int], int]) -> tuple[int | None, str]:
    """Return the result of ``work``, or None and the error where ``work`` raises or the process ends."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            text = f"={work(seed)}"
        except Exception as error:
            text = f"{type(error).__name__}: {str(error)[:400]}"
        os.write(writes, text.encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if text.startswith("="):
        return int(text[1:]), ""
    return None, text or f"the process ended with signal {os.WTERMSIG(status)}"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
