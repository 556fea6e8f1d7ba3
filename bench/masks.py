# SPDX-License-Identifier: BSD-3-Clause
"""Measure what attention masks cost: encoders with each way to write a mask, in dB against the float model.

``python -m bench.masks`` prints the table of styles by depths; ``--depths 1,2`` and names of styles restrict it. ``--float`` prints
instead the ratios of the float encoders with only their inputs and layer norms rounded (``in_float``).
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openneutron.api.pytorch import analyse

WIDTH, HEADS, TOKENS, VOCABULARY = 32, 4, 16, 50
SAMPLES, MEASURED = 8, 4
MOST_HIDDEN = 6
DEPTHS = (1, 2, 4, 12)

LOST_DB = 1.0
"""A masked encoder may have this much less than the same encoder without a mask."""

FLOAT_SEEDS = 6
"""Sets of weights of which ``in_float`` is the mean: single ones differ by up to 4 dB."""

ROUNDED_STEPS = 255
"""The steps that ``in_float`` rounds the range of a tensor to: those of int8."""

LOWEST = torch.finfo(torch.float32).min

Style = Callable[["Attention", Tensor, Tensor], Tensor]
"""From scores [batch, head, query, key] and a mask to masked scores."""


def _pad(mask: Tensor) -> Tensor:
    return mask[:, None, None]


STYLES: dict[str, tuple[str, Style]] = {
    "none": ("float", lambda m, s, k: s),
    "(1 - m) * -1e4": ("float", lambda m, s, k: s + (1 - _pad(k)) * -1e4),
    "(1 - m) * -1e9": ("float", lambda m, s, k: s + (1 - _pad(k)) * -1e9),
    "(1 - m) * finfo.min": ("float", lambda m, s, k: s + (1.0 - _pad(k)) * LOWEST),
    "(m - 1) * 1e9": ("float", lambda m, s, k: s + (_pad(k) - 1) * 1e9),
    "minus (1 - m) * 1e9": ("float", lambda m, s, k: s - (1 - _pad(k)) * 1e9),
    "zeros filled with -inf": (
        "float",
        lambda m, s, k: s + torch.zeros_like(k).masked_fill(k < 0.5, float("-inf"))[:, None, None],
    ),
    "filled with -inf": ("float", lambda m, s, k: s.masked_fill(_pad(k) < 0.5, float("-inf"))),
    "filled with -1e9": ("float", lambda m, s, k: s.masked_fill(_pad(k) == 0, -1e9)),
    "where, tensor": ("bool", lambda m, s, k: torch.where(_pad(k), s, torch.tensor(float("-inf")))),
    "where, number": ("bool", lambda m, s, k: torch.where(_pad(k), s, -1e9)),
    "where added": ("bool", lambda m, s, k: s + torch.where(_pad(k), 0.0, -1e9)),
    "bool as float": ("bool", lambda m, s, k: s + (1.0 - _pad(k).float()) * LOWEST),
    "inverted bool": ("bool", lambda m, s, k: s + (~_pad(k)).float() * -1e9),
    "int64, cast": ("int", lambda m, s, k: s + (1.0 - _pad(k).to(torch.float32)) * LOWEST),
    "int64, integer arithmetic": ("int", lambda m, s, k: s + (1 - _pad(k)) * -10000.0),
    "int64 == 0": ("int", lambda m, s, k: s.masked_fill(_pad(k) == 0, float("-inf"))),
    "int64 to bool": ("int", lambda m, s, k: s.masked_fill(~_pad(k).bool(), -1e9)),
    "pairs": ("float", lambda m, s, k: s + (1 - k[:, None, :, None] * _pad(k)) * -1e9),
    "added input": ("added", lambda m, s, k: s + _pad(k)),
    "added input and causal": ("added", lambda m, s, k: s + (_pad(k) + m.causal)),
    "causal buffer, sliced": ("float", lambda m, s, k: s.masked_fill(~m.below[:, :, : s.shape[-2], : s.shape[-1]], LOWEST)),
    "causal and padding": ("int", lambda m, s, k: s + m.causal + (1.0 - _pad(k).float()) * LOWEST),
    "causal and padding, bool": ("bool", lambda m, s, k: s.masked_fill(~(m.below & _pad(k)), float("-inf"))),
    "window and padding": ("bool", lambda m, s, k: s.masked_fill(~(m.window & _pad(k)), -1e9)),
    "position bias": ("float", lambda m, s, k: s + m.position()),
    "position bias and mask": ("int", lambda m, s, k: s + (m.position() + (1.0 - _pad(k).float()) * LOWEST)),
    "slopes": ("float", lambda m, s, k: s + m.slopes),
    "slopes and mask": ("bool", lambda m, s, k: s + (m.slopes + torch.where(_pad(k), 0.0, float("-inf")))),
}  # fmt: skip
"""The kind of the mask, and the function."""

BASES = {"position bias and mask": "position bias", "slopes and mask": "slopes"}
"""Styles that are compared with another network than the one without a mask."""

PRODUCTS: dict[str, tuple[str, Callable[[Tensor], dict[str, Any]]]] = {
    "sdpa": ("float", lambda k: {}),
    "sdpa, bool": ("bool", lambda k: {"attn_mask": _pad(k)}),
    "sdpa, float": ("float", lambda k: {"attn_mask": (1 - _pad(k)) * LOWEST}),
    "sdpa, filled": ("bool", lambda k: {"attn_mask": torch.zeros_like(_pad(k), dtype=torch.float32).masked_fill(~_pad(k), float("-inf"))}),
    "sdpa, is_causal": ("float", lambda k: {"is_causal": True}),
}  # fmt: skip
"""Arguments of ``scaled_dot_product_attention``."""


class Attention(nn.Module):
    below: Tensor
    causal: Tensor
    window: Tensor
    slopes: Tensor

    def __init__(self, style: Style | None, options: Callable[[Tensor], dict[str, Any]] | None) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.style, self.options = style, options
        below = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
        steps = torch.arange(TOKENS)
        self.register_buffer("below", below[None, None])
        self.register_buffer("causal", torch.full((TOKENS, TOKENS), LOWEST).triu(1))
        self.register_buffer("window", below & (steps[:, None] - steps < 5))
        self.register_buffer(
            "slopes", -(steps[:, None] - steps).abs() * 2.0 ** -torch.arange(1, HEADS + 1)[:, None, None]
        )
        self.bias = nn.Embedding(2 * TOKENS, HEADS)

    def position(self) -> Tensor:
        steps = torch.arange(TOKENS)
        table: Tensor = self.bias(steps[:, None] - steps + TOKENS)
        return table.permute(2, 0, 1)[None]

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (layer(x).view(b, t, HEADS, d // HEADS).transpose(1, 2) for layer in (self.q, self.k, self.v))
        if self.options is not None:
            mixed = F.scaled_dot_product_attention(q, k, v, **self.options(mask))
        else:
            assert self.style is not None
            scores = self.style(self, q @ k.transpose(-1, -2) / math.sqrt(d // HEADS), mask)
            mixed = scores.softmax(-1) @ v
        result: Tensor = self.o(mixed.transpose(1, 2).reshape(b, t, d))
        return result


class Layer(nn.Module):
    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.a, self.n, self.m = attention, nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.f = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.n(x + self.a(x, mask))
        result: Tensor = self.m(x + self.f(x))
        return result


class Encoder(nn.Module):
    def __init__(self, depth: int, made: Callable[[], Attention]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(made()) for _ in range(depth))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, mask)
        return x


class Built(nn.Module):
    """PyTorch's encoder, or decoder over a constant memory's tokens."""

    def __init__(self, depth: int, causal: bool, padded: bool, cross: bool = False) -> None:
        super().__init__()
        self.causal, self.padded, self.cross = causal, padded, cross
        kind = nn.TransformerDecoderLayer if cross else nn.TransformerEncoderLayer
        layer = kind(WIDTH, HEADS, 2 * WIDTH, 0.0, "gelu", batch_first=True)
        self.net = (
            nn.TransformerDecoder(layer, depth)
            if cross
            else nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        )
        for parameter in self.net.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        result: Tensor
        if self.cross:
            memory = x.flip(1) * 0.5
            result = self.net(x, memory, memory_key_padding_mask=mask if self.padded else None)
        else:
            above = nn.Transformer.generate_square_subsequent_mask(TOKENS) if self.causal else None
            result = self.net(x, mask=above, src_key_padding_mask=mask if self.padded else None)
        return result


class Bert(nn.Module):
    def __init__(self, depth: int, form: str, masked: bool) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel

        config = BertConfig(
            vocab_size=VOCABULARY, hidden_size=2 * WIDTH, num_hidden_layers=depth, num_attention_heads=HEADS,
            intermediate_size=4 * WIDTH, max_position_embeddings=2 * TOKENS, attn_implementation=form,
        )  # fmt: skip
        self.net, self.masked = BertModel(config, add_pooling_layer=False), masked

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        result: Tensor = self.net(input_ids=ids, attention_mask=mask if self.masked else None).last_hidden_state
        return result


@dataclass(frozen=True, slots=True)
class Case:
    """One way to write a mask. ``base``: the case whose network is the same without it. ``kind``: of the mask given."""

    name: str
    base: str
    kind: str
    made: Callable[[int], nn.Module]


def cases() -> Iterator[Case]:
    """Yield the ways to write a mask, each behind the network that it is compared with."""
    for name, (kind, style) in STYLES.items():
        base = BASES.get(name, "none")
        yield Case(name, base, kind, lambda depth, style=style: Encoder(depth, lambda: Attention(style, None)))  # type: ignore[misc]
    for name, (kind, options) in PRODUCTS.items():
        yield Case(name, "sdpa", kind, lambda depth, options=options: Encoder(depth, lambda: Attention(None, options)))  # type: ignore[misc]
    yield Case("nn.TransformerEncoder", "nn.TransformerEncoder", "hidden", lambda depth: Built(depth, False, False))
    yield Case("src_key_padding_mask", "nn.TransformerEncoder", "hidden", lambda depth: Built(depth, False, True))
    yield Case("src_key_padding_mask, float", "nn.TransformerEncoder", "added", lambda depth: Built(depth, False, True))
    yield Case("mask=causal", "nn.TransformerEncoder", "hidden", lambda depth: Built(depth, True, False))
    yield Case("mask=causal and padding", "nn.TransformerEncoder", "hidden", lambda depth: Built(depth, True, True))
    yield Case(
        "nn.TransformerDecoder", "nn.TransformerDecoder", "hidden", lambda depth: Built(depth, False, False, True)
    )
    yield Case(
        "memory_key_padding_mask", "nn.TransformerDecoder", "hidden", lambda depth: Built(depth, False, True, True)
    )
    yield Case("BERT", "BERT", "ids", lambda depth: Bert(depth, "sdpa", False))
    yield Case("BERT, attention_mask", "BERT", "ids", lambda depth: Bert(depth, "sdpa", True))
    yield Case("BERT, attention_mask, eager", "BERT", "ids", lambda depth: Bert(depth, "eager", True))


def inputs(kind: str, count: int, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    """Return samples: tokens (or their ids) and a mask that hides up to ``MOST_HIDDEN`` of the last ones."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for place in range(count):
        seen = torch.ones(1, TOKENS, dtype=torch.bool)
        hidden = place % (MOST_HIDDEN + 1)
        seen[:, TOKENS - hidden :] = hidden == 0
        x = torch.randn(1, TOKENS, WIDTH, generator=generator)
        if kind == "ids":
            x = torch.randint(0, VOCABULARY, (1, TOKENS), generator=generator)
        mask = {
            "bool": seen, "hidden": ~seen, "float": seen.float(), "int": seen.long(), "ids": seen.long(),
            "added": torch.where(seen, 0.0, -1e9),
        }[kind]  # fmt: skip
        found.append((x, mask))
    return found


