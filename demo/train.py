# SPDX-License-Identifier: BSD-3-Clause
"""A short training run."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

EPOCHS = 6
BATCH = 32
LEARNING_RATE = 2e-3
SHIFT = 3
"""Pixels by which training pictures are moved about, so that the network does not learn positions by heart."""


def train(
    model: nn.Module, pictures: torch.Tensor, labels: torch.Tensor, seed: int, progress: Callable[[], None]
) -> None:
    """Trains a model that ends in a softmax, in place, and leaves it in eval mode. ``progress`` is called after each batch."""
    generator = torch.Generator().manual_seed(seed)
    model.train()
    steps = EPOCHS * batches(len(pictures))
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=LEARNING_RATE, total_steps=steps)
    for _ in range(EPOCHS):
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


def batches(pictures: int) -> int:
    """Batches in an epoch."""
    return -(-pictures // BATCH)
