# SPDX-License-Identifier: BSD-3-Clause
"""Operators that only move values: slices, pieces, stacks, repetitions and axes in another order, at ranks 1 to 6."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.pytorch.operator_cases import Case, check_case
from tests.pytorch.small_models import IMAGE

ROWS = ((3, 4, 10),)
DEEP = ((2, 3, 2, 3, 2, 4),)

CASES = (
    Case("step", lambda m, x: m.conv(x)[:, :, 1::2, ::3], "conv_2d strided_slice strided_slice"),
    Case(
        "step of rank 6",
        lambda m, x: (x * 2)[:, :, :, 1::2, :, -3:],
        "lookup reshape strided_slice reshape slice reshape",
        DEEP,
    ),
    Case("select", lambda m, x: m.conv(x)[:, -2] * 2, "conv_2d slice reshape lookup"),
    Case("select of rank 1", lambda m, x: x[3] * x, "slice mul", ((7,),)),
    Case("narrow", lambda m, x: m.conv(x).narrow(1, -3, 2), "conv_2d slice"),
    Case(
        "chunks",
        lambda m, x: (lambda a, b: torch.sigmoid(a) * b)(*m.conv(x).chunk(2, 1)),
        "conv_2d slice slice logistic mul",
    ),
    Case("chunks not used", lambda m, x: m.conv(x).chunk(4, 1)[2] + 1, "conv_2d slice lookup"),
    Case("one chunk", lambda m, x: torch.relu(m.conv(x).chunk(1, 1)[0]), "conv_2d"),
    Case(
        "split of several readers",
        lambda m, x: (lambda a, b, c: (a + b, b * a, c))(*torch.split(m.conv(x), [2, 2, 4], 1)),
        "conv_2d slice slice slice mul add",
    ),
    Case("tensor_split", lambda m, x: torch.cat(torch.tensor_split(x * 2, 3, 2)[1:], 2), None, ROWS),
    Case("unbind", lambda m, x: (lambda a, b, c: a * b - c)(*torch.unbind(x, 0)), None, ROWS),
    Case("stack", lambda m, x, y: torch.stack([m.conv(x), m.point(y)], 1), None, (IMAGE, IMAGE)),
    Case("stack behind", lambda m, x: torch.stack([x * 2, x + 1], -1), None, ((5,),)),
    Case(
        "cat of layers behind activations",
        lambda m, x: torch.cat([F.relu(m.conv(x)), F.relu6(m.point(x))], 1),
        "conv_2d conv_2d concatenation",
    ),
    Case(
        "cats of cats",
        lambda m, x: (lambda a, b: torch.cat([torch.cat([a, b], 1), F.max_pool2d(torch.cat([b, x], 1), 3, 1, 1)], 1))(
            F.relu(m.conv(x)), m.point(x)
        ),
        "conv_2d conv_2d concatenation concatenation max_pool_2d",
    ),
    Case("cat of twice the same", lambda m, x: (lambda y: torch.cat([y, y], 2))(m.conv(x)), "conv_2d concatenation"),
    Case("repeat", lambda m, x: m.conv(x).repeat(2, 1, 3, 1), None),
    Case("tile", lambda m, x: torch.tile(x + 1, (2, 3)), None, ROWS),
    Case("repeat_interleave", lambda m, x: m.conv(x).repeat_interleave(2, 3), None),
    Case(
        "expand for arithmetic",
        lambda m, x: (lambda y: y * torch.sigmoid(y.mean((2, 3), keepdim=True)).expand_as(y))(m.conv(x)),
        "conv_2d depthwise_conv_2d reshape lookup reshape mul",
    ),
    Case("expand", lambda m, x: (m.conv(x).mean((2, 3), keepdim=True)).expand(-1, -1, 5, 7), None),
    Case("broadcast_to", lambda m, x: torch.broadcast_to(x[:, :1] * 2, (2, 3, 4, 10)), None, ROWS),
    Case("flip", lambda m, x: m.conv(x).flip(2, 3), None),
    Case("flip of all", lambda m, x: (x * 2).flip(0, 1, 2, 3, 4, 5), None, DEEP),
    Case("roll", lambda m, x: m.conv(x).roll((1, -2), (1, 3)), None),
    Case("roll of all", lambda m, x: (x * 2).roll(5), None, ROWS),
    Case("rot90", lambda m, x: torch.rot90(m.conv(x), 3, (2, 3)), None),
    Case("movedim", lambda m, x: torch.movedim(x * 2, (0, 1), (2, 0)).swapaxes(0, 1).mT, None, ROWS),
    Case("views", lambda m, x: (x * 2).unflatten(2, (2, 5)).flatten(0, 1).squeeze().unsqueeze(-1).ravel(), None, ROWS),
    Case("diff", lambda m, x: torch.diff(x), None, ROWS),
    Case(
        "patches",
        lambda m, x: m.conv(x).reshape(1, 8, 3, 4, 3, 4).permute(0, 2, 4, 3, 5, 1).reshape(9, 16, 8).flip(1),
        None,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_moved_values(case: Case) -> None:
    check_case(case)
