# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron.compile(..., kernel_selection=...)``: a file for the application, and one of each partition."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import openneutron
from openneutron.cli import main
from openneutron.errors import InvalidOptionError
from openneutron.isa.kernel_selection import called_kernels, merge, parse
from openneutron.isa.rows import FORMAT_VERSION
from openneutron.options import CompileOptions, DelegationOptions, OutputOptions, QuantizationOptions
from tests.pytorch.small_models import IMAGE, Around


def model() -> nn.Module:
    """A convolution, a sum, a sigmoid and a pointwise convolution."""
    torch.manual_seed(3)
    return Around(lambda m, x: m.point(torch.sigmoid(m.conv(x) + x))).eval()


def test_the_files_of_two_partitions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = (torch.linspace(-2, 2, 8 * 12 * 12).reshape(IMAGE),)
    path = tmp_path / "net_kernel_selection.c"
    made = openneutron.compile(
        model(),
        inputs,
        calibration=[inputs],
        quantization=QuantizationOptions(channels_last=True),
        delegation=DelegationOptions(operators_not_to_delegate=["aten.sigmoid"]),
        outputs=OutputOptions(kernel_selection=path),
    )
    assert [part.name for part in made.partitions] == ["tag0", "tag1"]
    found = {item.name: parse(item.name, item.read_text()) for item in tmp_path.iterdir()}
    names = ["net_kernel_selection.c", "net_tag0_kernel_selection.c", "net_tag1_kernel_selection.c"]
    assert sorted(found) == names
    assert [found[name].kernels for name in names[1:]] == [
        called_kernels([part.compiled.program]) for part in made.partitions
    ]
    assert [{kernel.split(":")[0] for kernel in found[name].kernels} for name in names[1:]] == [
        {"conv_2d_s8", "add_s8"},
        {"conv_2d_1x1_s8"},
    ]
    assert merge({name: found[name] for name in names[1:]}) == found[names[0]]

    made.save(tmp_path / "net.pte")
    assert main(["kernels", "list", str(tmp_path / "net.pte")]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == f"net.pte  microcode format 0x{FORMAT_VERSION:X}"
    assert [line.split("  ")[1] for line in lines] == ["forward, delegate 0", "forward, delegate 1", "all"]


def test_what_can_not_be_one_is_said_before_anything_is_compiled(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        openneutron.compile(model(), outputs=OutputOptions(kernel_selection=tmp_path))
    assert str(caught.value) == (
        f"kernel selection: it is a C file; '{tmp_path}' is none. Name a file that ends in .c."
    )
    with pytest.raises(InvalidOptionError, match=r"^kernel selection: with converter 'eiq' the kernels are NXP's\. "):
        openneutron.compile(
            model(), options=CompileOptions(converter="eiq"), outputs=OutputOptions(kernel_selection=tmp_path / "a.c")
        )
