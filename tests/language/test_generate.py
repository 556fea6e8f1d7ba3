# SPDX-License-Identifier: BSD-3-Clause
"""A small language model as a ``.pte``: the command, the function and ExecuTorch's runner give the reference's tokens."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from openneutron import targets
from openneutron.cli import main
from openneutron.device.device_model import DeviceModel
from openneutron.errors import InvalidModelError
from openneutron.features.doctor.model import described
from openneutron.features.generate import command
from openneutron.language.decoder import Matrix
from openneutron.language.generation import Tokenizer, generate, identity, tokens
from openneutron.language.model import Interface, LanguageModel
from openneutron.language.program import Plan, compiled, never
from openneutron.language.times import Share
from openneutron.pytorch.language.package import packaged
from openneutron.pytorch.run import delegate
from scripts.json_schema import schema
from tests.language.text_models import END, PROMPT, ROWS, decoder, reference_model, tokenizer
from tests.support.json_schema import violations
from tests.support.pte_files import pte_file

MOST = 100


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with model.pte and tokenizer.json."""
    path = tmp_path_factory.mktemp("model")
    vocabulary = tokenizer(path / "tokenizer.json")
    made = decoder(vocabulary)
    program = compiled(made, targets.get("imx95"), Plan(ROWS, never)).program
    known = identity(path / "tokenizer.json")
    interface = Interface(ROWS, made.context, vocabulary, None, made.end_tokens, tokenizer=known)
    (path / "model.pte").write_bytes(packaged(program, interface))
    return path


@pytest.fixture(scope="module")
def wanted(folder: Path) -> list[int]:
    """Return the tokens with which the reference continues the prompt."""
    words = Tokenizer.read(folder / "tokenizer.json")
    return list(tokens(reference_model(decoder(words.vocabulary)), words.encode(PROMPT), MOST))


def test_the_simulator_gives_the_tokens_of_the_reference(folder: Path, wanted: list[int]) -> None:
    assert len(wanted) == MOST and END not in wanted
    words = Tokenizer.read(folder / "tokenizer.json")
    with LanguageModel((folder / "model.pte").read_bytes()) as model:
        for _ in range(2):  # a text begins anew without a reset
            assert list(tokens(model, words.encode(PROMPT), MOST)) == wanted


def test_the_runner_of_executorch_gives_the_same_tokens(folder: Path, wanted: list[int]) -> None:
    delegate.load()
    from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner

    runner = TextLLMRunner(str(folder / "model.pte"), str(folder / "tokenizer.json"))
    configuration = GenerationConfig(echo=False, max_new_tokens=MOST, temperature=0.0)
    pieces: list[str] = []
    runner.generate(PROMPT, configuration, token_callback=pieces.append)
    words = Tokenizer.read(folder / "tokenizer.json")
    assert pieces == [words.decode([token]) for token in wanted]
    assert "".join(generate(folder / "model.pte", PROMPT, max_tokens=MOST)) == words.decode(wanted)


def test_the_runner_of_executorch_shares_products_with_the_npu(tmp_path: Path, wanted: list[int]) -> None:
    """The NPU multiplies the first block of channels for single tokens, and all blocks for more."""
    delegate.load()
    from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner

    vocabulary = tokenizer(tmp_path / "tokenizer.json")
    made, target = decoder(vocabulary), targets.host_with_jobs(targets.described("imx95"))

    def share(_matrix: Matrix, block: int, most: int, is_last: bool) -> Share:
        return Share(1, block) if is_last else Share(2, most, block)

    program = compiled(made, target, Plan(ROWS, share)).program
    interface = Interface(ROWS, made.context, vocabulary, None, made.end_tokens)
    (tmp_path / "model.pte").write_bytes(packaged(program, interface))
    pieces: list[str] = []
    with DeviceModel() as model:
        runner = TextLLMRunner(str(tmp_path / "model.pte"), str(tmp_path / "tokenizer.json"))
        configuration = GenerationConfig(echo=False, max_new_tokens=MOST, temperature=0.0)
        runner.generate(PROMPT, configuration, token_callback=pieces.append)
        assert model.counts().jobs > MOST and not model.counts().violations, model.violation()
    words = Tokenizer.read(tmp_path / "tokenizer.json")
    assert pieces == [words.decode([token]) for token in wanted]


