# SPDX-License-Identifier: BSD-3-Clause
"""The detector of wake words, trained on made sounds: its accuracy frame by frame on the NPU, and its figures."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import openneutron
from openneutron.api.pytorch import CompiledModel
from openneutron.device.simulator import Simulator
from openneutron.options import QuantizationOptions
from openneutron.pytorch.source.models.small import WakeWord

FEATURES, FRAMES, CLASSES = 40, 16, 4
"""Classes: noise, a tone that rises, one that falls, one that stays."""

TRAINED, TESTED, EPOCHS = 768, 400, 12


def made_sounds(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features [count, FEATURES, FRAMES] of tones in noise, and their classes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    slopes = torch.tensor([0.0, 1.2, -1.2, 0.0])[labels] * (0.7 + 0.6 * torch.rand(count, generator=generator))
    middles = 12 + 16 * torch.rand(count, generator=generator)
    places = middles[:, None] + slopes[:, None] * (torch.arange(FRAMES) - FRAMES / 2)
    tones = torch.exp(-(((torch.arange(FEATURES)[None, :, None] - places[:, None]) / 1.5) ** 2))
    noise = torch.randn(count, FEATURES, FRAMES, generator=generator)
    return tones * 2.5 * (labels > 0)[:, None, None] + noise, labels


def trained() -> nn.Module:
    torch.manual_seed(0)
    model = WakeWord(FEATURES, classes=CLASSES, streaming=False)
    sounds, labels = made_sounds(TRAINED, 1)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(EPOCHS):
        for batch in torch.randperm(TRAINED).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(sounds[batch])[:, :, -1], labels[batch]).backward()
            optimizer.step()
    return model.eval()


@pytest.fixture(scope="module")
def whole() -> nn.Module:
    """The trained network on whole sounds."""
    return trained()


def _last_frames(program: CompiledModel, sounds: torch.Tensor) -> torch.Tensor:
    """Return the results of the last frame of each sound, [count, CLASSES], of the simulated NPU frame by frame."""
    compiled = program.partitions[0].compiled
    source, result = (compiled.graph[name] for name in (*compiled.graph.inputs, *compiled.graph.outputs))
    assert source.quant is not None and result.quant is not None
    limits = np.iinfo(source.dtype.numpy)
    steps = np.rint(sounds.numpy() / source.quant.scale) + source.quant.zero_point
    stored = np.clip(steps, limits.min, limits.max).astype(source.dtype.numpy)
    simulator, found = Simulator(compiled.program), []
    for sound in stored:
        simulator.reset()
        for frame in range(FRAMES):
            (last,) = simulator.run([np.ascontiguousarray(sound[:, frame].reshape(source.shape))])
        found.append(np.frombuffer(last.tobytes(), result.dtype.numpy).astype(np.float32))
    return (torch.tensor(np.stack(found)) - result.quant.zero_point) * result.quant.scale


LEAST_DECIBELS = {"int8": 25.0, "int16": 35.0}


@pytest.mark.parametrize("activations", LEAST_DECIBELS)
def test_a_trained_detector_is_as_accurate_on_the_npu(whole: nn.Module, activations: str) -> None:
    streaming = WakeWord(FEATURES, classes=CLASSES).eval()
    streaming.load_state_dict(whole.state_dict(), strict=False)
    calibration = [(frame,) for sound in made_sounds(16, 2)[0].split(1) for frame in sound.split(1, 2)]
    program = openneutron.compile(
        copy.deepcopy(streaming),
        calibration[0],
        calibration=calibration,
        quantization=QuantizationOptions(activations=activations),
    )
    assert program.delegation.on_cpu == ()
    (partition,) = program.partitions
    report = partition.compiled.report
    sounds, labels = made_sounds(TESTED, 3)
    with torch.no_grad():
        wanted = whole(sounds)[:, :, -1]
    found = _last_frames(program, sounds)
    accuracy, on_npu = (100 * float((each.argmax(1) == labels).float().mean()) for each in (wanted, found))
    decibels = 10 * float(torch.log10((wanted**2).sum() / ((found - wanted) ** 2).sum()))
    print(
        f"{activations}: {len(report.operators)} kernel calls and {report.cycles} cycles a frame, {report.sram_bytes} bytes of "
        f"SRAM with {report.state_bytes} of states, {decibels:.1f} dB, {accuracy:.2f} % in float and {on_npu:.2f} % on the NPU"
    )
    assert accuracy >= 95
    assert abs(accuracy - on_npu) <= 0.5
    assert decibels >= LEAST_DECIBELS[activations]
