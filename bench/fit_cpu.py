# SPDX-License-Identifier: BSD-3-Clause
"""Fit the instructions of the kernels on CPUs to counts of QEMU.

Every call of many programs is counted. Five constants of its kernel (compiler/cost/cycles.py) and one for all calls are fitted:
non-negative least squares of relative errors. ``python -m bench.fit_cpu --write`` writes them into the package.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bench import aarch64
from openneutron.compiler.cost.cycles import FILE, Instructions, name_of
from openneutron.compiler.rewrite.jobs import KERNELS
from tests.cortex_m33.boards import CORTEX_M33, CORTEX_M55, Board
from tests.fuzz import driver

TITLE = "Instructions of the kernels on CPUs, fitted to counts of QEMU"

SEEDS = 6
"""Random graphs of each operator."""

MOST_BYTES = 1 << 19
"""The arena and the weights of a program that the runner has memory for on every board."""

WEIGHT = 0.8
"""The error of a call counts by its instructions to this power: with 1, all relative errors count alike; with less, long calls count more."""

WIDE = (
    *((14, 64, 384), (7, 192, 768), (12, 128, 128), (20, 32, 192), (24, 96, 48), (10, 256, 256), (16, 128, 256)),
    *((4, 1152, 128), (3, 2304, 64), (6, 1152, 256), (1, 256, 1024), (1, 1152, 256), (5, 320, 1280)),
)
"""Rows and columns, inputs and outputs of pointwise convolutions with more channels than random graphs have."""

MATRICES = (
    *((128, 64, 128, 4), (128, 128, 64, 4), (197, 64, 197, 3), (197, 208, 64, 3), (64, 32, 64, 8), (100, 48, 30, 2)),
    *((5, 32, 20), (7, 40, 16), (32, 256, 32), (12, 1152, 48), (60, 96, 60, 1)),
)
"""Rows, depth, columns and batches of products of two activations."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Count:
    """A counted call. ``features``: output rows, pixels and elements, steps and gathered inputs (compiler/cost/cycles.py)."""

    kernel: str
    kind: str
    features: tuple[float, ...]
    instructions: int


def graphs() -> Iterator[Any]:
    """Yield the networks and random graphs whose calls are counted."""
    import openneutron
    from openneutron import litert
    from openneutron.pytorch.source import models
    from tests.support import attention_graphs, random_graphs, random_wide
    from tests.support.made_networks import models_folder
    from tests.support.recurrent_files import random_wide_lstm
    from tests.support.widened import widened

    for path in sorted(models_folder().glob("*.tflite")):
        if "mobilenet" not in path.name:
            yield litert.read(path).graph
    for name in models.names():
        network, example = models.get(name)
        compiled = openneutron.compile(network, example, calibration=models.samples(name, 2), name=name)
        yield from (part.compiled.graph for part in compiled.partitions)
    for op in random_graphs.SAMPLERS:
        yield from (random_graphs.single(op, seed) for seed in range(SEEDS))
    yield from (random_wide.several(seed) for seed in range(40))
    for op in random_wide.SAMPLERS:
        singles = (random_wide.single(op, seed) for seed in range(2 * SEEDS))
        yield from (graph for graph in singles if graph is not None)
    yield from (litert.read(random_wide_lstm(seed)).graph for seed in range(2 * SEEDS))
    for op in ("layer_norm", "group_norm"):
        yield from (widened(random_graphs.single(op, seed)) for seed in range(SEEDS))
    yield from (wide(*sizes) for sizes in WIDE)
    yield from (driver.matrices(*sizes) for sizes in MATRICES)
    yield from (attention_graphs.attention(seed) for seed in range(4 * SEEDS))


