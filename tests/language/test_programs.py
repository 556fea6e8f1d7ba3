# SPDX-License-Identifier: BSD-3-Clause
"""Programs of decoders give the logits and caches of the reference byte by byte, however the text is divided and whatever the NPU computes."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron import targets
from openneutron.device.simulator import Simulator
from openneutron.language.decoder import Activation, Decoder
from openneutron.language.program import Plan, compiled, never
from tests.fuzz import language
from tests.language.random_decoders import int8_matrix, llama_drawing, scaled
from tests.language.reference import Reference

TOKENS = 200


@pytest.mark.parametrize("seed", (0, 1, 2, 3, 4, 6, 7, 8, 10014, 10015, 20000, 20001))
def test_random_decoders_are_those_of_the_reference(seed: int) -> None:
    """The programs of a CPU, and with jobs in each release of the driver; runs outside the bounds leave the caches as they are."""
    assert language.check(seed) > 0


def small(seed: int, bits: int) -> Decoder:
    """Return a decoder of two layers and width 64 with grouped queries, as Llama has them."""
    random = np.random.default_rng(seed)
    context = TOKENS + 10
    drawing = llama_drawing(random, 64, 4, 2, 16, context, bits)
    embedding = int8_matrix(scaled(random, 256, 64))
    return Decoder(
        name=f"small {seed}",
        layers=(drawing.layer(), drawing.layer()),
        embedding=embedding,
        head=drawing.matrix(256, 64),
        final_norm=drawing.norm(64),
        heads=4,
        groups=2,
        head_size=16,
        context=context,
        activation=Activation.SILU,
        epsilon=1e-5,
        score_scale=0.25,
    )


@pytest.mark.parametrize(("seed", "bits"), [(0, 8), (1, 4), (2, 4)])
def test_texts_of_200_tokens_are_those_of_the_reference(seed: int, bits: int) -> None:
    """Each next token is the one with the largest logit; the logits of all are equal."""
    decoder = small(seed, bits)
    prompt = np.random.default_rng(seed).integers(0, decoder.vocabulary, 8)
    made, reference = compiled(decoder, targets.described(language.CPU), Plan(8, never)), Reference(decoder)
    chosen: list[int] = []
    with Simulator(made.program) as simulator:
        tokens, position = prompt, 0
        while len(chosen) < TOKENS:
            given = np.full(8, -1, np.int64)
            given[: len(tokens)] = tokens
            (found,) = simulator.run((given, np.array([position, len(tokens)], np.int64)))
            wanted = reference.run(tokens, position)
            assert found.tobytes() == wanted.tobytes(), f"token {len(chosen)}"
            position += len(tokens)
            chosen.append(int(found.view(np.float32).argmax()))
            tokens = np.array(chosen[-1:])
    assert len(set(chosen)) > 3
