# SPDX-License-Identifier: BSD-3-Clause
"""Budgets that several partitions exceed, and what is on disk afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import openneutron
from openneutron.errors import BudgetError
from openneutron.model_options import OutputOptions
from openneutron.options import CompileOptions
from tests.pytorch.small_models import IMAGE, Around

EXAMPLE = (torch.randn(IMAGE, generator=torch.Generator().manual_seed(0)),)


def model() -> nn.Module:
    """Two partitions, of which the second needs more memory."""
    torch.manual_seed(5)
    return Around(lambda m, x: F.interpolate(m.point(torch.topk(m.conv(x), 12)[0] * 2), scale_factor=3)).eval()


def test_a_budget_names_what_the_largest_partition_needs(tmp_path: Path) -> None:
    with pytest.raises(BudgetError) as caught:
        openneutron.compile(
            model(),
            EXAMPLE,
            calibration=[EXAMPLE],
            options=CompileOptions(sram_budget=1024),
            name="two",
            outputs=OutputOptions(intermediates_dir=tmp_path),
        )
    needed = -(-caught.value.least_bytes // 1024)
    message = str(caught.value)
    assert message.startswith("'two': it needs ")
    assert "for the largest of its 2 partitions, which run one after the other" in message
    assert f"at least {needed} KiB" in message
    # A budget that only the second exceeds: the first leaves no files behind.
    with pytest.raises(BudgetError) as again:
        openneutron.compile(
            model(),
            EXAMPLE,
            calibration=[EXAMPLE],
            options=CompileOptions(sram_budget=(needed - 1) * 1024),
            name="two",
            outputs=OutputOptions(intermediates_dir=tmp_path),
        )
    assert again.value.least_bytes == caught.value.least_bytes
    assert list(tmp_path.iterdir()) == []
    made = openneutron.compile(
        model(),
        EXAMPLE,
        calibration=[EXAMPLE],
        options=CompileOptions(sram_budget=needed * 1024),
        outputs=OutputOptions(intermediates_dir=tmp_path),
    )
    sizes = [part.compiled.report.sram_bytes for part in made.partitions]
    assert caught.value.least_bytes <= max(sizes) == sizes[1] <= needed * 1024
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"tag{number}_{kind}.et.tflite" for number in range(2) for kind in ("neutron", "pure")
    ]