def wide(size: int, inputs: int, outputs: int) -> Any:
    """Return the graph of two pointwise convolutions of an image of ``size`` by ``size``, so that one reads another's output."""
    from openneutron.ir import DType, Graph, Node, Tensor, constant, per_channel, per_tensor

    rng, quant = np.random.default_rng(size), per_tensor(0.1, 3)
    attrs = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1}
    tensors, nodes = [Tensor("x", (1, size, size, 16), DType.INT8, quant)], []
    for given, wanted, activation in ((16, inputs, "RELU"), (inputs, outputs, "NONE")):
        weights = rng.integers(-127, 128, (wanted, 1, 1, given)).astype(np.int8)
        number, before = len(nodes), "y0" if nodes else "x"
        tensors += [
            constant(f"w{number}", weights, per_channel([0.001] * wanted, 0)),
            constant(f"b{number}", np.zeros(wanted, np.int32)),
            Tensor(f"y{number}", (1, size, size, wanted), DType.INT8, quant),
        ]
        names = ((before, f"w{number}", f"b{number}"), (f"y{number}",))
        nodes.append(Node("conv_2d", *names, {**attrs, "activation": activation}, f"layer{number}"))
    return Graph("main", {tensor.name: tensor for tensor in tensors}, tuple(nodes), ("x",), ("y1",))


def counts(target_name: str, flags: tuple[str, ...], board: Board | None) -> tuple[list[Count], float]:
    """Return the counted calls, and the driver's instructions for each call."""
    from openneutron import targets
    from openneutron.compiler import CompileOptions, compile_graph
    from openneutron.errors import OpenNeutronError
    from tests.cortex_m33.cases import Case, Flag, run
    from tests.cortex_m33.firmware import image, library
    from tests.cortex_m33.models import random_inputs

    target = targets.get(target_name)
    # The matrix products of an NPU beside the processor are counted without the products.
    beside = () if board else (driver.with_release(),)
    made = []
    for graph, chip in itertools.product(graphs(), (target, *beside)):
        try:
            with driver.every_product():
                compiled = compile_graph(graph, chip, CompileOptions(target=target_name, check=False))
        except OpenNeutronError:
            continue
        calls = list(compiled.schedule.calls)
        if chip is not target and not any(call.kernel in KERNELS for call in calls):
            continue
        header = compiled.program.header
        if (
            header["scratch_size"] <= MOST_BYTES
            and header["prefetch_size"] == 0
            and header["weights_size"] <= MOST_BYTES
        ):
            made.append((compiled, calls, chip))
    cases = [
        Case(each.program, random_inputs(each.program, 1), flag)
        for each, *_ in made
        for flag in (Flag.PLAIN, Flag.TRACE)
    ]
    done = run(image(library(flags, board=board), board=board), cases, count=True) if board else aarch64.run(cases)
    instructions = board.instructions if board else int
    found: list[Count] = []
    spent = calls_in_all = 0
    for (_, calls, chip), plain, traced in zip(made, done[::2], done[1::2], strict=True):
        (whole,), (run_,) = plain.runs, traced.runs
        if whole.error or len(run_.calls) != len(calls):
            continue
        spent += instructions(whole.ticks - sum(call.ticks for call in run_.calls))
        calls_in_all += len(calls)
        for call, counted in zip(calls, run_.calls, strict=True):
            if not call.parts and (chip is target or call.kernel in KERNELS):
                found.append(
                    Count(
                        name_of(call),
                        call.traits.cost.kind.name,
                        features(call, chip),
                        instructions(counted.ticks),
                    )
                )
    return found, spent / max(1, calls_in_all)


def features(call: Any, target: Any) -> tuple[float, ...]:
    from openneutron.compiler.cost.cycles import work_on_cpu

    return tuple(work_on_cpu(call, target, call.views["output"].extents[1]))


def fitted(found: Sequence[Count], fixed: float) -> Array:
    """Return the five constants, with ``fixed`` instructions for each call."""
    from scipy.optimize import nnls

    rows = np.array([each.features for each in found])
    wanted = np.maximum([each.instructions - fixed for each in found], 0.0)
    weights = np.maximum([each.instructions for each in found], 200.0) ** -WEIGHT
    return nnls(rows * weights[:, None], wanted * weights)[0]


def constant(found: Sequence[Count]) -> float:
    """Return the instructions that a call has beside those that grow with it."""
    from scipy.optimize import nnls

    rows = np.array([(*each.features, 1.0) for each in found])
    wanted = np.array([each.instructions for each in found], float)
    weights = 1 / np.maximum(wanted, 200.0)
    return float(nnls(rows * weights[:, None], wanted * weights)[0][-1])


