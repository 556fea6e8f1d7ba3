# SPDX-License-Identifier: BSD-3-Clause
"""A small random decoder, its tokenizer, and the reference of its arithmetic as a model that generates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from openneutron.language.decoder import Activation, Decoder, Floats, Layer, Matrix, Norm, Rotary, rotary_angles
from openneutron.language.model import Interface
from tests.language.random_decoders import int8_matrix, scaled
from tests.language.reference import Reference

END = 0
ROWS, CONTEXT = 16, 160
WIDTH, HEADS, GROUPS, SIZE, HIDDEN = 32, 4, 2, 8, 48
PROMPT = "It is free software: you can use it, and change it."
TRAINED_ON = (
    "Redistribution and use in source and binary forms, with or without modification, are permitted provided that the "
    "following conditions are met: redistributions of source code must retain the above copyright notice, this list of "
    "conditions and the following disclaimer."
)


def tokenizer(path: Path, size: int = 160) -> int:
    """Write a tokenizer.json whose tokens are ASCII, and return the number of its tokens.

    ``TextLLMRunner`` gives each token to its caller as a text, so that no token may be a part of a character.
    """
    words = tokenizers.Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    alphabet = [chr(code) for code in range(33, 127)] + ["\u0120"]
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, special_tokens=["<|end|>"], show_progress=False
    )
    words.train_from_iterator([TRAINED_ON], trainer)
    words.save(str(path))
    return int(words.get_vocab_size())


def decoder(vocabulary: int, seed: int = 0) -> Decoder:
    """Return a decoder of two layers. The logit of END is 0, so that other tokens are more likely."""
    random = np.random.default_rng((seed, 390))

    def matrix(rows: int, columns: int) -> Matrix:
        return int8_matrix(scaled(random, rows, columns, spread=columns**-0.5))

    def norm() -> Norm:
        return Norm(1 + scaled(random, WIDTH, spread=0.2))

    rotary = Rotary(rotary_angles(10000.0 ** (-np.arange(0, SIZE, 2) / SIZE), CONTEXT))
    layers = tuple(
        Layer(
            attention_norm=norm(),
            qkv=matrix((HEADS + 2 * GROUPS) * SIZE, WIDTH),
            output=matrix(WIDTH, HEADS * SIZE),
            up=matrix(2 * HIDDEN, WIDTH),
            down=matrix(WIDTH, HIDDEN),
            mlp_norm=norm(),
            rotary=rotary,
        )
        for _ in range(2)
    )
    head = matrix(vocabulary, WIDTH)
    head.values[END] = 0
    return Decoder(
        name="small",
        layers=layers,
        embedding=int8_matrix(scaled(random, vocabulary, WIDTH)),
        head=head,
        final_norm=norm(),
        heads=HEADS,
        groups=GROUPS,
        head_size=SIZE,
        context=CONTEXT,
        activation=Activation.SILU,
        epsilon=1e-5,
        score_scale=SIZE**-0.5,
        end_tokens=(END,),
    )


@dataclass
class ReferenceModel:
    """The reference as a model that ``generation.tokens`` runs. ``spans`` has the position and the count of each run."""

    reference: Reference
    interface: Interface
    name: str = "small.pte"

    def __post_init__(self) -> None:
        self.spans: list[tuple[int, int]] = []

    def run(self, tokens: Sequence[int], position: int) -> Floats:
        self.spans.append((position, len(tokens)))
        return self.reference.run(tokens, position)


def reference_model(made: Decoder, rows: int = ROWS) -> ReferenceModel:
    """Return the reference of a decoder."""
    return ReferenceModel(
        Reference(made), Interface(rows, made.context, made.vocabulary, made.begin_token, made.end_tokens)
    )
