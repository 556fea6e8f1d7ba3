# SPDX-License-Identifier: BSD-3-Clause
"""Budgets that several partitions exceed, and what is on disk afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from executorch.exir import to_edge_transform_and_lower
from torch import nn

import openneutron
from openneutron.errors import BudgetError
from openneutron.options import CompileOptions, OutputOptions
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import generate_neutron_compile_spec
from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
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


def test_executorchs_lowering_raises_one_error_for_all_partitions() -> None:
    exported = torch.export.export(model(), EXAMPLE)
    module = calibrate_and_quantize(exported, [EXAMPLE], NeutronQuantizer())
    spec = generate_neutron_compile_spec("imxrt700", options=CompileOptions(sram_budget=1024))
    with pytest.raises(BudgetError, match=r"^'model': it needs .* for the largest of its 2 partitions, "):
        to_edge_transform_and_lower(torch.export.export(module, EXAMPLE), partitioner=[NeutronPartitioner(spec)])
