# SPDX-License-Identifier: BSD-3-Clause
"""Products of matrices: linear layers of any rank, and BATCH_MATMUL where both factors are computed."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.pytorch.operator_cases import Case, check_case

ROWS = ((3, 4, 12),)
PAIR = ((2, 3, 4, 6), (2, 3, 6, 5))

CASES = (
    Case("linear and relu of rank 3", lambda m, x: F.relu(m.linear(x)), "fully_connected", ROWS),
    Case("linear of rank 1", lambda m, x: F.relu(m.linear(x)), "fully_connected", ((12,),)),
    Case("linear of rank 6", lambda m, x: m.linear(x), "fully_connected", ((2, 1, 2, 3, 2, 12),)),
    Case(
        "linear of computed weights",
        lambda m, x, y: F.linear(x, y, m.linear.bias),
        "batch_matmul add",
        ((2, 4, 6), (5, 6)),
    ),
    Case("matmul with a constant", lambda m, x: x @ m.linear.weight.T + 1.5, "fully_connected", ROWS),
    Case("constant on the left", lambda m, x: m.linear.weight @ x.mT, "fully_connected", ROWS),
    Case("matrix and constant vector", lambda m, x: x @ m.linear.weight[0], "fully_connected reshape", ROWS),
    Case("constant matrix and vector", lambda m, x: m.linear.weight @ x, "fully_connected", ((12,),)),
    Case("mm and bias", lambda m, x: torch.mm(x, m.linear.weight.T) + m.linear.bias, "fully_connected", ((4, 12),)),
    Case("addmm", lambda m, x: torch.addmm(m.linear.bias, x, m.linear.weight.T), "fully_connected", ((4, 12),)),
    Case(
        "addmm of computed bias",
        lambda m, x, y: torch.addmm(y, x, m.linear.weight.T, alpha=2, beta=0.5),
        "fully_connected lookup add",
        ((4, 12), (4, 5)),
    ),
    Case("matmul", lambda m, x, y: x @ y, "batch_matmul", PAIR),
    Case("matmul of turned factors", lambda m, x, y: x.mT @ y.mT, "batch_matmul", ((2, 3, 6, 4), (2, 3, 5, 6))),
    Case("matmul that broadcasts", lambda m, x, y: x @ y, "batch_matmul", ((2, 1, 4, 6), (3, 6, 5))),
    Case("matmul of vectors", lambda m, x, y: x @ y, "reshape reshape batch_matmul reshape", ((6,), (6,))),
    Case("bmm", lambda m, x: torch.bmm(x, x.mT), "batch_matmul", ROWS),
    Case(
        "baddbmm",
        lambda m, x, y: torch.baddbmm(y, x, x.mT, alpha=0.5),
        "lookup batch_matmul add",
        ((3, 4, 12), (3, 4, 4)),
    ),
    Case("constant batches", lambda m, x: x @ m.conv.weight[:3, :4, 0, :].mT, "batch_matmul", ((3, 4, 3),)),
    Case(
        "einsum of attention", lambda m, x, y: torch.einsum("bhqd,bhkd->bhqk", x, y), None, ((1, 2, 4, 6), (1, 2, 5, 6))
    ),
    Case("einsum with weights", lambda m, x: torch.einsum("bij,kj->bik", x, m.linear.weight), None, ROWS),
    Case(
        "einsum of three",
        lambda m, x, y: torch.einsum("...i,...j,ij->...", x, y, m.linear.weight),
        None,
        ((3, 5), (3, 12)),
    ),
    Case("dot", lambda m, x, y: torch.dot(x, y), None, ((6,), (6,))),
    Case("outer", lambda m, x, y: torch.outer(x, y), None, ((6,), (5,))),
    Case("matmul and relu", lambda m, x, y: F.relu(x @ y), None, PAIR),
    Case("matmul of rank 6", lambda m, x, y: x @ y, None, ((1, 2, 1, 2, 3, 4), (1, 2, 1, 2, 4, 3))),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_products(case: Case) -> None:
    check_case(case)