@dataclass(frozen=True, slots=True)
class Figure:
    """The ratio of signal to noise in dB, the number of delegate calls, and the operators on the CPU."""

    sqnr: float
    calls: int
    on_cpu: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        return self.calls == 1 and not self.on_cpu

    def __str__(self) -> str:
        return f"{self.sqnr:.1f}" + ("" if self.is_whole else f" ({self.calls} calls; {', '.join(self.on_cpu)})")


def measure(case: Case, depth: int) -> Figure:
    """Return the figure of a case: an encoder with seeded weights, calibrated and measured on the same samples."""
    torch.manual_seed(0)
    model, samples = case.made(depth).eval(), inputs(case.kind, SAMPLES)
    program = analyse(model, samples[0], calibration=samples)
    signal = noise = 0.0
    with torch.no_grad():
        for sample in samples[:MEASURED]:
            want, have = model(*sample).double(), torch.as_tensor(program.run(*sample)[0]).double()
            signal, noise = signal + float(want.square().sum()), noise + float((want - have).square().sum())
    stays = tuple(sorted({item.operator for item in program.delegation.on_cpu}))
    return Figure(10 * math.log10(signal / max(noise, 1e-30)), len(program.partitions), stays)


def in_float(case: Case, depth: int) -> float:
    """Return the ratio of signal to noise in dB of a case's float encoder whose inputs and results of layer norms are rounded as int8
    rounds them; the mean of ``FLOAT_SEEDS`` sets of weights. Attention, residual sums and feed-forward layers stay float: the ratio
    measures how much the network amplifies noise."""
    samples = inputs(case.kind, SAMPLES)
    x, mask = (torch.cat(parts) for parts in zip(*samples, strict=True))
    ratios = []
    for seed in range(FLOAT_SEEDS):
        torch.manual_seed(seed)
        model = case.made(depth).eval()
        with torch.no_grad():
            want = model(x, mask).double()
            for norm in model.modules():
                if isinstance(norm, nn.LayerNorm):
                    norm.register_forward_hook(lambda module, given, result: _rounded(result))
            noise = want - model(_rounded(x), mask).double()
        ratios.append(10 * math.log10(float(want.square().sum() / noise.square().sum())))
    return sum(ratios) / len(ratios)


