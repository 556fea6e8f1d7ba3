# SPDX-License-Identifier: BSD-3-Clause
"""The decoder of text with a key/value cache: one delegate call for each character, with LiteRT's bytes, and the example that trains it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import openneutron
from examples import text_decoder
from examples.text_decoder import in_executorch, main, on_the_driver, read, real, stream, train, write
from openneutron.api.pytorch import CompiledModel
from openneutron.device.simulator import Simulator
from openneutron.errors import DriverError, OpenNeutronError
from openneutron.options import QuantizationOptions
from openneutron.pytorch.source import models
from openneutron.pytorch.source.models import POSITIONS, TextDecoder
from tests.support import oracle
from tests.support.stateful_graphs import without_states

STATES = tuple(f"blocks.{block}.{name}" for block in (0, 1) for name in ("keys", "values"))
MOST_CALLS = 86
PROMPT, WRITTEN = torch.tensor([51, 70, 85, 86, 83, 79, 1]), 64
"""``Return ``, and the tokens that follow."""

LEAST_ALIKE = 0.9
"""The share of positions at which the NPU and the quantized module choose the same token. The weights are random here, so that no
token is much more probable than all others."""


@pytest.fixture(scope="module")
def program() -> CompiledModel:
    model, example = models.get("text_decoder")
    calibration = models.samples("text_decoder", POSITIONS, seed=1)
    options = QuantizationOptions(io_dtype="int8")
    compiled = openneutron.compile(model, example, calibration=calibration, quantization=options)
    assert isinstance(compiled, CompiledModel)
    return compiled


@pytest.fixture(scope="module")
def text(program: CompiledModel) -> torch.Tensor:
    """Return the prompt and what the NPU writes behind it, without the last token."""
    written = write(in_executorch(program), PROMPT, WRITTEN)
    assert len(written) == WRITTEN
    return torch.cat([PROMPT, torch.tensor(written[:-1])])


def test_a_step_is_one_delegate_call_that_keeps_the_cache(program: CompiledModel) -> None:
    assert program.delegation.on_cpu == ()
    (partition,) = program.partitions
    report = partition.compiled.report
    assert report.states == STATES
    assert report.state_bytes == len(STATES) * POSITIONS * 64
    assert len(report.operators) <= MOST_CALLS


def test_the_driver_alone_and_executorch_compute_the_same_bytes(program: CompiledModel, text: torch.Tensor) -> None:
    logits = read(in_executorch(program), text)
    assert torch.equal(logits, read(on_the_driver(program), text))
    assert write(on_the_driver(program), PROMPT, WRITTEN)[:-1] == text[len(PROMPT) :].tolist()
    assert torch.equal(logits, read(in_executorch(program), text)), "a reset begins a new text"


def test_a_step_computes_the_bytes_of_litert(program: CompiledModel, text: torch.Tensor) -> None:
    """LiteRT's reference kernels get the states of each step from the step before it."""
    (graph,) = program.graphs
    plain = without_states(graph)
    held = {state.tensor: state.initial for state in graph.states}
    simulator = Simulator(program.partitions[0].compiled.program)
    for token, position in stream(text[:8]):
        inputs = [token.numpy(), position.numpy()]
        given = [*inputs, *(held[name] for name in plain.inputs[len(inputs) :])]
        results = dict(zip(plain.outputs, oracle.reference_outputs(plain, given), strict=True))
        held = {state.tensor: results[state.update] for state in graph.states}
        (logits,) = simulator.run(inputs)
        assert logits.tobytes() == results[graph.outputs[0]].tobytes()


def test_choices_and_logits_are_near_those_of_the_quantized_and_the_float_module(
    program: CompiledModel, text: torch.Tensor
) -> None:
    logits = real(program, read(in_executorch(program), text))
    quantized = read(program.quantized, text)
    assert float((logits.argmax(1) == quantized.argmax(1)).float().mean()) >= LEAST_ALIKE
    in_float = read(models.get("text_decoder")[0], text)
    noise = (logits - in_float).square().sum() / in_float.square().sum()
    assert -10 * float(noise.log10()) >= 20, "dB"


def test_two_instances_keep_two_texts(program: CompiledModel, text: torch.Tensor) -> None:
    one, other = text, text.flip(0)
    first, second = on_the_driver(program), on_the_driver(program)
    apart = [read(on_the_driver(program), each) for each in (one, other)]
    rows = [(first(*mine), second(*theirs)) for mine, theirs in zip(stream(one), stream(other), strict=True)]
    for found, wanted in zip(zip(*rows, strict=True), apart, strict=True):
        assert torch.equal(torch.cat(found), wanted)


def test_a_position_behind_the_cache_is_an_error_that_keeps_the_text(
    program: CompiledModel, text: torch.Tensor
) -> None:
    wanted = read(on_the_driver(program), text)
    step = on_the_driver(program)
    begin = len(text) // 2
    read(step, text[:begin])
    with pytest.raises(DriverError, match="outside"):
        step(text[:1], torch.tensor([POSITIONS]))
    rows = [step(token, torch.tensor([begin + place])) for place, token in enumerate(text[begin:].split(1))]
    assert torch.equal(torch.cat(rows), wanted[begin:])
    with pytest.raises(OpenNeutronError):
        program.run(text[:1], torch.tensor([POSITIONS]))


def test_step_by_step_the_module_computes_what_it_computes_at_once() -> None:
    model = TextDecoder(tokens=11, width=16, heads=2, positions=8).eval()
    text = torch.arange(8) * 3 % 11
    torch.testing.assert_close(read(model, text), model.at_once(text[None])[0])


def test_the_documentation_strings_train_a_decoder(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text('"""Return the\n    number¶."""\ndef f():\n    "Return it."\ndef g(): return 1\n')
    found = list(text_decoder.docstrings([file]))
    assert found == ["Return the\nnumber¶.", "Return it."]
    numbers = text_decoder.encoded("".join(found) * 20)
    assert text_decoder.decoded(numbers.tolist()) == "Return the\nnumber.Return it." * 20
    torch.manual_seed(0)
    model = TextDecoder(width=32, blocks=1, positions=24)
    losses: list[float] = []
    train(model, numbers, 100, 0, lambda step, loss: losses.append(loss))
    assert losses[0] > 4 and losses[-1] < 0.5, (losses[0], losses[-1])
    prompt = text_decoder.encoded("Return the")
    assert text_decoder.decoded(write(model, prompt, 8)) == "\nnumber."


def test_a_text_longer_than_the_cache_is_refused_before_training(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tokens", "90"]) == 1
    assert capsys.readouterr().err == (
        "error: --tokens: the prompt has 11 characters and 90 follow; there must be one of each, and the cache has 96 positions. "
        "Give fewer.\n"
    )


def test_inputs_of_the_built_in_network_are_a_text() -> None:
    inputs = models.samples("text_decoder", POSITIONS + 2)
    assert [int(position) for _, position in inputs] == [*range(POSITIONS), 0, 1]
    assert np.ptp([int(token) for token, _ in inputs]) > 50
