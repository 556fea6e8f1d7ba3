# SPDX-License-Identifier: BSD-3-Clause
"""Train a decoder on pieces of a text."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from openneutron.pytorch.source.models.decoder import TextDecoder

BATCH = 12
LEARNING_RATE = 1e-2
STEPS = 3000
"""So many steps take about 70 seconds on one core."""

WEIGHT_DECAY = 0.3
"""Weight decay keeps attention scores and residual sums small. With PyTorch's 0.01 some of these values become so large that int8 has few
steps for the others."""

LARGEST_GRADIENT = 1.0
"""Gradients are clipped to this norm."""


def train(
    model: TextDecoder, text: torch.Tensor, steps: int, seed: int, progress: Callable[[int, float], None]
) -> None:
    """Train a model in place to predict each character of pieces of the text, and leave it in eval mode.

    ``text``: int64 [length]. ``progress`` is called after each step with the number of steps and the cross entropy in nats.
    """
    generator = torch.Generator().manual_seed(seed)
    length = model.positions.num_embeddings
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, steps, pct_start=0.1)
    model.train()
    for step in range(steps):
        begin = torch.randint(len(text) - length, (BATCH, 1), generator=generator)
        pieces = text[begin + torch.arange(length + 1)]
        logits = model.at_once(pieces[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), pieces[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), LARGEST_GRADIENT)
        optimizer.step()
        schedule.step()
        progress(step + 1, loss.item())
    model.eval()
