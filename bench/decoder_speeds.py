# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.decoder_speeds [--page]`` prints the modelled tokens per second of Qwen3 on i.MX 95 beside the published ones.

With ``--page`` it writes the table into docs/how-to/language-models.md. A layer and the head of each shape are compiled with random weights;
the other layers have the same structure.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.decoders import CONTEXT, ROWS, SHAPES, Shape, random_decoder
from bench.published import A55, IMX95, LATENCIES
from openneutron import targets
from openneutron.isa import decode
from openneutron.language.program import Plan, compiled
from openneutron.language.times import NEVER, Phase, Speeds, Work, chooser, phase, with_jobs_from, work_of

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "language-models.md"
BEGIN, END = "<!-- python -m bench.decoder_speeds --page -->\n", "<!-- end -->\n"

PUBLISHED = {
    "Qwen3-1.7B": SHAPES["Qwen3-1.7B"],
    "Qwen3-4B": Shape(36, 2560, 32, 8, 128, 9728, 151_936, normed=True),
    "Qwen3-8B": Shape(36, 4096, 32, 8, 128, 12_288, 151_936, normed=True),
}
"""The models with published speeds; the sizes are those of config.json (Apache-2.0)."""

PHASES = {"prefill": (585, 0), "decode": (1, 601)}
"""Tokens and position of the published phases: 585 tokens of a prompt, and the middle one of 32 tokens behind it."""

HEADINGS = (
    *("model", "phase", "head", "published CPU", "published NPU", "CPU alone", "all on the NPU"),
    *("as compiled", "range", "over the better published one", "bound", "bound by"),
)


def work_of_shape(name: str, shape: Shape, bits: int, head_bits: int, group: int = 32, context: int = CONTEXT) -> Work:
    """Return the work of a decoder of this shape, from the program of one of its layers."""
    decoder = random_decoder(name, bits, group, context=context, head_bits=head_bits, shape=replace(shape, layers=1))
    target = targets.host_with_jobs(targets.described("imx95"))
    rows = min(ROWS, context)
    found = work_of(decode(compiled(decoder, target, Plan(rows, chooser(target, rows))).program, checksums=False))
    layer = [each for each in found if each.name.startswith("layers.0.")]
    layers = (
        replace(each, name=each.name.replace(".0.", f".{number}.", 1))
        for number in range(shape.layers)
        for each in layer
    )
    return (*layers, *(each for each in found if each not in layer))


def bound_by(found: Phase) -> str:
    """Return what the lower bound of a phase comes from."""
    read, _ = Speeds().together(any(part.on_npu for part in found.parts))
    return "bytes over DDR" if found.is_bound_by_memory(read) else "multiplications"


def lines() -> Iterator[tuple[str, ...]]:
    """Yield a row of the table for each model, type of the head, and phase."""
    rates = {
        (figure.network, figure.target): figure.microseconds
        for figure in LATENCIES
        if figure.network.startswith("Qwen3-") and figure.target in (A55, IMX95)
    }
    for name, shape in PUBLISHED.items():
        for head_bits in (8, 4):
            work = work_of_shape(name, shape, 4, head_bits)
            for kind, (tokens, position) in PHASES.items():
                cpu, npu = (tokens * 1e6 / rates[f"{name} {kind}", target] for target in (A55, IMX95))
                ways = with_jobs_from(work, NEVER), with_jobs_from(work, 1), work
                alone, there, made = (phase(each, tokens, position, ROWS) for each in ways)
                yield (
                    name,
                    kind,
                    f"int{head_bits}",
                    *(f"{speed:.2f}" for speed in (cpu, npu, alone.tokens_per_second, there.tokens_per_second)),
                    f"{made.tokens_per_second:.2f}",
                    f"{tokens / made.high:.2f} to {tokens / made.low:.2f}",
                    f"{made.tokens_per_second / max(cpu, npu):.2f}",
                    f"{tokens / made.bound:.2f}",
                    bound_by(made),
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="write the table into the page of the documentation")
    given = parser.parse_args()
    table = [HEADINGS, ("---",) * 3 + ("---:",) * (len(HEADINGS) - 4) + ("---",), *lines()]
    text = "".join(f"| {' | '.join(line)} |\n" for line in table)
    print(text)
    if given.page:
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END, 1)[1]}")


if __name__ == "__main__":
    main()
