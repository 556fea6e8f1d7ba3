# SPDX-License-Identifier: BSD-3-Clause
"""Reports of PyTorch models: the graph of a ``.pte`` with its reasons, and a ``.pte`` with the facts of its compile."""

from __future__ import annotations

from pathlib import Path

import pytest

import openneutron
from openneutron.device.pte import payloads
from openneutron.errors import InvalidModelError

torch = pytest.importorskip("torch")

from openneutron.api.pytorch import CompiledModel, analyse  # noqa: E402
from openneutron.features.explorer.nodes import nodes_of  # noqa: E402
from openneutron.features.report.page.data import facts_of  # noqa: E402
from tests.pytorch.small_models import without_lines  # noqa: E402


class Parted(torch.nn.Module):
    """Two partitions, with a sort on the CPU between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        y = torch.sort(x, dim=1)[0]
        return torch.relu(self.second(y)) + self.second(x)


@pytest.fixture(scope="module")
def parted() -> CompiledModel:
    torch.manual_seed(0)
    example = (torch.randn(1, 3, 12, 12),)
    return analyse(Parted().eval(), example, calibration=[example])


def test_operators_on_the_cpu_have_their_reasons_between_the_partitions(parted: CompiledModel) -> None:
    data = parted.report_data(pareto=False)
    (sort,) = (node for node in data.graph if node.operator == "sort (aten.topk)")
    assert without_lines(sort.name) == "sort (test_pte_report.py)"
    assert sort.reason.startswith("it puts values in order, for which there is no kernel")
    (before,) = (data.graph[source] for source in sort.inputs)
    assert before.reason == "integers from the NPU become floats"
    assert {data.graph[source].partition for source in before.inputs} == {0}
    inside = [node for node in data.graph if node.kind == "npu"]
    assert {node.partition for node in inside} == {0, 1}
    assert [node.layer for node in inside] == list(range(len(data.layers)))
    assert {layer.module for layer in data.layers} >= {"first", "second"}
    assert all(node.inputs for node in data.graph if node.kind != "input")


def test_a_pte_with_facts_has_the_same_programs_and_the_same_report(parted: CompiledModel, tmp_path: Path) -> None:
    parted.save(tmp_path / "facts.pte", facts=True)
    parted.save(tmp_path / "plain.pte")
    data = (tmp_path / "facts.pte").read_bytes()
    assert facts_of(data, "x") == parted.report_data(pareto=False)
    assert payloads(data) == payloads(parted.buffer)
    plain, known = (nodes_of(tmp_path / f"{name}.pte") for name in ("plain", "facts"))
    assert [(node.kind, node.inputs, node.shape) for node in plain] == [
        (node.kind, node.inputs, node.shape) for node in known
    ]
    with pytest.raises(InvalidModelError) as error:
        openneutron.load(tmp_path / "plain.pte").write_report(tmp_path / "r.html")
    assert str(error.value).startswith("'plain.pte': it was saved without the facts of its compile")


def test_executorch_runs_a_pte_with_facts(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, example = torch.nn.Conv2d(3, 8, 3).eval(), (torch.randn(1, 3, 8, 8),)
    program = openneutron.compile(model, example, calibration=[example])
    program.save(tmp_path / "facts.pte", facts=True)
    (expected,), (found,) = program.run(*example), openneutron.load(tmp_path / "facts.pte").run(*example)
    assert torch.equal(found, expected)
