# SPDX-License-Identifier: BSD-3-Clause
"""A short training run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

BATCH = 32
SHIFT = 3
"""Pixels by which training pictures are moved about, so that the network does not learn positions by heart."""


@dataclass(frozen=True, slots=True)
class Course:
    """The number of epochs, and the largest learning rate."""

    epochs: int
    learning_rate: float

    def steps(self, pictures: int) -> int:
        """Return the batches in the whole course."""
        return self.epochs * -(-pictures // BATCH)


FROM_NOTHING = Course(epochs=6, learning_rate=2e-3)
WITH_ROUNDING = Course(epochs=2, learning_rate=1e-4)
"""For a trained network whose quantization is now simulated: enough to get used to it."""


def train(
    model: nn.Module,
    pictures: torch.Tensor,
    labels: torch.Tensor,
    seed: int,
    progress: Callable[[], None],
    course: Course = FROM_NOTHING,
) -> None:
    """Train a model that ends in a softmax, in place, and leave it in eval mode. ``progress`` is called after each batch."""
    generator = torch.Generator().manual_seed(seed)
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=course.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=course.learning_rate, total_steps=course.steps(len(pictures))
    )
    for _ in range(course.epochs):
        for chosen in torch.randperm(len(pictures), generator=generator).split(BATCH):
            rows, columns = torch.randint(-SHIFT, SHIFT + 1, (2,), generator=generator).tolist()
            moved = torch.roll(pictures[chosen], (rows, columns), dims=(2, 3))
            probabilities = model(moved)
            loss = functional.nll_loss(probabilities.clamp_min(1e-7).log(), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            progress()
    model.eval()
