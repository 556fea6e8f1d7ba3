# SPDX-License-Identifier: BSD-3-Clause
"""Whatever torch.export takes goes through, runs, and computes what the quantized module does."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from openneutron.api.pytorch import CompiledModel, analyse
from tests.pytorch.odd_models import ODD, Odd

PART_OF_RANGE = 0.03
"""The permitted distance of an output from the quantized module's, as a fraction of the largest value: some steps of 1/255."""

PART_OF_FLOAT = 0.15
"""The permitted distance from the float model's output: a few int8 layers on noise."""


def lowered(odd: Odd) -> tuple[CompiledModel, torch.nn.Module]:
    torch.manual_seed(1)
    module = odd.make().eval()
    model: Any = module
    if odd.dynamic is not None:
        model = torch.export.export(module, odd.args, dynamic_shapes=odd.dynamic)
    sample = (odd.args, odd.kwargs) if odd.kwargs else odd.args
    program = analyse(
        model,
        copy.deepcopy(odd.args),
        example_kwargs=odd.kwargs,
        calibration=copy.deepcopy([sample, sample]),
        name="odd",
    )
    return program, module


def assert_near(got: Any, want: Any, part: float) -> None:
    """Integers, bools and numbers are equal; floats apart by a part of the largest of them."""
    if not isinstance(want, torch.Tensor):
        assert got == want
        return
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    if not want.is_floating_point():
        assert torch.equal(got, want)
    elif want.numel():
        assert float((got.double() - want.double()).abs().max()) <= part * max(1.0, float(want.double().abs().max()))


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.name)
def test_odd_models_go_through_and_run(odd: Odd) -> None:
    program, module = lowered(odd)
    assert odd.delegated is None or bool(program.partitions) == odd.delegated
    counted = len(program.delegation.on_npu) + len(program.delegation.on_cpu)
    assert counted or not odd.delegated
    for item in program.delegation.on_cpu:
        assert item.reason and not item.reason.endswith("."), item
    module = copy.deepcopy(module)
    for _ in range(odd.calls):
        got = program.run(*copy.deepcopy(odd.args), **copy.deepcopy(odd.kwargs))
        with torch.no_grad():
            wanted = program.quantized(*copy.deepcopy(odd.args), **copy.deepcopy(odd.kwargs))
            real = module(*copy.deepcopy(odd.args), **copy.deepcopy(odd.kwargs))
        flat, exact = pytree.tree_leaves(wanted), pytree.tree_leaves(real)
        assert len(got) == len(flat) == len(exact)
        for here, there, float_one in zip(got, flat, exact, strict=True):
            assert_near(here, there, 0.0 if odd.exact else PART_OF_RANGE)
            assert_near(here, float_one, PART_OF_FLOAT)