def _rounded(x: Tensor) -> Tensor:
    if not x.is_floating_point():
        return x
    step = (x.amax().clamp(min=0) - x.amin().clamp(max=0)) / ROUNDED_STEPS
    return (x / step).round() * step


def main(arguments: Sequence[str]) -> int:
    """Print the table; return 1 where a masked encoder is split or loses more than ``LOST_DB``."""
    parser = argparse.ArgumentParser(prog="python -m bench.masks", description=__doc__)
    parser.add_argument("--depths", default=",".join(map(str, DEPTHS)))
    parser.add_argument(
        "--float", action="store_true", help="round the inputs and layer norms of the float encoders alone"
    )
    parser.add_argument("styles", nargs="*", help="names of styles, or the first letters of some")
    given = parser.parse_args(arguments)
    depths = [int(depth) for depth in given.depths.split(",")]
    every = {case.name: case for case in cases()}
    wanted = [case for case in every.values() if not given.styles or case.name.startswith(tuple(given.styles))]
    names = dict.fromkeys(name for case in wanted for name in (case.base, case.name))
    print(
        f"| mask | {' | '.join(f'{depth} layers' for depth in depths)} |\n| --- |{' --- |' * len(depths)}", flush=True
    )
    known: dict[tuple[str, int], Figure] = {}
    short = 0
    for name in names:
        row = []
        for depth in depths:
            if given.float:
                row.append(f"{in_float(every[name], depth):.1f}")
                continue
            try:
                figure = known[name, depth] = measure(every[name], depth)
            except Exception as error:
                row.append(f"{type(error).__name__}: {str(error).splitlines()[0][:80]}")
                short += 1
                continue
            base = known.get((every[name].base, depth), figure)
            is_short = not figure.is_whole or figure.sqnr < base.sqnr - LOST_DB
            short += is_short
            row.append(f"{figure}{' SHORT' if is_short else ''}")
        print(f"| {name} | {' | '.join(row)} |", flush=True)
    return 1 if short else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sys.exit(main(sys.argv[1:]))
