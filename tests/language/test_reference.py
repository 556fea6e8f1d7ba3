# SPDX-License-Identifier: BSD-3-Clause
"""The reference of language models is near the model in floats, and its logits do not depend on how a text is divided into runs."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.language.repair import logits
from tests.language.random_decoders import random_decoder
from tests.language.reference import Reference


@pytest.mark.parametrize("seed", range(8))
def test_runs_of_any_length_give_the_logits_of_single_tokens(seed: int) -> None:
    decoder, random = random_decoder(seed), np.random.default_rng(seed)
    text = random.integers(0, decoder.vocabulary, decoder.context)
    single, chunked = Reference(decoder), Reference(decoder)
    expected = np.stack([single.run([token], position) for position, token in enumerate(text)])
    at = 0
    while at < len(text):
        count = min(int(random.integers(1, 17)), len(text) - at)
        found = chunked.run(text[at : at + count], at)
        at += count
        np.testing.assert_array_equal(found.view(np.uint32), expected[at - 1].view(np.uint32))
    for one, other in zip(single.caches, chunked.caches, strict=True):
        assert one.content() == other.content()
    exact, rounded = logits(decoder, text, rounds=False, dtype=np.float64), logits(decoder, text)
    assert np.linalg.norm(expected - exact) < 0.05 * np.linalg.norm(exact)
    assert np.linalg.norm(expected - rounded) < 0.01 * np.linalg.norm(exact)
