# SPDX-License-Identifier: BSD-3-Clause
"""The partitioner's reasons for models that are not quantized, and for operators that the quantizer left float."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower

from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.operators.annotations import annotation_rules
from openneutron.pytorch.quantizer import neutron_quantizer
from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer

INPUTS = (torch.linspace(-1, 1, 2 * 8 * 8).reshape(1, 2, 8, 8),)


def reasons(module: Any) -> list[str]:
    partitioner = NeutronPartitioner()
    to_edge_transform_and_lower(torch.export.export(module, INPUTS), partitioner=[partitioner])
    return [f"{item.reason}. {item.suggestion}".strip() for item in partitioner.delegations[-1].on_cpu]


def quantized(module: torch.nn.Module) -> Any:
    return calibrate_and_quantize(torch.export.export(module.eval(), INPUTS), [INPUTS], NeutronQuantizer())


def test_a_model_that_is_not_quantized() -> None:
    assert reasons(torch.nn.MaxPool2d(2).eval()) == [
        "the model is not quantized. Quantize it with NeutronQuantizer.",
    ]


def test_operators_that_the_quantizer_has_no_rule_for(monkeypatch: pytest.MonkeyPatch) -> None:
    rest = {name: rule for name, rule in annotation_rules().items() if name != "aten.max_pool2d.default"}
    monkeypatch.setattr(neutron_quantizer, "annotation_rules", lambda: rest)
    assert reasons(quantized(torch.nn.MaxPool2d(2))) == ["the quantizer has no rule for it."]
    part = quantized(torch.nn.Sequential(torch.nn.MaxPool2d(2), torch.nn.Conv2d(2, 4, 1)))
    assert reasons(part) == ["its input 'input_1' is not quantized."]
