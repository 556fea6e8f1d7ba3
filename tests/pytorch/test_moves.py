# SPDX-License-Identifier: BSD-3-Clause
"""The table of operators that move values states what each of them changes, and passes use it for sums of booleans."""

from __future__ import annotations

import pytest
import torch

from openneutron.pytorch.graph.program import MOVES
from openneutron.pytorch.operators.annotations import DECOMPOSED_MOVES, MOVE, annotation_rules
from openneutron.pytorch.quantizer.passes.arithmetic import WholeNumbers

_aten = torch.ops.aten
ROWS = torch.tensor([1, 0])
ARGUMENTS: dict[object, tuple[object, ...]] = {
    _aten.expand.default: ([2, 2, 3, 1, 4],),
    _aten.flatten.using_ints: (1, 3),
    _aten.flip.default: ([0, 3],),
    _aten.gather.default: (1, torch.zeros(2, 2, 1, 4, dtype=torch.int64)),
    _aten.index.Tensor: ([None, ROWS],),
    _aten.index_select.default: (1, ROWS),
    _aten.permute.default: ([3, 0, 2, 1],),
    _aten.repeat.default: ([1, 2, 1, 1],),
    _aten.reshape.default: ([6, 4],),
    _aten.select.int: (1, 2),
    _aten.slice.Tensor: (3, 1, 3),
    _aten.squeeze.dim: (2,),
    _aten.squeeze.dims: ([2],),
    _aten.transpose.int: (1, 3),
    _aten.unflatten.int: (3, [2, 2]),
    _aten.unsqueeze.default: (1,),
    _aten.view.default: ([24],),
}


@pytest.mark.parametrize("target", MOVES, ids=str)
def test_an_operator_changes_what_its_row_states(target: torch._ops.OpOverload) -> None:
    values = torch.arange(24).reshape((4, 6) if target is _aten.t.default else (2, 3, 1, 4))
    moved = target(values, *ARGUMENTS.get(target, ()))
    changes = (
        not torch.equal(moved, values),
        moved.numel() != 24 or not torch.equal(moved.flatten(), values.flatten()),
        sorted(moved.flatten().tolist()) != list(range(24)),
    )
    assert sum(changes) == MOVES[target]
    assert set(moved.flatten().tolist()) <= set(range(24))


def test_a_move_that_stays_whole_keeps_its_scale() -> None:
    rules = annotation_rules()
    assert {target for target in MOVES if str(target) not in rules} == set(DECOMPOSED_MOVES)
    assert all(rules[str(target)] is MOVE for target in MOVES if str(target) in rules)


class Counted(torch.nn.Module):
    """A sum of booleans behind one move, compared with a number."""

    def __init__(self, target: torch._ops.OpOverload) -> None:
        super().__init__()
        self.target = target

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        arguments = [
            item.to(x.device) if isinstance(item, torch.Tensor) else item for item in ARGUMENTS.get(self.target, ())
        ]
        marks = (x > 0).to(torch.int64)
        return self.target(marks, *arguments).sum(0) + self.target(marks.cumsum(0), *arguments).sum(0)


@pytest.mark.parametrize("target", MOVES, ids=str)
def test_sums_of_booleans_pass_moves_with_one_tensor(target: torch._ops.OpOverload) -> None:
    torch.manual_seed(0)
    x = torch.randn((4, 6) if target is _aten.t.default else (2, 3, 1, 4))
    module = torch.export.export(Counted(target), (x,)).module()
    wanted = module(x)
    result = WholeNumbers()(module)
    assert result is not None
    assert torch.equal(module(x), wanted)
    sums = module.graph.find_nodes(op="call_function", target=_aten.sum.dim_IntList)
    moved_alone = (
        all(not isinstance(item, torch.Tensor) for item in ARGUMENTS.get(target, ()))
        and target is not _aten.index.Tensor
    )
    assert all((node.meta["val"].dtype == torch.float32) == moved_alone for node in sums)
