# SPDX-License-Identifier: BSD-3-Clause
"""Read and write texts one character after the other, with any form of a decoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from openneutron.api.pytorch import CompiledModel
from openneutron.device.simulator import Simulator

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""A function of a token and its position, both int64 [1], that returns the logits [1, tokens] of the next token. The function keeps the
state of the earlier positions."""


@dataclass(frozen=True, slots=True)
class Quality:
    """The quality of predictions: ``perplexity`` is e to the mean cross entropy, ``accuracy`` the share of tokens that are the most
    probable ones."""

    perplexity: float
    accuracy: float


def stream(text: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield each token of a text, int64 [length], with its position, both int64 [1]."""
    for position, token in enumerate(text.split(1)):
        yield token, torch.tensor([position])


def read(step: Step, text: torch.Tensor) -> torch.Tensor:
    """Return the logits [length, tokens] of the token after each token of a text."""
    with torch.no_grad():
        return torch.cat([step(*inputs) for inputs in stream(text)])


def write(step: Step, prompt: torch.Tensor, count: int) -> list[int]:
    """Return the ``count`` tokens that follow the prompt, each the most probable one."""
    if not len(prompt):
        raise ValueError("the prompt is empty; it must have one token.")
    found: list[int] = []
    logits = read(step, prompt)[-1:]
    for position in range(len(prompt), len(prompt) + count):
        found.append(int(logits.argmax(1)))
        if len(found) < count:
            with torch.no_grad():
                logits = step(torch.tensor(found[-1:]), torch.tensor([position]))
    return found


def quality(logits: Sequence[torch.Tensor], texts: Sequence[torch.Tensor]) -> Quality:
    """Return the quality of the float logits of texts; the last ones of each text predict nothing."""
    predicted = torch.cat([of_one[:-1] for of_one in logits])
    wanted = torch.cat([text[1:] for text in texts])
    perplexity = torch.exp(functional.cross_entropy(predicted, wanted))
    return Quality(float(perplexity), float((predicted.argmax(1) == wanted).float().mean()))


def in_executorch(program: CompiledModel) -> Step:
    """Return the steps of the compiled file in ExecuTorch's runtime, from a new text on: int8 logits."""
    program.reset()

    def step(token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        (logits,) = program.run(token, position)
        assert isinstance(logits, torch.Tensor)
        return logits.clone()

    return step


def on_the_driver(program: CompiledModel) -> Step:
    """Return the steps of the one delegate call on the simulated NPU alone, from a new text on: int8 logits."""
    (partition,) = program.partitions
    simulator = Simulator(partition.compiled.program)
    shape = partition.graph[partition.graph.outputs[0]].shape

    def step(token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        (logits,) = simulator.run([token.numpy(), position.numpy()])
        return torch.from_numpy(np.frombuffer(logits.tobytes(), np.int8).reshape(shape).copy())

    return step


def real(program: CompiledModel, logits: torch.Tensor) -> torch.Tensor:
    """Return the real numbers that int8 logits of the program stand for."""
    (graph,) = program.graphs
    quant = graph[graph.outputs[0]].quant
    assert quant is not None
    return (logits.float() - quant.zero_point) * quant.scale
