# SPDX-License-Identifier: BSD-3-Clause
"""Random graphs with matrix products on the modelled NPU of i.MX 95: ``python -m tests.fuzz.driver FIRST END``.

Every product becomes a job, whatever it costs. Each program is compared with LiteRT byte by byte, and the model of the NPU, which sees memory
as the NPU does, must have no violation to report.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import replace
from unittest import mock

from openneutron import targets
from openneutron.compiler import Compiled, CompileOptions
from openneutron.compiler.cost.cycles import Cost, call_cost
from openneutron.compiler.rewrite import jobs
from openneutron.device.device_model import Counts, DeviceModel
from openneutron.errors import InvalidModelError
from openneutron.ir import Graph
from openneutron.targets import Target
from tests.fuzz import budgets
from tests.fuzz.targets import graph_of
from tests.support import oracle


def with_release(release: str = "third") -> Target:
    """Return the Cortex-A55 of i.MX 95 with matrix products on the NPU in the form of a release."""
    known = targets.get("imx95" + targets.DRIVER_SUFFIX)
    assert known.jobs is not None
    return replace(known, jobs=replace(known.jobs, release=replace(known.jobs.release, value=(release,))))


def every_product() -> AbstractContextManager[object]:
    """Make every product a job in the block, whatever it costs. Among forms of a job the cheapest is chosen."""
    most = Cost(sys.maxsize)
    return mock.patch.object(
        jobs, "call_cost", lambda call, target: call_cost(call, target) if call.kernel == jobs.JOB else most
    )


def checked(graph: Graph, target: Target, options: CompileOptions, seed: int = 0) -> tuple[Compiled, Counts]:
    """Compile and run a graph, and compare it with LiteRT. Return the program, and what the model of the NPU counted."""
    assert target.jobs is not None
    release = target.jobs.release.value[0]
    with every_product(), DeviceModel(release=release) as model, mock.patch.object(oracle, "TARGET", target):
        compiled = oracle.assert_bit_exact(graph, (seed,), options)
        counts = model.counts()
        assert not counts.violations, f"{graph.name}: {model.violation()}"
    return compiled, counts


def check(seed: int) -> int:
    """Check the graph of this seed; return the number of programs, 0 where the graph is no valid model or has no product."""
    options = CompileOptions(io_place=("arena", "caller")[seed % 2])
    try:
        _, counts = checked(graph_of(seed), with_release(), options, seed)
    except InvalidModelError:
        return 0
    return int(counts.jobs > 0)


def main(first: int, end: int) -> int:
    """Check seeds [first, end), each in a process of its own, and print each failure and the sum. Return 1 where anything failed."""
    return budgets.sweep(first, end, check, graph_of)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
