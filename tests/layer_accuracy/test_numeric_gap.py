# SPDX-License-Identifier: BSD-3-Clause
"""The figures of layers are those of ExecuTorch's Inspector, where both have the same tensors."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from executorch.devtools import Inspector
from torch import nn

from openneutron.api.pytorch import compile_module
from openneutron.features.accuracy import session
from openneutron.features.accuracy.analysis import analysed
from openneutron.options import Request


class Tensors(Inspector):
    """An Inspector of tensors that are given, in place of those in an ETRecord and an ETDump."""

    def __init__(self, real: dict[str, Any], found: dict[str, Any]) -> None:
        self._real, self._found = real, found

    def _resolve_reference_graph(self, *_: Any) -> tuple[None, str]:
        return None, "exported_program"

    def _get_aot_intermediate_outputs_and_op_names(self, *_: Any) -> tuple[dict[Any, Any], dict[Any, list[str]]]:
        return self._by_handle(self._real)

    def _get_aot_debug_handle_to_stack_traces(self, *_: Any) -> dict[Any, Any]:
        return {}

    def _get_runtime_intermediate_outputs_and_op_names(self) -> tuple[dict[Any, Any], dict[Any, list[str]]]:
        outputs, names = self._by_handle(self._found)
        return {handle: (tensor, 1) for handle, tensor in outputs.items()}, names

    @staticmethod
    def _by_handle(tensors: dict[str, Any]) -> tuple[dict[Any, Any], dict[Any, list[str]]]:
        handles = {(number,): name for number, name in enumerate(tensors, 1)}
        return {handle: tensors[name] for handle, name in handles.items()}, {h: [name] for h, name in handles.items()}


def test_calculate_numeric_gap_gives_the_same_numbers() -> None:
    torch.manual_seed(6)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(512, 4)).eval()
    data = [(torch.randn(1, 3, 12, 12),)]
    whole = session.Session(Request(model=model, example_inputs=data[0], calibration=data, name="net"), compile_module)
    both = whole.twins()
    lanes = session.lanes(both, session.compiled(both, whole))
    call = whole.samples[0]
    (real, _), (accumulated, *_) = lanes.float_values(call, {}), lanes.accumulated(call, {})
    names = {layer.lead.name: layer for layer in lanes.layers}
    inspector = Tensors(
        {name: real[layer.source.name] for name, layer in names.items()},
        {name: accumulated[layer.quantize] for name, layer in names.items()},
    )
    gaps = inspector.calculate_numeric_gap("SNR")
    found = {tuple(row.aot_ops): row.gap[0] for row in gaps.itertuples()}
    layers = analysed(lanes, [(call, None)], "imxrt700").layers
    assert len(found) == len(layers) == 5
    for layer in layers:
        assert layer.accumulated_db is not None
        assert math.isfinite(layer.accumulated_db)
        assert found[(layer.node,)] == pytest.approx(layer.accumulated_db, abs=1e-3)
