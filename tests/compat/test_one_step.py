# SPDX-License-Identifier: BSD-3-Clause
"""Results are at most one step from those of PyTorch's float operators between dequantize and quantize, which ExecuTorch's NXP tests
compare with, and only near ties. The shapes are those of these tests; LiteRT's reference kernels give what the NPU gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from openneutron.ir import Graph, Node
from tests.support import oracle
from tests.support.small_graphs import constant

SCALE, ZERO_POINT = 4 / 255, 3
SOFTMAX = (1 / 256, -128)


@dataclass(frozen=True, slots=True)
class Rounding:
    """The differences of 64 random tensors: their number, and how far the exact values of these places are from a tie, in steps.

    ``litert`` and ``torch``: how often each of the two is not the nearest step to the exact value; ties count for neither.
    """

    differing: int
    most_steps: int
    from_tie: float
    litert: int
    torch: int


def image_graph(op: str, shape: Sequence[int], result: Sequence[int], others: Any = (), **attrs: Any) -> Graph:
    inputs = [oracle.activation("x", shape, SCALE, ZERO_POINT)]
    output = oracle.activation("y", result, SCALE, ZERO_POINT)
    return oracle.graph_of(inputs, [Node(op, ("x", *(item.name for item in others)), ("y",), attrs)], [*others, output])


def differences(graph: Graph, function: Callable[[Tensor], Tensor]) -> Rounding:
    """Compare LiteRT's reference kernel with the float function of dequantized values, quantized, and with the exact function."""
    out = graph["y"].quant
    assert out is not None
    scale, zero_point = float(out.scale), int(out.zero_point)
    interpreter = oracle.interpreter_of(oracle.litert.write(graph))
    found: list[np.ndarray] = []
    for seed in range(64):
        inputs = oracle.random_inputs(graph, seed)
        (ours,) = oracle.results_of(interpreter, inputs)
        stored = torch.from_numpy(inputs[0])
        real = (stored.float() - ZERO_POINT) * SCALE
        # As the kernel of quantized_decomposed::quantize_per_tensor has it: to the nearest, ties to even.
        quantized = (torch.round(function(real) * (1 / scale)) + zero_point).clamp(-128, 127)
        wanted = function((stored.double() - ZERO_POINT) * SCALE) / scale + zero_point
        found.append(
            np.stack([item.reshape(-1) for item in (ours.astype(float), quantized.double().numpy(), wanted.numpy())])
        )
    ours, theirs, exact = np.concatenate(found, 1)
    differ = ours != theirs
    from_tie = np.abs(exact - np.floor(exact) - 0.5)
    is_wrong = [int(((np.abs(side - exact) > 0.5 + TIE) & differ).sum()) for side in (ours, theirs)]
    return Rounding(
        int(differ.sum()),
        int(np.abs(ours - theirs).max()),
        float(from_tie[differ].max(initial=0)),
        *is_wrong,
    )


def images(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: function(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


POOL = {"padding": "VALID", "stride_h": 2, "stride_w": 2, "activation": "NONE"}
AXES = constant("a", np.array([0, 2], np.int32))
SIZE = constant("s", np.array([6, 8], np.int32))

CASES: dict[str, tuple[Graph, Callable[[Tensor], Tensor]]] = {
    "average pool 3 x 3": (
        image_graph("average_pool_2d", (2, 6, 7, 4), (2, 2, 3, 4), kernel_h=3, kernel_w=3, **POOL),
        images(lambda x: F.avg_pool2d(x, 3, 2)),
    ),
    "average pool 2 x 2": (
        image_graph("average_pool_2d", (2, 6, 8, 4), (2, 3, 4, 4), kernel_h=2, kernel_w=2, **POOL),
        images(lambda x: F.avg_pool2d(x, 2, 2)),
    ),
    "mean of 8": (
        image_graph("mean", (2, 3, 4), (1, 3, 1), [AXES], keep_dims=True),
        lambda x: x.mean((0, 2), keepdim=True),
    ),
    "bilinear": (
        image_graph(
            "resize_bilinear", (1, 3, 4, 2), (1, 6, 8, 2), [SIZE], align_corners=False, half_pixel_centers=True
        ),
        images(lambda x: F.interpolate(x, size=(6, 8), mode="bilinear")),
    ),
    **{
        f"softmax of {shape}": (
            oracle.graph_of(
                [oracle.activation("x", shape, SCALE, ZERO_POINT)],
                [Node("softmax", ("x",), ("y",), {"beta": 1.0})],
                [oracle.activation("y", shape, *SOFTMAX)],
            ),
            lambda x: x.softmax(-1),
        )
        for shape in ((1, 10), (5, 21), (1, 3, 3, 200))
    },
}


FROM_TIE = {"mean of 8": 0.126}
"""The largest distance of an exact value from a tie at which the two differ, in steps. LiteRT rounds a mean twice: the sum times a
31-bit factor, here 1/2, and the quotient by a power of two, here 4. Three eighths become 1."""

TIE = 1e-3
"""The distance for the others: ties, but for the last digits of float32. LiteRT rounds ties away from 0, PyTorch to even."""


@pytest.mark.parametrize("name", CASES)
def test_one_step_at_most_and_only_near_ties(name: str) -> None:
    found = differences(*CASES[name])
    assert found.most_steps <= 1
    assert found.from_tie <= FROM_TIE.get(name, TIE)
    assert found.torch == 0
    assert (found.litert > 0) == (name in FROM_TIE)


def test_average_pools_of_an_odd_number_of_values_are_equal() -> None:
    """ExecuTorch's tests of them compare exactly: a mean of nine integers is never a tie."""
    assert differences(*CASES["average pool 3 x 3"]).differing == 0
