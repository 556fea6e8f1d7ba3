# SPDX-License-Identifier: BSD-3-Clause
"""Integers and truth values from PyTorch to the NPU and back: positions, comparisons, conditions, indices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from openneutron.api.pytorch import CompiledModel, analyse
from openneutron.errors import DriverError
from openneutron.options import CompileOptions, QuantizationOptions
from tests.pytorch.small_models import assert_same_as_litert, outputs_of, without_lines

IMAGE = (1, 8, 6, 5)
ROWS = 20
STEP = 0.08
"""Above the largest step of any result's scale here."""


class Around(nn.Module):
    """Layers that ``function`` may use."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.words = nn.Embedding(ROWS, 12)
        self.linear = nn.Linear(12, 5)
        self.register_buffer("places", torch.tensor([3, -1, 0]))

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def image() -> torch.Tensor:
    return torch.randn(IMAGE)


def mask() -> torch.Tensor:
    return torch.rand(1, 1, *IMAGE[2:]) > 0.5


def words() -> torch.Tensor:
    return torch.randint(0, ROWS, (2, 7))


def below(end: int, *shape: int, first: int = 0) -> Callable[[], torch.Tensor]:
    return lambda: torch.randint(first, end, shape)


@dataclass(frozen=True, slots=True)
class Case:
    """``operators`` is what the graphs hold besides transposes."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[Callable[[], torch.Tensor], ...]
    operators: str


CASES = (
    Case("argmax over channels", lambda m, x: m.conv(x).argmax(1), (image,), "conv_2d arg_max"),
    Case("argmin that keeps its dimension", lambda m, x: m.conv(x).argmin(2, True), (image,), "conv_2d arg_min reshape"),
    Case("argmax of everything", lambda m, x: m.conv(x).argmax(), (image,), "conv_2d reshape arg_max"),
    Case("above a number", lambda m, x: m.conv(x) > 0.1, (image,), "conv_2d greater_equal"),
    Case("never above", lambda m, x: m.conv(x) > 1e6, (image,), "conv_2d less"),
    Case("always below", lambda m, x: m.conv(x) <= 1e6, (image,), "conv_2d greater_equal"),
    Case("sigmoid above a half", lambda m, x: torch.sigmoid(m.conv(x)) > 0.5, (image,), "conv_2d logistic greater_equal"),
    Case("small values", lambda m, x: m.conv(x) / 1000 < 0, (image,), "conv_2d mul less"),
    Case("large values", lambda m, x: m.conv(x) * 1000 >= 1, (image,), "conv_2d mul greater_equal"),
    Case("equal to 0", lambda m, x: torch.relu(m.conv(x)) == 0, (image,), "conv_2d equal"),
    Case("equal to a number it never is", lambda m, x: torch.relu(m.conv(x)) == -3, (image,), "conv_2d less"),
    Case("not equal", lambda m, x: torch.relu(m.conv(x)) != 0, (image,), "conv_2d not_equal"),
    Case("below another", lambda m, x, y: m.conv(x) < y, (image, image), "conv_2d mul mul less"),
    Case(
        "truth values together",
        lambda m, x, y: ((m.conv(x) > 0) & ~(y > 0.5)) | (x == 0),
        (image, image),
        "conv_2d equal greater_equal greater_equal logical_not logical_and logical_or",
    ),
    Case("exclusive or", lambda m, x, k: (m.conv(x) > 0) ^ k, (image, mask), "conv_2d greater_equal reshape not_equal"),
    Case(
        "where",
        lambda m, x, y: torch.where(m.conv(x) < y, x, y),
        (image, image),
        "conv_2d mul mul less select_v2",
    ),
    Case("masked_fill", lambda m, x, k: m.conv(x).masked_fill(k, -1e9), (image, mask), "conv_2d lookup reshape select_v2"),
    Case("masked_fill with infinity", lambda m, x, k: m.conv(x).masked_fill(k, -torch.inf), (image, mask),
         "conv_2d lookup reshape select_v2"),
    Case("masked_fill with a value", lambda m, x, k: m.conv(x).masked_fill(k, 2.5), (image, mask),
         "conv_2d reshape select_v2"),
    Case("where with a number", lambda m, x, y: torch.where(x < y, m.conv(x), 0.0), (image, image),
         "conv_2d mul mul less logical_not select_v2"),
    Case("where with numbers", lambda m, x, k: m.conv(x) + torch.where(k, -64.0, 0.0), (image, mask),
         "conv_2d select_v2 reshape add"),
    Case("masked softmax", lambda m, x, k: torch.softmax(m.conv(x).masked_fill(k, -torch.inf), 1), (image, mask),
         "conv_2d lookup reshape select_v2 softmax"),
    Case("max with its position", lambda m, x: m.conv(x).max(1), (image,), "conv_2d arg_max reduce_max reshape"),
    Case("min's position", lambda m, x: m.conv(x).min(2, keepdim=True)[1], (image,), "conv_2d arg_min reshape"),
    Case("running sums", lambda m, x: m.conv(x).cumsum(2), (image,), "conv_2d fully_connected"),
    Case("running sums of a line", lambda m, x: (x * 2).cumsum(0), (lambda: torch.randn(9),),
         "lookup reshape fully_connected reshape"),
    Case("a mask as numbers", lambda m, x, k: m.conv(x) * k.float(), (image, mask), "conv_2d select_v2 reshape mul"),
    Case("embedding", lambda m, i: m.linear(m.words(i)), (words,), "gather fully_connected"),
    Case("index_select", lambda m, x, i: m.conv(x).index_select(2, i), (image, below(6, 4)), "conv_2d gather"),
    Case("constant indices", lambda m, x: m.conv(x)[:, :, m.places], (image,), "conv_2d gather"),
    Case("indices from the end", lambda m, x, i: m.conv(x)[:, :, i], (image, below(6, 2, 3, first=-6)), "conv_2d gather"),
    Case("gather", lambda m, x, i: m.conv(x).gather(1, i), (image, below(8, 1, 3, 6, 5)), "conv_2d gather"),
    Case("words of positions", lambda m, x: m.linear(m.words(m.conv(x).argmax(1))), (image,),
         "conv_2d arg_max gather fully_connected"),
)  # fmt: skip


