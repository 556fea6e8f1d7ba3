# SPDX-License-Identifier: BSD-3-Clause
"""Writes of values at indices, constant and computed, compute the same as gathers and selections, delegated whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import GraphModule

from openneutron.pytorch.operators.families import DECOMPOSITIONS
from openneutron.pytorch.operators.rules.tables import KEPT
from openneutron.pytorch.quantizer.passes.neutron_aten_pass_manager import Decompose
from tests.pytorch.side_by_side import assert_delegated
from tests.pytorch.small_models import assert_same_as_litert, compiled

_aten = torch.ops.aten
put = _aten.index_put.default

PUT = {
    "rows": ((5, 2), ([0, 2],), (2,)),
    "numbers": ((5,), ([0, -1],), (2,)),
    "one value for all": ((5, 3, 2, 4), ([0, 2], [1, 1], [0, 1], [2, 3]), (1,)),
    "places": ((4, 3), ([0, 1, 2], [1, 0, -1]), (3,)),
    "an index for all": ((3, 2), ([1], [0, 0, 1]), (3,)),
    "several values at one place": ((3, 2), ([1, 1, 2], [0, 0, 1]), (3,)),
    "columns, in two dimensions": ((4, 5, 6), (None, [[0, -2], [3, 0]]), (4, 2, 2, 6)),
    "neighbours behind": ((4, 5, 6), (None, [0, 1, 1], [2, 3, 3]), (4, 3)),
    "dimensions apart": ((4, 5, 6), ([0, 1, 1], None, [2, 3, 3]), (3, 5)),
    "a single index": ((4, 5, 6), (2,), (5, 6)),
    "one index": ((4, 5, 6), (None, [-2]), (4, 1, 6)),
    "one index, values for all": ((4, 5, 6), (None, [3]), (6,)),
    "one index of two dimensions": ((4, 5, 6), (None, [[3]]), (4, 1, 1, 6)),
    "indices that broadcast": ((4, 5, 6), ([[0], [1]], [[0, 1, 2]]), (2, 3, 6)),
}


@pytest.mark.parametrize("name", PUT)
@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put_computes_what_pytorch_does(name: str, accumulate: bool) -> None:
    shape, given, values = PUT[name]
    indices = [None if index is None else torch.tensor(index) for index in given]
    x, y = torch.randn(shape), torch.randn(values)
    got = DECOMPOSITIONS["aten.index_put.default"](x, indices, y, accumulate)
    torch.testing.assert_close(got, _aten.index_put.default(x, indices, y, accumulate))


def test_masks_choose_where_the_values_are_alike() -> None:
    put = DECOMPOSITIONS["aten.index_put.default"]
    x, mask = torch.randn(4, 5, 6), torch.rand(4, 5) > 0.5
    for values in (torch.tensor(3.0), torch.randn(6), torch.randn(1, 6)):
        for accumulate in (False, True):
            wanted = _aten.index_put.default(x, [mask], values, accumulate)
            torch.testing.assert_close(put(x, [mask], values, accumulate), wanted)
    assert put(x, [mask], torch.randn(int(mask.sum()), 6), False) is KEPT


def test_scatters_compute_what_pytorch_does() -> None:
    x = torch.randn(4, 5, 6)
    lines = torch.randint(0, 5, (4, 3, 6))
    calls: dict[torch._ops.OpOverload, tuple[Any, ...]] = {
        _aten.select_scatter.default: (x, x[:, 0], 1, -2),
        _aten.slice_scatter.default: (x, x[:, 1:4:2] + 1, 1, 1, 4, 2),
        _aten.scatter.value: (x, 1, lines, 7.0),
        _aten.scatter_add.default: (x, 1, lines, torch.randn(4, 4, 6)),
    }
    for overload, arguments in calls.items():
        torch.testing.assert_close(DECOMPOSITIONS[str(overload)](*arguments), overload(*arguments))
    # PyTorch does not define which of several values at one index is kept.
    unique = torch.stack([torch.randperm(5)[:3] for _ in range(24)], 1).reshape(3, 4, 6).transpose(0, 1)
    wanted = _aten.scatter.src(x, 1, unique, x + 1)
    torch.testing.assert_close(DECOMPOSITIONS["aten.scatter.src"](x, 1, unique, x + 1), wanted)


class Writes(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        index = torch.tensor([3, 0, 3])
        return (
            x.index_copy(1, index[:2], x[:, :2] + 1),
            x.index_fill(1, index, 2.0),
            x.index_add(-1, index, x[:, :, :3], alpha=2.0),
        )


def test_other_writes_become_ours_of_index_put_and_compute_what_pytorch_does() -> None:
    x = torch.randn(4, 5, 6)
    module = torch.export.export(Writes(), (x,)).module(check_guards=False)
    assert isinstance(module, GraphModule)
    Decompose()(module)
    left = {str(node.target).split(".")[1] for node in module.graph.nodes if node.op == "call_function"}
    assert not left & {"index_copy", "index_fill", "index_add", "index_put"}
    torch.testing.assert_close(module(x), Writes()(x))


def _place(x: torch.Tensor) -> torch.Tensor:
    """Return five computed indices of six positions, some of them equal."""
    return x[0].argmax(0)


def test_computed_and_constant_indices_are_delegated_whole() -> None:
    shape = (4, 6, 5)
    small = assert_delegated(
        {
            "computed": lambda m, x, y: put(x, [None, _place(x)], y[:, :5], False),
            "computed, added": lambda m, x, y: put(x, [None, _place(x)], y[:, :5], True),
            "one computed": lambda m, x, y: put(x, [x[:, 0, 0].argmax(0).reshape(1)], y[:1], False),
            "constant": lambda m, x, y: put(x, [None, torch.tensor([4, 1])], y[:, :2], False),
            "constant, added": lambda m, x, y: put(x, [None, torch.tensor([4, 1, 4])], y[:, :3], True),
            "mask": lambda m, x, y: put(x, [x > y], torch.tensor(0.5), False),
            "scatter": lambda m, x, y: x.scatter(1, x.argmax(1, keepdim=True), y[:, :1]),
            "scatter_add": lambda m, x, y: x.scatter_add(1, x.argmax(1, keepdim=True), y[:, :1]),
            "slice_scatter": lambda m, x, y: torch.slice_scatter(x, y[:, :3], 1, 1, 6, 2),
        },
        (shape, shape),
    )
    assert small.operators.count("arg_max") == 6


def test_a_row_of_a_cache_is_selected_where_it_stands() -> None:
    """The position looks up a row of booleans; no dimension of the cache moves."""
    small = compiled(
        lambda m, x, y: put(x, [None, None, y.argmax(0).reshape(1)], x[:, :, :1], False), ((1, 3, 6, 5), (6,))
    )
    assert small.reasons == []
    assert [op for op in small.operators if op != "reshape"] == ["slice", "arg_max", "gather", "select_v2"]
    assert_same_as_litert(small.program)


def test_tables_of_integers_and_booleans_are_looked_up() -> None:
    """The last call looks up a position, and with it an activation."""
    small = assert_delegated(
        {
            "booleans": lambda m, x, y: torch.where(torch.ones(6, 5).tril().bool()[_place(x)], y, x[:, :5, :]),
            "integers": lambda m, x, y: x[:, torch.arange(5, -1, -1)[_place(x)]],
        },
        ((4, 6, 5), (4, 5, 5)),
    )
    assert small.operators.count("gather") == 3


def test_a_mask_with_a_value_for_each_place_stays_on_the_cpu() -> None:
    """The number of positions depends on the input."""
    small = compiled(lambda m, x: (x * 2).index_put((torch.tensor([True, False, True]),), torch.ones(2, 4)), ((3, 4),))
    assert [item.overload for item in small.program.delegation.on_cpu] == ["aten.index_put.default"]


def _written(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Write slices, a column and columns, as detectors decode their boxes."""
    y = (x * 2).tanh()
    y[:, :2] = y[:, :2] * 0.5 - 0.25
    y[:, 2] = x[:, 0].sigmoid()
    y[:, [3, 4]] *= 0.5
    y[:, 5].fill_(0.5)
    return y


def test_writes_to_slices_reach_the_tensor_that_they_are_slices_of() -> None:
    """A quantize node between tensor and slice would lose them."""
    small = compiled(_written, ((3, 6, 4),))
    assert small.reasons == []
    assert_same_as_litert(small.program)
    for sample in small.inputs:
        assert torch.allclose(torch.as_tensor(small.program.run(*sample)[0]), _written(nn.Module(), *sample), atol=0.03)
