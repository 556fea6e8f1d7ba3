# SPDX-License-Identifier: BSD-3-Clause
"""From a module of transformers to a ``.pte`` that computes what the numpy reference does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openneutron import llm
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.language.model import LanguageModel
from tests.language.models import CONFIGS, made
from tests.language.reference import Reference

TOKENS = [5, 90, 7, 33, 120, 8, 61, 14, 99, 3, 2]


@pytest.mark.parametrize("name", ["llama", "gemma3", "phi", "gpt2"])
@pytest.mark.parametrize(("target", "bits"), [("imx95", 4), ("imxrt700", 8)])
def test_an_exported_model_computes_what_the_reference_does(name: str, target: str, bits: int, tmp_path: Path) -> None:
    exported = llm.export(made(CONFIGS[name]), target=target, context=32, chunk=8, bits=bits)
    exported.save(tmp_path / "model.pte")
    wanted = Reference(exported.decoder)
    with LanguageModel((tmp_path / "model.pte").read_bytes()) as model:
        for at, end in ((0, 8), (8, 10), (10, 11)):
            found, expected = model.run(TOKENS[at:end], at), wanted.run(TOKENS[at:end], at)
            assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))


def test_wrong_options_are_refused() -> None:
    with pytest.raises(InvalidOptionError) as raised:
        llm.export(None, config=CONFIGS["llama"], context=32, chunk=64)
    assert str(raised.value) == (
        "chunk: 64 tokens; a run takes 1 to 32, the positions of the cache. Give chunk=32 or less."
    )
    with pytest.raises(InvalidOptionError) as raised:
        llm.export(None, config=CONFIGS["llama"], context=0)
    assert str(raised.value) == "context: 0 positions; this model has 1 to 64."
    with pytest.raises(InvalidOptionError) as raised:
        llm.export(None, config=CONFIGS["llama"], context=32, chunk=8, head_bits=2)
    assert str(raised.value) == "head_bits: 2; weights have 4 or 8 bits."
    with pytest.raises(InvalidModelError) as missing:
        llm.export(None, config=CONFIGS["llama"], context=32, chunk=8, tokenizer="absent/tokenizer.json")
    assert str(missing.value) == "'absent/tokenizer.json' does not exist: there is no folder 'absent'."
