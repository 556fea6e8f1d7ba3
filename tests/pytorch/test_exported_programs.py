# SPDX-License-Identifier: BSD-3-Clause
"""Programs as people export them: in training mode, taken apart, with vmap, loops, and values that decide on positions and sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from executorch.exir import to_edge
from torch import nn
from torch.export import ExportedProgram
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

import openneutron
from openneutron.errors import InvalidModelError, OpenNeutronWarning
from openneutron.pytorch import NeutronQuantizer
from tests.pytorch.small_models import sqnr

IMAGE = (1, 3, 12, 12)


def samples() -> list[tuple[torch.Tensor]]:
    made = torch.Generator().manual_seed(3)
    return [(torch.randn(IMAGE, generator=made),) for _ in range(4)]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.InstanceNorm2d(8),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.LayerNorm(200),
        nn.Linear(200, 4),
        nn.Softmax(-1),
    )


PROGRAMS: dict[str, tuple[bool, Callable[[ExportedProgram], ExportedProgram]]] = {
    "in training mode": (True, lambda program: program),
    "taken apart": (False, lambda program: program.run_decompositions()),
    "in training mode, taken apart": (True, lambda program: program.run_decompositions()),
}


WARNING = (
    "'net' was exported in training mode; it is compiled as in inference: batch normalizations use their running statistics, and "
    "nothing is dropped. Call model.eval() before torch.export."
)


@pytest.mark.parametrize(("training", "change"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_is_compiled_whole(
    training: bool, change: Callable[[ExportedProgram], ExportedProgram], recwarn: pytest.WarningsRecorder
) -> None:
    model, given = network(), samples()
    exported = change(torch.export.export(model.train(training), given[0]))
    program = openneutron.compile(exported, calibration=given, name="net")
    warned = [str(item.message) for item in recwarn if issubclass(item.category, OpenNeutronWarning)]
    assert warned == ([WARNING] if training else [])
    assert program.delegation.on_cpu == ()
    assert sqnr(model.eval()(*given[1]), program.run(*given[1])[0]) > 34


def test_statistics_of_the_batch_are_an_instance_normalization() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, track_running_stats=False)).eval()
    inputs = (torch.randn(2, 3, 12, 12),)
    prepared = prepare_pt2e(torch.export.export(model, inputs).module(), NeutronQuantizer())
    torch.testing.assert_close(prepared(*inputs), model(*inputs), atol=1e-5, rtol=1e-4)


class Mapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(12, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(torch.vmap(self.linear)(x))


def test_vmap_is_taken_apart_and_leaves_no_state() -> None:
    model, given = Mapped().eval(), samples()
    exported = torch.export.export(model, given[0])
    with pytest.raises(InvalidModelError, match=r"torch\.vmap is still in the exported graph\. Take it apart first"):
        prepare_pt2e(exported.module(), NeutronQuantizer())
    assert openneutron.compile(model, given[0], calibration=given).delegation.on_cpu == ()
    torch.rand(3)  # raises inside a vmap that has not ended


class Keypoints(nn.Module):
    """The decoder of a keypoint detector: the values of one map at the largest value of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.heat, self.offset = nn.Conv2d(3, 2, 3), nn.Conv2d(3, 2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        best = self.heat(x).flatten(2).argmax(2)
        offset = self.offset(x)
        near = [offset[0, k, best[0, k] // 10, best[0, k] % 10] for k in range(2)]
        return torch.stack([*near, offset.flatten()[best[0, 0] - 100]])  # counted from the end


def test_values_at_computed_positions_are_looked_up() -> None:
    torch.manual_seed(0)
    model, given = Keypoints().eval(), samples()
    program = openneutron.compile(model, given[0], calibration=given)
    assert {item.operator for item in program.delegation.on_npu} >= {"conv2d (aten.convolution)", "aten.argmax"}
    assert sqnr(model(*given[1]), program.run(*given[1])[0]) > 30


class Loop(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, y = torch.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 0.5), (torch.tensor(0), x))
        return torch.as_tensor(y)


class Places(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.relu() > 0.5).nonzero() * 2.0


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            Loop(),
            "while_loop is a loop at run time, which ExecuTorch can't lower beside quantized operators. Write a Python",
        ),
        (Places(), "'model': the result of aten.nonzero at test_exported_programs.py:"),
    ],
)
def test_what_only_a_run_knows_is_named(model: nn.Module, words: str) -> None:
    with pytest.raises(InvalidModelError) as caught:
        openneutron.compile(model, samples()[0], calibration=samples())
    assert words in str(caught.value)


class Chosen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
        y = self.layer(x).flatten()
        return y[y > least]


def test_a_result_of_as_many_values_as_a_run_chooses_is_not_measured() -> None:
    """All of them here, in float and quantized alike."""
    torch.manual_seed(0)
    model, given = Chosen().eval(), [(*sample, torch.tensor([-99.0])) for sample in samples()]
    program = openneutron.compile(model, given[0], calibration=given)
    assert program.outputs == ()
    assert "conv2d (aten.convolution)" in {item.operator for item in program.delegation.on_npu}
    assert sqnr(model(*given[1]), program.run(*given[1])[0]) > 30


def test_a_program_of_the_edge_dialect_is_too_late() -> None:
    given = samples()
    exported = to_edge(torch.export.export(nn.ReLU().eval(), given[0])).exported_program()
    with pytest.raises(InvalidModelError) as caught:
        openneutron.compile(exported, calibration=given)
    assert str(caught.value) == (
        "'model' is a program of ExecuTorch's Edge dialect, which can't be quantized any more. Pass the program of "
        "torch.export.export, as it is before to_edge."
    )