def _compiled(
    function: Callable[..., Any], makers: tuple[Callable[[], torch.Tensor], ...]
) -> tuple[CompiledModel, list[tuple[torch.Tensor, ...]]]:
    torch.manual_seed(5)
    inputs = [tuple(make() for make in makers) for _ in range(3)]
    return analyse(Around(function).eval(), inputs[0], calibration=inputs), inputs


def _operators(program: CompiledModel) -> list[str]:
    nodes = [node for part in program.partitions for node in part.graph.nodes]
    return [node.op for node in nodes if node.op != "transpose"]


def _assert_same_as_pytorch(program: CompiledModel, inputs: list[tuple[torch.Tensor, ...]], most: float) -> None:
    """Exact types and shapes, and all but this part of the values the same, reals nearly so."""
    for given in inputs:
        with torch.no_grad():
            wanted = outputs_of(program.quantized(*given))
        for got, want in zip(program.run(*given), wanted, strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            apart = (got - want).abs() > STEP if got.is_floating_point() else got != want
            assert float(apart.float().mean()) <= most


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_operator(case: Case) -> None:
    program, inputs = _compiled(case.function, case.inputs)
    assert [str(item) for item in program.delegation.on_cpu] == []
    assert len(program.partitions) == 1
    assert _operators(program) == case.operators.split()
    if case.name != "indices from the end":  # which LiteRT does not take
        assert_same_as_litert(program)
    _assert_same_as_pytorch(program, inputs, 0.02)


@pytest.mark.parametrize("chip", ["imxrt700", "imx95"])
def test_a_table_larger_than_the_memory_of_the_npu_is_no_obstacle(chip: str) -> None:
    torch.manual_seed(5)
    inputs = [(torch.randint(0, 250_000, (1, 12)),) for _ in range(2)]
    model = nn.Sequential(nn.Embedding(250_000, 64), nn.Linear(64, 8)).eval()
    program = analyse(model, inputs[0], calibration=inputs, options=CompileOptions(target=chip))
    assert [str(item) for item in program.delegation.on_cpu] == []
    assert _operators(program) == ["gather", "fully_connected"]
    assert program.report.weights_bytes > 16_000_000
    assert program.report.milliseconds < 0.1
    _assert_same_as_pytorch(program, inputs, 0)


@pytest.mark.parametrize("index", [ROWS, -ROWS - 1, 2**40])
def test_an_index_that_names_nothing_ends_the_run(index: int) -> None:
    program, _ = _compiled(lambda m, i: m.linear(m.words(i)), (words,))
    given = words()
    given[1, 3] = index
    with pytest.raises(DriverError, match="an index that was given or computed is outside the tensor"):
        program.run(given)


WHAT_THERE_IS = "The NPU's operators on integers and booleans are those of indices, positions and conditions."

STAYS = (
    (
        "sums of integers",
        lambda m, x: m.conv(x).argmax(1) + 1,
        (image,),
        f"aten.add 'add (test_choices.py)' stays on the CPU: its result is int64; the NPU computes on int8 and int16. {WHAT_THERE_IS}",
    ),
    (
        "comparisons of integers",
        lambda m, i: m.words(i).masked_fill((i < 254).unsqueeze(-1), 0.0),
        (words,),
        "aten.lt 'lt (test_choices.py)' stays on the CPU: it orders integers and constants from 254 to 254; these must be at least 0 "
        f"and below 254. {WHAT_THERE_IS}",
    ),
    *(
        (
            f"a comparison of integers with {number}",
            lambda m, i, compare=compare, number=number: m.words(i).masked_fill(compare(i, number).unsqueeze(-1), 0.0),
            (words,),
            f"aten.{compare.__name__} '{compare.__name__} (test_choices.py)' stays on the CPU: it compares int64 with {number}; a whole "
            f"number that int64 holds is needed. {WHAT_THERE_IS}",
        )
        for number, compare in ((float("inf"), torch.lt), (float("nan"), torch.eq), (1e20, torch.ge))
    ),
    (
        "two lists of indices",
        lambda m, x, i: m.conv(x)[:, i, i],
        (image, below(5, 3)),
        "getitem (aten.index) 'getitem (test_choices.py)' stays on the CPU: 2 of its 2 index tensors are computed; the last one "
        "alone may be. Index one dimension after the other.",
    ),
    (
        "topk",
        lambda m, x: m.conv(x).topk(2, 1),
        (image,),
        "aten.topk 'topk (test_choices.py)' stays on the CPU: it puts values in order, for which there is no kernel. "
        "argmax and max with a dimension, which have one, find the first of them.",
    ),
    (
        "gather from a part",
        lambda m, x, i: m.conv(x).gather(1, i),
        (image, below(8, 1, 3, 6, 2)),
        "aten.gather 'gather (test_choices.py)' stays on the CPU: its indices have 2 positions along dimension 3, its input 5; "
        "they must be as many.",
    ),
)


@pytest.mark.parametrize(("name", "function", "makers", "reason"), STAYS, ids=[row[0] for row in STAYS])
def test_what_stays_has_a_reason(
    name: str, function: Callable[..., Any], makers: tuple[Callable[[], torch.Tensor], ...], reason: str
) -> None:
    program, inputs = _compiled(function, makers)
    assert reason in [without_lines(str(item)) for item in program.delegation.on_cpu], name
    assert _operators(program), "the rest is delegated"
    _assert_same_as_pytorch(program, inputs, 0.02)


def test_a_reason_names_the_rule_by_its_module() -> None:
    program, _ = _compiled(lambda m, i: m.words(i).masked_fill((i < 254).unsqueeze(-1), 0.0), (words,))
    assert [item.rule for item in program.delegation.on_cpu if item.computes and item.operator == "aten.lt"] == [
        "comparison._comparison"
    ]


def test_trained_with_a_mask() -> None:
    """A mask's infinity is in no range that training observes."""
    torch.manual_seed(5)
    inputs = [(torch.randn(1, 5, 12),) for _ in range(3)]
    hidden = torch.ones(5, 5).triu(1).bool()
    model = Around(lambda m, x: torch.softmax(m.linear(x).masked_fill(hidden, -torch.inf), -1))
    program = analyse(
        model,
        inputs[0],
        calibration=inputs,
        quantization=QuantizationOptions(train_fn=lambda prepared: [prepared(*given) for given in inputs]),
    )
    assert program.delegation.on_cpu == ()
    assert _operators(program) == ["fully_connected", "add", "softmax"]
    _assert_same_as_pytorch(program, inputs, 0.0)


def test_fillers_out_of_reach_take_no_part_in_the_range() -> None:
    for filler in (-1e9, torch.inf):
        program, inputs = _compiled(lambda m, x, k, filler=filler: x.masked_fill(k, filler), (image, mask))
        given, hidden = inputs[0]
        (got,) = program.run(given, hidden)
        apart = (got - given)[~hidden.expand(IMAGE)]
        assert float(apart.abs().max()) < STEP


NUMBERS = (-3.0, -2.0, 0.0, 0.5, 0.1, 1.9, 5.0)
RELATIONS = (torch.lt, torch.le, torch.gt, torch.ge, torch.eq, torch.ne)


def test_comparisons_are_exact_for_every_stored_value() -> None:
    """With numbers between, on and outside the 256 values that PyTorch dequantizes."""
    values = torch.linspace(-2.0, 1.9, 256).reshape(1, 256)

    def all_of_them(_: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(relation(x, number) for relation in RELATIONS for number in NUMBERS)

    program = analyse(Around(all_of_them), (values,), calibration=[(values,)])
    assert program.delegation.on_cpu == ()
    _assert_same_as_pytorch(program, [(values,)], 0.0)
