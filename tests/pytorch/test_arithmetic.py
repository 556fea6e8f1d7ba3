# SPDX-License-Identifier: BSD-3-Clause
"""Arithmetic of several operands, extremes, and softmaxes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.pytorch.operator_cases import Case, check_case
from tests.pytorch.small_models import IMAGE, compiled

TWO = (IMAGE, IMAGE)
ROWS = ((3, 4, 10),)

CASES = (
    Case("alpha", lambda m, x, y: torch.add(m.conv(x), y, alpha=3), "conv_2d lookup transpose add", TWO),
    Case("rsub", lambda m, x: (2 - m.conv(x)) * 3, None),
    Case("rsub of alpha", lambda m, x, y: torch.rsub(m.conv(x), y, alpha=2), None, TWO),
    Case("floor division", lambda m, x: m.conv(x) // 0.3, "conv_2d lookup"),
    Case("addcmul", lambda m, x, y: torch.addcmul(m.conv(x), x, y, value=0.5), None, TWO),
    Case("lerp", lambda m, x, y: torch.lerp(m.conv(x), y, 0.3), None, TWO),
    Case("lerp by a tensor", lambda m, x, y: torch.lerp(m.conv(x), y, torch.sigmoid(x)), None, TWO),
    Case("constant on the left", lambda m, x: m.point.bias.view(8, 1, 1) * m.conv(x) - torch.tensor(1.5), None),
    Case("division by a tensor", lambda m, x, y: m.conv(x) / (torch.sigmoid(y) + 0.5), None, TWO),
    Case("number over a tensor", lambda m, x: 3 / (torch.sigmoid(m.conv(x)) + 0.5), None),
    Case("addcdiv", lambda m, x, y: torch.addcdiv(m.conv(x), x, torch.sigmoid(y) + 1), None, TWO),
    Case("number as a tensor", lambda m, x: torch.tensor(2.0) / m.conv(x).sigmoid() - torch.tensor([0.5]), None),
    Case("clamp of any bounds", lambda m, x: m.conv(x).clamp(-0.3, 0.7), None),
    Case("log_softmax", lambda m, x: F.log_softmax(m.conv(x), 1), "conv_2d log_softmax"),
    Case("log_softmax over rows", lambda m, x: F.log_softmax(x * 2, 1), "lookup transpose log_softmax", ROWS),
    Case("softmin", lambda m, x: F.softmin(m.conv(x), 1), None),
    Case("maximum", lambda m, x, y: torch.maximum(m.conv(x), m.point(y)), "conv_2d conv_2d maximum", TWO),
    Case("minimum of a broadcast", lambda m, x, y: torch.minimum(m.conv(x), y), None, (IMAGE, (8, 1, 1))),
    Case("maximum of a fixed scale", lambda m, x: torch.maximum(torch.sigmoid(m.conv(x)), m.point(x)), None),
    Case("maximum of a number", lambda m, x: torch.maximum(m.conv(x), torch.tensor(-0.5)), None),
    Case("clamp between tensors", lambda m, x, y: torch.clamp(m.conv(x), y - 0.3, y + 0.3), None, TWO),
    Case("max of all", lambda m, x: m.conv(x).max() * 2, None),
    Case("amax", lambda m, x: m.conv(x).amax((2, 3)), None),
    Case("amin kept", lambda m, x: m.conv(x).amin(1, keepdim=True), None),
    Case("amax of rank 6", lambda m, x: (x * 2).amax((0, 2, 4)), None, ((2, 3, 2, 3, 2, 4),)),
    Case("aminmax", lambda m, x: (lambda a: a[1] - a[0])(torch.aminmax(m.conv(x), dim=1)), None),
    Case("prelu", lambda m, x: F.prelu(m.conv(x), m.point.bias), None),
    Case("prelu of one slope", lambda m, x: F.prelu(m.linear(x), m.point.bias[:1]), None, ((3, 12),)),
    Case("softmax of rank 1", lambda m, x: F.softmax(x * 2, 0), None, ((9,),)),
    Case("softmax of 5000", lambda m, x: F.softmax(x * 2, -1), None, ((2, 5000),)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_arithmetic(case: Case) -> None:
    check_case(case)


def test_remainders_of_two_tensors_stay_on_the_cpu() -> None:
    """A quotient that rounds the other way changes a remainder by its divisor and a rounded quotient by one."""
    small = compiled(lambda m, x: torch.fmod(m.conv(x), m.point(x)))
    assert small.reasons == [
        "aten.fmod 'fmod (small_models.py)' stays on the CPU: it rounds a quotient of two computed tensors; where that is near a "
        "whole number, half a step of an operand decides which one. Divide without rounding."
    ]


def test_functions_of_no_elements_are_constants() -> None:
    """ExecuTorch's kernels of amax and amin end the process there, and it has no kernel for functions that are tables."""
    small = compiled(
        lambda m, x, y: (
            x.amax(0),
            *torch.aminmax(x, dim=2, keepdim=True),
            torch.special.bessel_j0(x),
            torch.lgamma(y[3:]),
            x.sum(1),
            F.pad(x, (0, 0, 1, 1), value=2.0),
        ),
        ((3, 0, 2), (3, 1, 2)),
    )
    assert small.reasons == []
    found = [torch.as_tensor(result) for result in small.program.run(*small.inputs[0])]
    assert [tuple(result.shape) for result in found[:5]] == [(0, 2), (3, 0, 1), (3, 0, 1), (3, 0, 2), (0, 1, 2)]
    assert torch.equal(found[5], torch.zeros(3, 2)) and torch.equal(found[6], torch.full((3, 2, 2), 2.0))
