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

import numpy as np

from openneutron import targets
from openneutron.compiler import Compiled, CompileOptions
from openneutron.compiler.cost.cycles import Cost, call_cost
from openneutron.compiler.rewrite import jobs
from openneutron.device.device_model import Counts, DeviceModel
from openneutron.errors import InvalidModelError
from openneutron.ir import DType, Graph, Node, Tensor, constant, per_tensor
from openneutron.targets import Target
from tests.fuzz import budgets
from tests.fuzz.targets import graph_of
from tests.support import oracle


def with_release(release: str = "third") -> Target:
    """Return the Cortex-A55 of i.MX 95 with matrix products on the NPU in the form of a release."""
    known = targets.get("imx95" + targets.DRIVER_SUFFIX)
    assert known.jobs is not None
    return replace(known, jobs=replace(known.jobs, release=replace(known.jobs.release, value=(release,))))


def matrices(rows: int, depth: int, columns: int, batches: int = 2, zero_points: tuple[int, int] = (3, -7)) -> Graph:
    """Return the graph of a product of ``batches`` matrices [rows, depth] with as many transposed ones [columns, depth]. Both are
    outputs of a lookup, so that they lie in the arena."""
    quants = [per_tensor(0.1, zero_point) for zero_point in zero_points]
    tensors, nodes = [], []
    for name, extent, quant in (("x", rows, quants[0]), ("y", columns, quants[1])):
        shape = (batches, extent, depth)
        tensors += [Tensor(name, shape, DType.INT8, quant), Tensor(f"{name}1", shape, DType.INT8, quant)]
        nodes.append(Node("lookup", (name, "table"), (f"{name}1",), {}, name))
    tensors.append(constant("table", np.arange(255, -1, -1).astype(np.uint8).view(np.int8)))
    tensors.append(Tensor("z", (batches, rows, columns), DType.INT8, per_tensor(0.02 * depth**0.5, 5)))
    nodes.append(Node("batch_matmul", ("x1", "y1"), ("z",), {"adj_x": False, "adj_y": True}, "product"))
    return Graph("main", {tensor.name: tensor for tensor in tensors}, tuple(nodes), ("x", "y"), ("z",))


def every_product() -> AbstractContextManager[object]:
    """Make every product a job in the block, whatever it costs. Among forms of a job the cheapest is chosen."""
    most = Cost(sys.maxsize)
    return mock.patch.object(
        jobs, "call_cost", lambda call, target: call_cost(call, target) if call.kernel in jobs.KERNELS else most
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