def fit(found: Sequence[Count]) -> tuple[dict[str, list[float]], float]:
    """Return the constants by kernel and by cost class, and the instructions of each call."""
    by_kernel: dict[str, list[Count]] = defaultdict(list)
    by_kind: dict[str, list[Count]] = defaultdict(list)
    for each in found:
        by_kernel[each.kernel].append(each)
        by_kind[each.kind].append(each)
    fixed = float(np.median([constant(each) for each in by_kernel.values() if len(each) >= 6]))
    made = {name: fitted(each, fixed) for name, each in sorted(by_kernel.items()) if len(each) >= 4}
    made |= {name: fitted(each, fixed) for name, each in sorted(by_kind.items())}
    made.setdefault("UNKNOWN", fitted(found, fixed))
    return {name: [float(f"{value:.3g}") for value in each] for name, each in made.items()}, fixed


def errors(
    found: Sequence[Count], table: Mapping[str, Sequence[float]], fixed: float
) -> dict[str, tuple[int, float, float]]:
    """Return, by kernel, the number of calls, and the median and the largest relative error."""
    by_kernel: dict[str, list[float]] = defaultdict(list)
    for each in found:
        known = table.get(each.kernel) or table.get(each.kernel.partition(":")[0]) or table[each.kind]
        modelled = fixed + float(np.dot(each.features, known))
        by_kernel[each.kernel].append(modelled / max(each.instructions, 200) - 1)
    return {name: (len(e), float(np.median(np.abs(e))), float(max(e, key=abs))) for name, e in by_kernel.items()}


BUILDS = {
    "dsp": ("cortex-m33", ("-O2",), CORTEX_M33),
    "helium": ("cortex-m55", ("-O2",), CORTEX_M55),
    "neon": ("cortex-a55", (), None),
    "portable": ("cortex-m33", ("-O2", "-DNEUTRON_PORTABLE_ONLY"), CORTEX_M33),
}
"""For each instruction set the target of the counted calls, the flags of the library, and the board that executes them;
None: qemu-user."""


def measure(*sets: str) -> dict[str, Any]:
    """Return for each instruction set the fitted table, the instructions of a call, and the errors by kernel."""
    results = {}
    for name in sets or BUILDS:
        core, flags, board = BUILDS[name]
        found, driver = counts(core, flags, board)
        table, fixed = fit(found)
        spread = errors(found, table, fixed)
        results[name] = {"table": table, "call": round(fixed + driver), "errors": spread}
    return results


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the heads and lines of the printed table."""
    heads = ("instruction set", "kernel", "calls", "median error", "largest error", *Instructions._fields)
    lines = []
    for name, result in results.items():
        for kernel, (count, middle, most) in result["errors"].items():
            own = [f"{value:g}" for value in result["table"].get(kernel, [])] or ["of its class", "", "", "", ""]
            lines.append((name, kernel, str(count), f"{middle:.0%}", f"{most:+.0%}", *own))
        lines.append((name, "each call", "", "", "", f"{result['call']:,}", "", "", "", ""))
    return heads, lines


def known_tables() -> dict[str, Any]:
    """Return the tables in instructions.json, for sets that are not measured now."""
    return {name: {"table": each} for name, each in json.loads(FILE.read_text()).items()}


def text(results: dict[str, Any]) -> str:
    """Return the text of instructions.json."""
    tables = {
        name: ",\n".join(f"    {json.dumps(kernel)}: {json.dumps(each)}" for kernel, each in result["table"].items())
        for name, result in results.items()
    }
    return "{\n" + ",\n".join(f"  {json.dumps(name)}: {{\n{table}\n  }}" for name, table in tables.items()) + "\n}\n"


if __name__ == "__main__":
    for name in [word for word in sys.argv[1:] if word in BUILDS] or BUILDS:
        results = measure(name)
        for line in rows(results)[1]:
            print(*line, flush=True)
        if "--write" in sys.argv:
            FILE.write_text(text({**known_tables(), **results}))
