# SPDX-License-Identifier: BSD-3-Clause
"""``python -m openneutron.examples.text_decoder`` trains a text decoder, compiles it, and prints the generated text with its quality."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence

import torch

import openneutron
from openneutron.api.pytorch import CompiledModel
from openneutron.device.third_party import suppressed
from openneutron.errors import InvalidOptionError, OpenNeutronError
from openneutron.examples.text_decoder import corpus
from openneutron.examples.text_decoder.corpus import Corpus, decoded, encoded
from openneutron.examples.text_decoder.train import STEPS, train
from openneutron.examples.text_decoder.write import in_executorch, on_the_driver, quality, read, real, stream, write
from openneutron.options import QuantizationOptions
from openneutron.pytorch.source.models.decoder import TextDecoder

CALIBRATION_TEXTS = 4
TEST_TEXTS = 8
PRINTED_STEPS = 500
FLOAT, INT8, NPU = "float32 on the CPU", "int8 on the CPU", "int8 on the simulated NPU"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m openneutron.examples.text_decoder", description=__doc__)
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
    texts = corpus.load()
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
