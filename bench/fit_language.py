# SPDX-License-Identifier: BSD-3-Clause
"""Fit the instructions of language models' kernels on a Cortex-M33 with a floating-point unit to counts of QEMU.

The calls of random decoders are counted in runs of several tokens and of one, at several positions. For each form of a call, six constants
(compiler/cost/language.py) are fitted: non-negative least squares of relative errors. ``python -m bench.fit_language --write`` writes
them into the package.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from openneutron import targets
from openneutron.compiler.cost.language import FILE, Counted
from openneutron.isa import decode
from openneutron.isa.microcode import Microcode
from openneutron.language.decoder import Activation, Decoder
from openneutron.language.program import Plan, compiled, never
from openneutron.language.times import calls_of
from tests.cortex_m33.boards import CORTEX_M33
from tests.cortex_m33.cases import Case, Flag, run
from tests.cortex_m33.firmware import image, library
from tests.language.random_decoders import llama_drawing, random_decoder

TITLE = "Instructions of language models' kernels on a Cortex-M33"

BOARD = replace(CORTEX_M33, flags=("-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"))

ROWS = 16
RUNS = ((16, 0), (4, 16), (12, 4), (1, 21), (8, 22), (1, 30), (1, 40))
"""The tokens of each run, and the position of the first one."""

SMALL = 40
"""Random decoders of the tests that are counted."""

WIDE = ((128, 4, 4, 32, 352), (160, 5, 5, 32, 432), (192, 3, 1, 64, 512), (256, 4, 2, 64, 320))
"""Width, heads of queries and of keys, values of a head and hidden values of decoders that are wider than those."""

LEAST = 200
"""Errors of calls of fewer instructions are relative to this number."""


@dataclass(frozen=True, slots=True)
class Count:
    """A counted call."""

    form: str
    work: Counted
    instructions: int


def decoders() -> Iterator[Decoder]:
    """Yield the decoders whose calls are counted."""
    yield from (random_decoder(seed) for seed in range(SMALL))
    for number, shape in enumerate(WIDE):
        for bits in (4, 8):
            yield wide(*shape, bits=bits, seed=2 * number + bits // 8)


def wide(width: int, heads: int, groups: int, size: int, hidden: int, bits: int, seed: int) -> Decoder:
    """Return a decoder of one layer in the form of Llama."""
    random, context = np.random.default_rng(seed), 64
    drawing = llama_drawing(random, width, heads, groups, size, context, bits, hidden=(hidden,))
    embedding = drawing.matrix(128, width)
    return Decoder(
        f"wide {seed}", (drawing.layer(),), embedding, embedding, drawing.norm(width), heads, groups, size, context, Activation.SILU,
        1e-6, size**-0.5,
    )  # fmt: skip


def inputs_of(microcode: Microcode, vocabulary: int, tokens: int, position: int) -> bytes:
    """Return the bytes of a run's inputs: tokens of all parts of the vocabulary, and the span."""
    given = np.zeros(microcode.inputs[0]["size"] // 8, np.int64)
    given[:tokens] = np.arange(position, position + tokens) * 37 % vocabulary
    return given.tobytes() + np.array([position, tokens], np.int64).tobytes()


def counts() -> list[Count]:
    """Return the counted calls of all decoders."""
    target, made = targets.described("cortex-m33"), []
    for decoder in decoders():
        program = compiled(decoder, target, Plan(min(ROWS, decoder.context), never)).program
        runs = [each for each in RUNS if sum(each) <= decoder.context and each[0] <= decoder.context]
        if (
            program.header["weights_size"] <= 1 << 19
            and program.header["state_size"] <= 1 << 16
            and decoder.context >= ROWS
        ):
            made.append((program, decode(program), decoder.vocabulary, runs))
    cases = [
        Case(program, tuple(inputs_of(microcode, words, *each) for each in runs), Flag.TRACE)
        for program, microcode, words, runs in made
    ]
    found = []
    for (_, microcode, _, runs), done in zip(
        made, run(image(library(("-O2",), board=BOARD), board=BOARD), cases, count=True), strict=True
    ):
        for (tokens, position), traced in zip(runs, done.runs, strict=True):
            assert traced.error == 0 and len(traced.calls) == len(microcode.operators)
            for (_, call), counted in zip(calls_of(microcode), traced.calls, strict=True):
                found.append(Count(call.form(tokens), call.work(tokens, position), BOARD.instructions(counted.ticks)))
    return found


def fitted(found: Sequence[Count]) -> npt.NDArray[np.float64]:
    """Return the six constants of one form."""
    from scipy.optimize import nnls

    rows = np.array([each.work for each in found])
    wanted = np.array([each.instructions for each in found], float)
    weights = 1 / np.maximum(wanted, LEAST)
    solution: npt.NDArray[np.float64] = nnls(rows * weights[:, None], wanted * weights)[0]
    return solution


def fit(found: Sequence[Count]) -> dict[str, list[float]]:
    """Return the constants by form."""
    forms: dict[str, list[Count]] = defaultdict(list)
    for each in found:
        forms[each.form].append(each)
    return {name: [float(f"{value:.3g}") for value in fitted(each)] for name, each in sorted(forms.items())}


def errors(found: Sequence[Count], table: dict[str, list[float]]) -> dict[str, tuple[int, float, float]]:
    """Return, by form, the number of calls, and the median and the largest relative error."""
    forms: dict[str, list[float]] = defaultdict(list)
    for each in found:
        forms[each.form].append(float(np.dot(each.work, table[each.form])) / max(each.instructions, LEAST) - 1)
    return {name: (len(e), float(np.median(np.abs(e))), max(e, key=abs)) for name, e in sorted(forms.items())}


def text(table: dict[str, list[float]]) -> str:
    """Return the text of language.json."""
    rows = ",\n".join(f"    {json.dumps(name)}: {json.dumps(each)}" for name, each in table.items())
    return f'{{\n  "dsp": {{\n{rows}\n  }}\n}}\n'


if __name__ == "__main__":
    measured = counts()
    constants = fit(measured)
    for form, (calls, middle, most) in errors(measured, constants).items():
        print(f"{form:24} {calls:5} calls, median error {middle:.1%}, largest {most:+.0%};", *constants[form])
    if "--write" in sys.argv:
        FILE.write_text(text(constants))
