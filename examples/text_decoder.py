# SPDX-License-Identifier: BSD-3-Clause
"""Train a text decoder on Python's documentation strings, compile it, and generate text on the simulated NPU.

``python -m examples.text_decoder`` prints the generated text with its quality.
"""

from __future__ import annotations

import argparse
import ast
import math
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

import openneutron
from openneutron.api.pytorch import CompiledModel
from openneutron.device.simulator import Simulator
from openneutron.device.third_party import suppressed
from openneutron.errors import InvalidOptionError, OpenNeutronError
from openneutron.options import QuantizationOptions
from openneutron.pytorch.source.models import TextDecoder

# -- the text: documentation strings of the standard library, as numbers of characters; it depends on Python's version alone ---

CHARACTERS = "\n" + "".join(map(chr, range(ord(" "), ord("~") + 1)))
"""The end of a line and the 95 printable characters of ASCII; a character's number is its index."""

TESTED = 10
"""One of so many documentation strings is for testing, the others are for training."""

_NUMBERS = {character: number for number, character in enumerate(CHARACTERS)}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Two texts as numbers of characters, int64 [length]."""

    train: torch.Tensor
    test: torch.Tensor


def load() -> Corpus:
    """Return the documentation strings of the modules in the standard library's folder, without its packages."""
    strings = list(dict.fromkeys(docstrings(sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")))))
    tested = strings[::TESTED]
    trained = (string for place, string in enumerate(strings) if place % TESTED)
    return Corpus(encoded("\n\n".join(trained)), encoded("\n\n".join(tested)))


def docstrings(files: Iterable[Path]) -> Iterator[str]:
    """Yield the documentation strings of Python files, without their indentation."""
    for file in files:
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, _DOCUMENTED) and (string := ast.get_docstring(node)):
                yield string


def encoded(text: str) -> torch.Tensor:
    """Return the numbers of a text's characters, int64 [length], without characters that have none."""
    return torch.tensor([_NUMBERS[character] for character in text if character in _NUMBERS], dtype=torch.int64)


def decoded(numbers: Iterable[int]) -> str:
    """Return the text of characters' numbers."""
    return "".join(CHARACTERS[number] for number in numbers)


# -- training ----------------------------------------------------------------------------------------------------------

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


# -- reading and writing texts one character after the other, with any form of a decoder --------------------------------

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""A function of a token and its position, both int64 [1], that returns the logits [1, tokens] of the next token. The function keeps the
state of the earlier positions."""


@dataclass(frozen=True, slots=True)
class Quality:
    """The quality of predictions: ``perplexity`` is e to the mean cross entropy, ``accuracy`` the share of tokens that are the most
    probable ones."""

    perplexity: float
    accuracy: float


def stream(text: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield each token of a text, int64 [length], with its position, both int64 [1]."""
    for position, token in enumerate(text.split(1)):
        yield token, torch.tensor([position])


def read(step: Step, text: torch.Tensor) -> torch.Tensor:
    """Return the logits [length, tokens] of the token after each token of a text."""
    with torch.no_grad():
        return torch.cat([step(*inputs) for inputs in stream(text)])


def write(step: Step, prompt: torch.Tensor, count: int) -> list[int]:
    """Return the ``count`` tokens that follow the prompt, each the most probable one."""
    if not len(prompt):
        raise ValueError("the prompt is empty; it must have one token.")
    found: list[int] = []
    logits = read(step, prompt)[-1:]
    for position in range(len(prompt), len(prompt) + count):
        found.append(int(logits.argmax(1)))
        if len(found) < count:
            with torch.no_grad():
                logits = step(torch.tensor(found[-1:]), torch.tensor([position]))
    return found


def quality(logits: Sequence[torch.Tensor], texts: Sequence[torch.Tensor]) -> Quality:
    """Return the quality of the float logits of texts; the last ones of each text predict nothing."""
    predicted = torch.cat([of_one[:-1] for of_one in logits])
    wanted = torch.cat([text[1:] for text in texts])
    perplexity = torch.exp(functional.cross_entropy(predicted, wanted))
    return Quality(float(perplexity), float((predicted.argmax(1) == wanted).float().mean()))


def in_executorch(program: CompiledModel) -> Step:
    """Return the steps of the compiled file in ExecuTorch's runtime, from a new text on: int8 logits."""
    program.reset()

    def step(token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        (logits,) = program.run(token, position)
        assert isinstance(logits, torch.Tensor)
        return logits.clone()

    return step


def on_the_driver(program: CompiledModel) -> Step:
    """Return the steps of the one delegate call on the simulated NPU alone, from a new text on: int8 logits."""
    (partition,) = program.partitions
    simulator = Simulator(partition.compiled.program)
    shape = partition.graph[partition.graph.outputs[0]].shape

    def step(token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        (logits,) = simulator.run([token.numpy(), position.numpy()])
        return torch.from_numpy(np.frombuffer(logits.tobytes(), np.int8).reshape(shape).copy())

    return step


def real(program: CompiledModel, logits: torch.Tensor) -> torch.Tensor:
    """Return the real numbers that int8 logits of the program stand for."""
    (graph,) = program.graphs
    quant = graph[graph.outputs[0]].quant
    assert quant is not None
    return (logits.float() - quant.zero_point) * quant.scale


# -- the command ---------------------------------------------------------------------------------------------------------

CALIBRATION_TEXTS = 4
TEST_TEXTS = 8
PRINTED_STEPS = 500
FLOAT, INT8, NPU = "float32 on the CPU", "int8 on the CPU", "int8 on the simulated NPU"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m examples.text_decoder", description=(__doc__ or "").split("\n")[0])
    made.add_argument("--steps", type=int, default=STEPS, help="training steps (default: %(default)s)")
    made.add_argument("--seed", type=int, default=0, help="seed of weights and training pieces (default: %(default)s)")
    made.add_argument("--prompt", default="Return the ", help="the beginning of the text (default: '%(default)s')")
    made.add_argument("--tokens", type=int, default=64, help="characters to write (default: %(default)s)")
    made.add_argument("--output", default="text_decoder.pte", help="the compiled file (default: %(default)s)")
    return made


def trained(texts: Corpus, steps: int, seed: int) -> TextDecoder:
    """Return a decoder with seeded weights, trained on one thread."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)

    def progress(done: int, loss: float) -> None:
        if done % PRINTED_STEPS == 0 or done == steps:
            print(f"  step {done} of {steps}: cross entropy {loss:.2f} nats", flush=True)

    model = TextDecoder()
    train(model, texts.train, steps, seed, progress)
    return model


def pieces(text: torch.Tensor, count: int, length: int) -> list[torch.Tensor]:
    """Return ``count`` pieces of a text, at equal distances."""
    return [text[begin : begin + length] for begin in range(0, len(text) - length, len(text) // count)][:count]


def compiled(model: TextDecoder, texts: Corpus) -> CompiledModel:
    """Return the decoder for the NPU. Calibration reads texts one after the other, each from position 0 on."""
    length = model.positions.num_embeddings
    calibration = [inputs for text in pieces(texts.train, CALIBRATION_TEXTS, length) for inputs in stream(text)]
    program = openneutron.compile(
        model,
        calibration[0],
        calibration=calibration,
        quantization=QuantizationOptions(io_dtype="int8"),
        name="text_decoder",
    )
    assert isinstance(program, CompiledModel)
    return program


def logits_of_all(
    model: TextDecoder, program: CompiledModel, texts: Sequence[torch.Tensor]
) -> dict[str, list[torch.Tensor]]:
    """Return the real logits [length, tokens] of each text, by the kind of run."""
    found: dict[str, list[torch.Tensor]] = {FLOAT: [], INT8: [], NPU: []}
    for text in texts:
        found[FLOAT].append(read(model, text))
        found[INT8].append(read(program.quantized, text))
        found[NPU].append(real(program, read(in_executorch(program), text)))
    return found


def print_quality(logits: Mapping[str, Sequence[torch.Tensor]], texts: Sequence[torch.Tensor]) -> None:
    """Print perplexity and accuracy on texts, and the distances between the kinds of runs."""
    for where, of_texts in logits.items():
        of_one = quality(of_texts, texts)
        print(f"  {where}: perplexity {of_one.perplexity:.2f}, {100 * of_one.accuracy:.1f} % of characters predicted")
    in_float, in_int8, on_npu = (torch.cat(list(logits[where])) for where in (FLOAT, INT8, NPU))
    signal, noise = float(in_float.square().sum()), float((on_npu - in_float).square().sum())
    alike = float((on_npu.argmax(1) == in_int8.argmax(1)).float().mean())
    print(f"  logits on the NPU: {10 * math.log10(signal / noise):.1f} dB SQNR against float32")
    print(f"  same choice on the NPU and in int8 on the CPU: {100 * alike:.1f} % of {len(on_npu)} positions")


def print_text(model: TextDecoder, program: CompiledModel, prompt: str, count: int) -> None:
    """Print the text that the NPU writes, and how far the other kinds of runs agree with it."""
    begin = encoded(prompt)
    on_npu = write(in_executorch(program), begin, count)
    whole = torch.cat([begin, torch.tensor(on_npu)])[:-1]
    logits = read(in_executorch(program), whole)
    same = torch.equal(logits, read(on_the_driver(program), whole))
    same = same and write(on_the_driver(program), begin, count) == on_npu
    print(f"  | {(prompt + decoded(on_npu)).strip()}".replace("\n", "\n  | "))
    print(f"  ExecuTorch's runtime and the driver alone: {'the same bytes' if same else 'DIFFERENT BYTES'}")
    chosen = read(program.quantized, whole)[-count:].argmax(1)
    print(f"  int8 on the CPU, of the same prefix: {int((chosen == torch.tensor(on_npu)).sum())} of {count} alike")
    for where, step in ((INT8, program.quantized), (FLOAT, model)):
        alone = write(step, begin, count)
        alike = next((place for place, pair in enumerate(zip(alone, on_npu, strict=True)) if len(set(pair)) > 1), count)
        print(f"  {where}, of its own prefix: the first {alike} of {count} alike")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0; 1 where an argument is wrong."""
    given = parser().parse_args(arguments)
    try:
        with suppressed():
            run(given)
    except OpenNeutronError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def run(given: argparse.Namespace) -> None:
    """Train, compile, write a text and measure. Raises InvalidOptionError where the text is longer than the cache."""
    positions, length = TextDecoder().positions.num_embeddings, len(encoded(given.prompt))
    if not 0 < length <= positions - given.tokens or given.tokens < 1:
        raise InvalidOptionError(
            f"--tokens: the prompt has {length} characters and {given.tokens} follow; there must be one of each, and the cache "
            f"has {positions} positions. Give fewer."
        )
    if given.steps < 1:
        raise InvalidOptionError(f"--steps: {given.steps} is below 1.")
    texts = load()
    print(f"Training on {len(texts.train):,} characters of Python's documentation strings")
    model = trained(texts, given.steps, given.seed)
    print("Compiling")
    program = compiled(model, texts)
    program.save(given.output)
    print(program.summary())
    tested = pieces(texts.test, TEST_TEXTS, positions)
    print(f"Reading {TEST_TEXTS} texts of {positions} characters that training has not seen")
    print_quality(logits_of_all(model, program, tested), tested)
    print(f"Writing {given.tokens} characters")
    print_text(model, program, given.prompt, given.tokens)
    seconds = program.report.target.milliseconds(program.report.cycles) / 1000
    print(f"  {1 / seconds:.0f} characters per second, modelled: {program.report.cycles:,} cycles each")


if __name__ == "__main__":
    sys.exit(main())
