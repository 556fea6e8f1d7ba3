# SPDX-License-Identifier: BSD-3-Clause
"""Accuracy by layer of models that change their buffers: the samples are a stream."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import openneutron
from openneutron.api.pytorch import compile_module
from openneutron.features.accuracy import session
from openneutron.options import Request
from tests.support.stateful_modules import Hidden, Ring, TwoRings

MODELS: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "ring": (Ring, (1, 8, 1)),
    "two rings": (TwoRings, (1, 8, 1, 6)),
    "hidden": (Hidden, (1, 8)),
}


def stream(shape: tuple[int, ...], count: int = 6) -> list[tuple[torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(shape, generator=generator),) for _ in range(count)]


def asked(name: str) -> session.Session:
    torch.manual_seed(0)
    made, shape = MODELS[name]
    frames = stream(shape)
    request = Request(model=made().eval(), example_inputs=frames[0], calibration=frames, name=name)
    return session.Session(request, compile_module)


@pytest.mark.parametrize("name", MODELS)
def test_results_over_a_stream_are_those_of_the_program(name: str) -> None:
    whole = asked(name)
    both = whole.twins()
    program = session.compiled(both, whole)
    lanes = session.lanes(both, program)
    assert lanes.on_npu
    state = real_state = both.state
    for call in whole.samples:
        _, (found,), state = lanes.accumulated(call, state)
        assert torch.equal(found, program.run(*call.args)[0])
        real, real_state = lanes.float_values(call, real_state)
        with torch.no_grad():
            assert torch.allclose(lanes.float_results(real)[0], whole.request.model(*call.args), atol=1e-6)


def test_every_layer_of_a_stream_has_figures() -> None:
    whole = asked("ring")
    found = session.report(whole, None)
    assert found.samples == 6 and found.result_db is not None and found.result_db > 25
    assert {"conv", "x"} <= {layer.name for layer in found.layers}
    again = session.report(whole, None)
    assert again.to_dict() == found.to_dict(), "a comparison begins in the first state"


def test_measures_are_found_for_a_stream() -> None:
    whole = asked("ring")
    found = openneutron.repair(
        whole.request.model, whole.request.example_inputs, target_db=20, calibration=whole.request.calibration
    )
    assert found.before_db >= 20 and not found.chosen
