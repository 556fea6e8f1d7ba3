# SPDX-License-Identifier: BSD-3-Clause
"""Tokens are chosen, texts end and prompts are refused as documented; the model is the reference."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.language.decoder import Floats
from openneutron.language.generation import Sampling, TextStream, Tokenizer, chat, pieces, tokens
from openneutron.language.model import Interface
from tests.language.text_models import CONTEXT, PROMPT, ROWS, decoder, reference_model, tokenizer


class Says:
    """A model whose most likely tokens are given."""

    name = "says.pte"

    def __init__(self, said: Sequence[int], ends: tuple[int, ...] = (), context: int = 64) -> None:
        self.interface = Interface(4, context, 200, None, ends)
        self.said, self.begin = said, -1

    def run(self, tokens: Sequence[int], position: int) -> Floats:
        last = position + len(tokens) - 1
        if self.begin < 0 or position == 0:
            self.begin = last
        if len(tokens) > 1 or position > self.begin + len(self.said):
            self.begin = last
        logits = np.zeros(200, np.float32)
        logits[self.said[(last - self.begin) % len(self.said)]] = 5
        return logits


def test_the_prompt_runs_in_chunks_and_then_each_token_alone() -> None:
    model = reference_model(decoder(100))
    prompt = [*range(1, 38)]
    found = list(tokens(model, prompt, 5))
    assert model.spans == [(0, 16), (16, 16), (32, 5), (37, 1), (38, 1), (39, 1), (40, 1)]
    other = reference_model(decoder(100), rows=1)
    assert list(tokens(other, prompt, 5)) == found
    assert {count for _, count in other.spans} == {1}


def test_the_cache_ends_a_text() -> None:
    model = reference_model(decoder(100))
    found = list(tokens(model, [1] * (CONTEXT - 3)))
    assert len(found) == 3
    assert max(position + count for position, count in model.spans) == CONTEXT - 1


def test_an_end_token_is_the_last_one() -> None:
    assert list(tokens(Says([7, 8, 3, 9], ends=(3,)), [1, 2])) == [7, 8, 3]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "prompt: it has no tokens. Give a text to continue."),
        (
            [1] * CONTEXT,
            "prompt: it has 160 tokens; the cache of 'small.pte' has 160 positions, one of which a new token needs. Shorten the "
            "prompt, or export the model with a larger context.",
        ),
        (
            [1, 100],
            "prompt: it has the token 100; the vocabulary of 'small.pte' has the tokens 0 to 99. Use the tokenizer of this model.",
        ),
    ],
)
def test_a_prompt_that_does_not_fit_is_refused_before_any_run(prompt: list[int], message: str) -> None:
    model = reference_model(decoder(100))
    with pytest.raises(InvalidOptionError, match=f"^{re.escape(message)}$"):
        tokens(model, prompt)
    assert model.spans == []


def test_no_token_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match=r"^max-tokens: it is 0; it is 1 or more\.$"):
        tokens(Says([1]), [1], 0)


def test_logits_that_are_no_numbers_are_an_error() -> None:
    class Broken(Says):
        def run(self, tokens: Sequence[int], position: int) -> Floats:
            return np.full(200, np.nan, np.float32)

    message = "'says.pte': its logits at position 1 are no finite numbers. Check the weights it was made of."
    with pytest.raises(InvalidModelError, match=f"^{re.escape(message)}$"):
        next(tokens(Broken([1]), [1, 2]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"temperature": -1.0}, "temperature: it is -1; it is 0 or a positive number."),
        ({"temperature": float("nan")}, "temperature: it is nan; it is 0 or a positive number."),
        ({"top_p": 0.0}, "top-p: it is 0; it is a number above 0, and at most 1."),
        ({"top_p": 1.5}, "top-p: it is 1.5; it is a number above 0, and at most 1."),
        ({"seed": -1}, "seed: it is -1; it is 0 or a positive number."),
    ],
)
def test_a_choice_out_of_range_is_refused(given: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"^{re.escape(message)}$"):
        Sampling(**given)  # type: ignore[arg-type]


def test_tokens_are_drawn_by_their_probabilities() -> None:
    wanted = np.array([0.5, 0.125, 0.25, 0.125])
    logits = np.log(wanted).astype(np.float32)
    random = np.random.default_rng(1)
    drawn = np.bincount([Sampling(1.0).choose(logits, random) for _ in range(4000)], minlength=4) / 4000
    assert np.abs(drawn - wanted).max() < 0.03
    cold = np.bincount([Sampling(0.5).choose(logits, random) for _ in range(4000)], minlength=4) / 4000
    assert np.abs(cold - wanted**2 / (wanted**2).sum()).max() < 0.03


@pytest.mark.parametrize(("top_p", "kept"), [(0.4, {0}), (0.6, {0, 2}), (0.8, {0, 1, 2}), (1.0, {0, 1, 2, 3})])
def test_top_p_draws_among_the_most_likely_tokens(top_p: float, kept: set[int]) -> None:
    logits = np.log([0.5, 0.125, 0.25, 0.125]).astype(np.float32)
    random = np.random.default_rng(2)
    assert {Sampling(1.0, top_p).choose(logits, random) for _ in range(300)} == kept


def test_greedy_takes_the_first_of_equal_tokens() -> None:
    assert Sampling().choose(np.array([1, 3, 3], np.float32), np.random.default_rng(0)) == 1


def test_a_seed_gives_one_text() -> None:
    one, same, other = (
        list(tokens(reference_model(decoder(100)), [5, 6], 20, Sampling(1.0, 0.9, seed))) for seed in (1, 1, 2)
    )
    assert one == same != other


@pytest.fixture
def words(tmp_path: Path) -> Tokenizer:
    tokenizer(tmp_path / "tokenizer.json")
    return Tokenizer.read(tmp_path / "tokenizer.json")


def test_pieces_are_the_whole_text(words: Tokenizer) -> None:
    ids = words.encode(PROMPT)
    assert "".join(pieces(iter(ids), TextStream(words), ())) == words.decode(ids) == PROMPT


@pytest.mark.parametrize("stop", ["use", "it, and", ":", "is free software", "change it.", "absent"])
def test_a_stop_word_ends_the_text_wherever_tokens_end(words: Tokenizer, stop: str) -> None:
    stream = TextStream(words, [stop, "never"])
    given = list(pieces(iter(words.encode(PROMPT)), stream, ()))
    assert "".join(given) == PROMPT.partition(stop)[0]
    assert stream.is_stopped == (stop in PROMPT)
    assert all(given)


def test_no_piece_has_a_part_of_a_character(tmp_path: Path) -> None:
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator([], trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False))
    made.save(str(tmp_path / "bytes.json"))
    words = Tokenizer.read(tmp_path / "bytes.json")
    text = "a\u00e9\u4e2d\U0001f600b"
    assert list(pieces(iter(words.encode(text)), TextStream(words), ())) == list(text)
    cut = words.encode(text)[:-2]
    assert "".join(pieces(iter(cut), TextStream(words), ())).startswith("a\u00e9\u4e2d\ufffd")


def test_end_tokens_are_no_text(words: Tokenizer) -> None:
    ids = [*words.encode("use it"), 5]
    assert "".join(pieces(iter(ids), TextStream(words), (5,))) == "use it"


def test_a_tokenizer_of_another_model_is_refused(words: Tokenizer) -> None:
    message = (
        f"'{words.path}' has the tokens 0 to {words.vocabulary - 1}; the vocabulary of 'm.pte' has 100 tokens. "
        "Give the tokenizer of this model."
    )
    with pytest.raises(InvalidModelError, match=f"^{re.escape(message)}$"):
        words.check("m.pte", 100)
    words.check("m.pte", words.vocabulary)


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(InvalidModelError, match=f"^'{re.escape(str(path))}' is no tokenizer that can be read: "):
        Tokenizer.read(path)


CHATML = (
    "{{ bos_token }}{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.mark.parametrize("place", ["tokenizer_config.json", "chat_template.jinja"])
def test_a_chat_has_the_form_of_its_template(tmp_path: Path, place: str) -> None:
    import json

    configuration = {"bos_token": {"content": "<s>"}, "chat_template": CHATML}
    if place == "chat_template.jinja":
        (tmp_path / place).write_text(CHATML)
        configuration["chat_template"] = "another one"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(configuration))
    path = tmp_path / "tokenizer.json"
    assert chat(path, "Hi.") == "<s><user>Hi.\n<assistant>"
    assert chat(path, "Hi.", "Be brief.") == "<s><system>Be brief.\n<user>Hi.\n<assistant>"


def test_a_chat_without_a_template_is_refused(tmp_path: Path) -> None:
    message = (
        f"'{tmp_path / 'tokenizer_config.json'}' has no chat template, and there is no 'chat_template.jinja' beside it. Leave out "
        "--chat, and write the prompt in the form that the model was trained with."
    )
    with pytest.raises(InvalidModelError, match=f"^{re.escape(message)}$"):
        chat(tmp_path / "tokenizer.json", "Hi.")


def test_rows_do_not_change_a_text() -> None:
    """No value depends on how a text is divided into runs."""
    texts = [list(tokens(reference_model(decoder(100), rows), [*range(1, 20)], 8)) for rows in (1, 3, 7, ROWS)]
    assert all(one == other for one, other in itertools.pairwise(texts))
