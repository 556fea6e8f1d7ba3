# SPDX-License-Identifier: BSD-3-Clause
"""Layers of the shapes that builds for speed have code of their own for, as the compiler lays them out, give the host's bytes."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron import targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.ir import DType, Graph, Node, Tensor, constant, per_channel, per_tensor
from tests.cortex_m33.cases import Case, run
from tests.cortex_m33.firmware import SIZE, SPEED, image, library
from tests.cortex_m33.models import on_the_host, random_inputs

CASES, RUNS = 80, 1
CHANNELS = (1, 2, 3, 4, 8, 16, 20, 40)
KERNELS = ((3, 3), (3, 3), (1, 1), (2, 3), (10, 4), (3, 1))


def layer(random: np.random.Generator) -> Graph:
    """A convolution whose scales may be of any size, and whose activation may bound its outputs or not."""
    depthwise = random.random() < 0.5
    kernel = (3, 3) if depthwise else KERNELS[random.integers(len(KERNELS))]
    channels = int(random.choice(CHANNELS))
    filters = channels if depthwise else int(random.integers(1, 20))
    stride = int(random.integers(1, 3))
    rows, cols = (int(random.integers(1, 12)) for _ in "hw")
    if random.random() < 0.2:
        cols = int(random.integers(60, 140))
    padding = "SAME" if rows < kernel[0] or cols < kernel[1] or random.random() < 0.7 else "VALID"
    extents = [
        -(-extent // stride) if padding == "SAME" else (extent - taps) // stride + 1
        for extent, taps in zip((rows, cols), kernel, strict=True)
    ]
    exponents = random.integers(-33, 1, filters) if random.random() < 0.3 else random.integers(-12, -3, filters)
    scales = (2.0**exponents * random.uniform(0.5, 1, filters)).astype(np.float32)
    shape, axis = ((1, *kernel, channels), 3) if depthwise else ((filters, *kernel, channels), 0)
    weights = constant("w", random.integers(-127, 128, shape, np.int8), per_channel(scales, axis))
    bias = constant("b", random.integers(-(2**20), 2**20, filters, np.int32), per_channel(scales, 0))
    source = Tensor("x", (1, rows, cols, channels), DType.INT8, per_tensor(1.0, int(random.integers(-128, 128))))
    zero_point = -128 if random.random() < 0.6 else int(random.integers(-128, 128))
    result = Tensor("y", (1, *extents, filters), DType.INT8, per_tensor(1.0, zero_point))
    attrs = {
        "padding": padding,
        "stride_h": stride,
        "stride_w": stride,
        "dilation_h": 1,
        "dilation_w": 1,
        "activation": str(random.choice(["NONE", "RELU", "RELU6"])),
        **({"depth_multiplier": 1} if depthwise else {}),
    }
    node = Node("depthwise_conv_2d" if depthwise else "conv_2d", ("x", "w", "b"), ("y",), attrs)
    return Graph("layer", {tensor.name: tensor for tensor in (source, weights, bias, result)}, (node,), ("x",), ("y",))


@pytest.mark.parametrize("flags", [SPEED, SIZE])
def test_layers_give_the_hosts_bytes(flags: tuple[str, ...]) -> None:
    firmware = image(library(flags))  # first: skips where the compiler is absent
    random = np.random.default_rng(5)
    target = targets.get("cortex-m33")
    programs = [compile_graph(layer(random), target, CompileOptions(io_place="caller")).program for _ in range(CASES)]
    cases = [Case(program, random_inputs(program, RUNS, seed)) for seed, program in enumerate(programs)]
    for number, (case, done) in enumerate(zip(cases, run(firmware, cases), strict=True)):
        assert (done.prepare, [once.error for once in done.runs]) == (0, [0] * RUNS), number
        assert [once.outputs for once in done.runs] == on_the_host(case.program, case.inputs), number
