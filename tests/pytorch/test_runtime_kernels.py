# SPDX-License-Identifier: BSD-3-Clause
"""A program that ExecuTorch's runtime here would refuse to load is refused at compile time."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import nn

import openneutron
from openneutron.api import pytorch as api
from openneutron.cli import main
from openneutron.errors import InvalidModelError
from openneutron.options import DelegationOptions
from openneutron.pytorch.nxp_backend import NeutronBackend
from openneutron.pytorch.partition.delegation import has_kernel
from tests.pytorch.small_models import without_lines
from tests.support.litert_files import int16_file

NET = """\
import torch
from torch import nn

class Product(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return torch.cumprod(self.conv(x), -1)

def net():
    return Product(), (torch.zeros(1, 3, 6, 6),)
"""

MESSAGE = (
    "ExecuTorch's runtime has no kernel for aten.cumprod ('cumprod'), on the CPU, and would not load the program. Write "
    "that part of the model with other operators; or pass DelegationOptions(any_runtime=True) (--any-runtime) for a .pte that runs "
    "where these kernels are."
)


def product_net() -> tuple[nn.Module, tuple[torch.Tensor]]:
    scope: dict[str, object] = {"__name__": "product"}
    exec(NET, scope)
    return scope["net"]()


def test_an_operator_without_a_kernel_is_named() -> None:
    model, inputs = product_net()
    with (
        mock.patch.object(api, "lowered", side_effect=AssertionError("it is refused before anything is compiled")),
        pytest.raises(InvalidModelError) as caught,
    ):
        openneutron.compile(model, inputs, calibration=[inputs])
    assert str(caught.value) == f"'model': {MESSAGE}"


def test_the_runtime_has_kernels_for_powers() -> None:
    """ExecuTorch's function for all dialects finds no out variant of them; the one that its own pass calls does."""
    powers = torch.ops.aten.pow
    assert all(map(has_kernel, (powers.Tensor_Tensor, powers.Tensor_Scalar, powers.Scalar, torch.ops.aten.mul.Tensor)))
    assert not has_kernel(torch.ops.aten.cumprod.default)


@torch.library.custom_op("openneutron_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    """An operator of a user without an out variant, which ExecuTorch can't write to a program."""
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.layer(twice(self.layer(x))))


def test_a_custom_operator_is_explained_and_not_compiled() -> None:
    x = torch.linspace(-1, 1, 8).reshape(1, 8)
    with pytest.raises(InvalidModelError) as caught:
        openneutron.compile(Custom(), (x,), calibration=[x])
    assert without_lines(str(caught.value)) == (
        "'model': ExecuTorch's runtime has no kernel for openneutron_test.twice ('twice (test_runtime_kernels.py)'), on the CPU, "
        "and would not load the program. Write that part of the model with other operators."
    )
    (left,) = api.analyse(Custom(), (x,), calibration=[x]).delegation.on_cpu
    assert (left.operator, left.reason) == (
        "openneutron_test.twice",
        "there is no kernel for openneutron_test.twice",
    )


class Unfilled(nn.Module):
    """An operator that writes to its argument is another one in the Edge program, where it has no kernel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) + torch.zeros(4).cauchy_()


def test_an_operator_without_a_kernel_among_those_of_executorch_is_named() -> None:
    x = (torch.ones(2, 4),)
    with (
        mock.patch.object(
            NeutronBackend, "preprocess", side_effect=AssertionError("it is refused before it is compiled")
        ),
        pytest.raises(InvalidModelError) as caught,
    ):
        openneutron.compile(Unfilled(), x, calibration=[x])
    expected = MESSAGE.replace("aten.cumprod ('cumprod')", "aten.cauchy ('cauchy (test_runtime_kernels.py)')")
    assert without_lines(str(caught.value)) == f"'model': {expected}"


class InOrder(nn.Module):
    """Operators that put values in order, as ExecuTorch's runtime has them."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.sort(x, -1, descending=True)[0],
            torch.argsort(x, -1),
            torch.median(x, -1)[0],
            torch.kthvalue(x, 2, -1, keepdim=True)[0],
            torch.bucketize(x, torch.tensor([-0.5, 0.5])),
        )


def test_values_are_put_in_order_by_topk() -> None:
    x = torch.tensor([[0.9, -1.0, 0.25, 0.6], [-0.75, 1.0, -0.25, 0.0]])
    made = openneutron.compile(InOrder(), (x,), calibration=[(x,)], delegation=DelegationOptions(must_delegate=False))
    for found, expected in zip(made.run(x), InOrder()(x), strict=True):
        assert torch.allclose(torch.as_tensor(found).double(), expected.double(), atol=0.02)


def test_another_runtime_can_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    assert main(["compile", "net.py:net"]) == 2
    message = MESSAGE.replace("'cumprod'", "'cumprod (net.py:10)'")  # code without a file has no lines
    assert capsys.readouterr().err.splitlines()[-1] == f"error: 'net.py:net': {message}"
    assert not (tmp_path / "net.pte").exists()
    assert main(["compile", "net.py:net", "--any-runtime", "-q"]) == 0
    assert (tmp_path / "net.pte").exists()
    assert main(["explain", "net.py:net", "-q"]) == 0
    assert "aten.cumprod" in capsys.readouterr().out


def test_an_option_for_pytorch_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.tflite").write_bytes(int16_file(0.1))
    assert main(["compile", "x.tflite", "--any-runtime"]) == 2
    assert capsys.readouterr().err == (
        "error: --any-runtime: it is for PyTorch models; 'x.tflite' is a .tflite. Leave it out.\n"
    )
    for option in ("--trust", "--import=os"):
        assert main(["compile", "x.tflite", option]) == 2
        assert capsys.readouterr().err == (
            f"error: {option.partition('=')[0]}: this option is for .pt2, .keras or .pt files; 'x.tflite' is not one. Leave it out.\n"
        )