def test_the_command_prints_the_text(folder: Path, wanted: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    words = Tokenizer.read(folder / "tokenizer.json")
    arguments = ["generate", str(folder / "model.pte"), "--prompt", PROMPT, "--max-tokens", "20"]
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert shown.out == words.decode(wanted[:20]) + "\n"
    count = len(words.encode(PROMPT))
    assert re.fullmatch(
        rf"{count} tokens of prompt, 20 tokens; simulated: [\d.]+ s to the first token, [\d,.]+ tokens/s after it\n"
        r"modelled on i.MX 95 with six cores: [\d.]+ s to the first token \([\d.]+ to [\d.]+\), [\d,.]+ tokens/s after it \([\d,.]+ to [\d,.]+\)\n",
        shown.err,
    )
    assert main([*arguments, "--json", "--threads", "2"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert list(violations(data, schema())) == []
    assert (data["tokens"], data["ended_by"], data["prompt_tokens"]) == (wanted[:20], "length", count)
    word = words.decode(wanted[3:6])
    assert main([*arguments, "--json", "--stop", word]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["text"], data["ended_by"]) == (words.decode(wanted[:20]).partition(word)[0], "stop")


def test_an_interrupt_ends_with_the_text_so_far(
    folder: Path, wanted: list[int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: object) -> object:
        for number, token in enumerate(tokens(*given)):  # type: ignore[arg-type]
            if number == 7:
                raise KeyboardInterrupt
            yield token

    monkeypatch.setattr(command, "tokens", interrupted)
    words = Tokenizer.read(folder / "tokenizer.json")
    assert main(["generate", str(folder / "model.pte"), "--prompt", PROMPT, "-q"]) == 130
    shown = capsys.readouterr()
    assert shown.out == words.decode(wanted[:7]) + "\n"
    assert shown.err == "interrupted\n"


def test_bad_input_is_refused_before_anything_runs(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LanguageModel, "run", None)
    large = tmp_path / "large.json"
    tokens_of_large = tokenizer(large, 170)
    other = tmp_path / "other.json"
    document = json.loads((folder / "tokenizer.json").read_text())
    other.write_text(json.dumps(document, indent=3))
    assert identity(other) == identity(folder / "tokenizer.json")
    document["model"]["merges"] = document["model"]["merges"][::-1]
    other.write_text(json.dumps(document))
    (tmp_path / "other.pte").write_bytes(pte_file(False))
    model, words = str(folder / "model.pte"), str(folder / "tokenizer.json")
    (alone := tmp_path / "alone" / "model.pte").parent.mkdir()
    alone.write_bytes(Path(model).read_bytes())
    vocabulary = Tokenizer.read(Path(words)).vocabulary
    long = len(Tokenizer.read(Path(words)).encode(PROMPT * 9))
    for arguments, message in (
        (
            [model, "--prompt", PROMPT * 9],
            f"prompt: it has {long} tokens; the cache of 'model.pte' has 160 positions, one of which a new token needs. Shorten the "
            "prompt, or export the model with a larger context.",
        ),
        (
            [model, "--prompt", "a", "--tokenizer", str(large)],
            f"'{large}' has the tokens 0 to {tokens_of_large - 1}; the vocabulary of 'model.pte' has {vocabulary} tokens. "
            "Give the tokenizer of this model.",
        ),
        (
            [model, "--prompt", "a", "--tokenizer", str(other)],
            f"'{other}' is another tokenizer than the one with which 'model.pte' was exported: its tokens or merges differ. "
            "Give the tokenizer of this model.",
        ),
        (
            [str(tmp_path / "other.pte"), "--prompt", "a", "--tokenizer", words],
            "'other.pte' is no language model of this compiler: it has no method 'get_max_seq_len'. "
            "Make one with openneutron.llm.export.",
        ),
        (
            [str(alone), "--prompt", "a"],
            f"--tokenizer: there is no tokenizer.json beside '{alone}'. Give the model's own with --tokenizer.",
        ),
        ([model, "--prompt", "a", "--top-p", "2"], "top-p: it is 2; it is a number above 0, and at most 1."),
        ([model, "--prompt", "a", "--system", "b"], "--system: it is a part of a chat. Give --chat too."),
        ([model, "--prompt", ""], "prompt: it has no tokens. Give a text to continue."),
    ):
        assert main(["generate", *arguments]) == 2
        assert capsys.readouterr() == ("", f"error: {message}\n")


def test_the_doctor_suggests_the_report_of_a_language_model(folder: Path) -> None:
    """Such a report needs no facts."""
    assert described(folder / "model.pte").command == "openneutron report {}"


def test_the_function_refuses_before_its_first_piece(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError, match=r"^'.*absent\.pte' does not exist\."):
        generate(tmp_path / "absent.pte", "a", folder / "tokenizer.json")
