# SPDX-License-Identifier: BSD-3-Clause
"""Define a text decoder: a transformer with a key/value cache that reads one character in each run and predicts the next one."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

TOKENS, POSITIONS = 96, 96
"""The number of characters (the printable ones of ASCII and the end of a line), and the length of the longest text."""

EMBEDDING_SPREAD = 0.02
"""The standard deviation of the initial weights of embeddings, as in GPT-2."""


class DecoderBlock(nn.Module):
    """Causal self-attention, and two linear layers with GELU, in the order of Radford et al., GPT-2, 2019.

    A layer norm precedes each of the two parts, and the result of a part is added to its input. The keys and values of all positions
    are buffers [1, heads, positions, width / heads].
    """

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, width: int, heads: int, positions: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, heads, positions, width // heads), persistent=False)

    def forward(self, x: torch.Tensor, position: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        """Return the block's features [1, 1, width] of one position, and store its key and value.

        ``x`` is [1, 1, width], ``position`` is int64 [1]. ``visible`` is bool [1, 1, 1, positions]: True up to ``position``.
        """
        query, key, value = self._projected(x)
        self.keys[:, :, position] = key
        self.values[:, :, position] = value
        attended = functional.scaled_dot_product_attention(query, self.keys, self.values, visible)
        return self._behind(x, attended)

    def at_once(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's features of all positions of texts, [N, positions, width] like ``x``. The buffers do not change."""
        query, key, value = self._projected(x)
        return self._behind(x, functional.scaled_dot_product_attention(query, key, value, is_causal=True))

    def _projected(self, x: torch.Tensor) -> list[torch.Tensor]:
        parts = self.qkv(self.attention_norm(x)).chunk(3, -1)
        return [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts]

    def _behind(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.mlp_norm(x))))


class TextDecoder(nn.Module):
    """A decoder-only transformer with a key/value cache (Vaswani et al., arXiv 1706.03762; learned positions).

    A run reads one token and its position, both int64 [1], and returns the logits [1, tokens] of the next token. A text begins at
    position 0. A run does not read the buffers after the current position. A position beyond the last one is an error.
    """

    visible: torch.Tensor

    def __init__(
        self, tokens: int = TOKENS, width: int = 64, heads: int = 4, blocks: int = 2, positions: int = POSITIONS
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tokens, width)
        self.positions = nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(DecoderBlock(width, heads, positions) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, tokens)
        # Row p marks the positions up to p.
        self.register_buffer(
            "visible", torch.ones(positions, positions, dtype=torch.bool).tril()[:, None, None], persistent=False
        )
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
                nn.init.zeros_(layer.bias)
            elif isinstance(layer, nn.Embedding):
                nn.init.normal_(layer.weight, std=EMBEDDING_SPREAD)

    def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        x = (self.tokens(token) + self.positions(position)).unsqueeze(1)
        visible = self.visible[position]
        for block in self.blocks:
            x = block(x, position, visible)
        return self.logits(self.norm(x)).squeeze(1)

    def at_once(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits [N, length, tokens] of the token after each token of texts, int64 [N, length], for training."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block.at_once(x)
        return self.logits(self.norm(x))


def random_text(count: int, generator: torch.Generator) -> list[tuple[torch.Tensor, ...]]:
    """Return the inputs of ``count`` consecutive runs on random tokens: a token and its position, both int64 [1].

    The position begins again at 0 after ``POSITIONS`` tokens.
    """
    tokens = torch.randint(TOKENS, (count,), generator=generator)
    return [(token, torch.tensor([place % POSITIONS])) for place, token in enumerate(tokens.split(1))]
