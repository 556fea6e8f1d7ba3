# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.decoders [NAME …] [--bits 4] [--group 32] [--head-bits 8]`` compiles decoders of published shapes with random weights for i.MX 95.

It prints the cost of the compile, the sizes, and the modelled tokens a second of each phase: with all products on the NPU, on the cores
alone, and as the compiler chooses. Each shape is compiled in a process of its own, whose peak memory is printed.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from openneutron import targets
from openneutron.device import neutron_jobs as jobs
from openneutron.isa import decode
from openneutron.language.decoder import Activation, Decoder, Layer, Matrix, Norm, Rotary, rotary_angles
from openneutron.language.program import Plan, compiled
from openneutron.language.times import Product, chooser, phase, with_jobs_from, work_of

CONTEXT, ROWS = 2048, 128
PHASES = ((128, 0), (585, 0), (1, 16), (1, 585), (1, 2000))
"""Tokens of a phase, and the position of its first one."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a decoder, from the config.json of the model's publisher."""

    layers: int
    width: int
    heads: int
    groups: int
    head: int
    wide: int
    words: int
    normed: bool = False


SHAPES = {
    "SmolLM-135M": Shape(30, 576, 9, 3, 64, 1536, 49_152),
    "Qwen3-0.6B": Shape(28, 1024, 16, 8, 128, 3072, 151_936, normed=True),
    "Qwen3-1.7B": Shape(28, 2048, 16, 8, 128, 6144, 151_936, normed=True),
    "Llama-3.2-1B": Shape(16, 2048, 32, 8, 64, 8192, 128_256),
}


def random_matrix(random: np.random.Generator, rows: int, columns: int, bits: int, group: int) -> Matrix:
    """Return random quantized weights whose products keep the size of their inputs."""
    size = np.float32(1 / np.sqrt(columns))
    if bits == 8:
        values = random.integers(-127, 128, (rows, columns), dtype=np.int8)
        return Matrix(values, np.full(rows, size / 73, np.float32))
    nibbles = random.integers(0, 256, (rows, columns // 2), dtype=np.uint8)
    scales = ((random.random((rows, columns // group), np.float32) + np.float32(0.5)) * size / 5).astype(np.float32)
    weights, channel_scales = jobs.int4_weights(nibbles, scales, group)
    return Matrix(weights.values, channel_scales, weights)


def random_decoder(
    name: str,
    bits: int,
    group: int,
    seed: int = 0,
    context: int = CONTEXT,
    head_bits: int | None = None,
    shape: Shape | None = None,
) -> Decoder:
    """Return a decoder with random weights, of the published shape of this name or of ``shape``. ``head_bits`` is for embedding and head;
    None: ``bits``."""
    shape, random = SHAPES[name] if shape is None else shape, np.random.default_rng(seed)
    ones = Norm(np.ones(shape.width, np.float32))
    heads = np.ones(shape.head, np.float32) if shape.normed else None
    rotary = Rotary(rotary_angles(10_000.0 ** -(np.arange(0, shape.head, 2) / shape.head), context))

    def matrix(rows: int, columns: int) -> Matrix:
        return random_matrix(random, rows, columns, bits, group)

    layers = tuple(
        Layer(
            attention_norm=ones,
            qkv=matrix((shape.heads + 2 * shape.groups) * shape.head, shape.width),
            output=matrix(shape.width, shape.heads * shape.head),
            up=matrix(2 * shape.wide, shape.width),
            down=matrix(shape.width, shape.wide),
            mlp_norm=ones,
            query_norm=heads,
            key_norm=heads,
            rotary=rotary,
        )
        for _ in range(shape.layers)
    )
    embedding = random_matrix(random, shape.words, shape.width, head_bits or bits, group)
    return Decoder(
        name, layers, embedding, embedding, ones, shape.heads, shape.groups, shape.head, context, Activation.SILU, 1e-6,
        shape.head**-0.5,
    )  # fmt: skip


def measured(name: str, bits: int, group: int, head_bits: int) -> None:
    """Compile one shape in this process, and print its tables."""
    console = Console(width=160)
    decoder = random_decoder(name, bits, group, head_bits=head_bits)
    target = targets.host_with_jobs(targets.described("imx95"))
    began = time.process_time()
    made = compiled(decoder, target, Plan(ROWS, chooser(target, ROWS)))
    spent = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    facts, work = made.report, work_of(decode(made.program, checksums=False))
    console.print(
        f"{name}, {bits} bits"
        + (f" in groups of {group}" if bits == 4 else "")
        + f", head of {head_bits} bits"
        + f": {spent:.1f} CPU-s from quantized weights to "
        f"program, peak {peak:,.0f} MiB (weights and generator included); weights {facts.weights_bytes / 2**20:,.0f} MiB, "
        f"cache {facts.state_bytes / 2**20:.0f} MiB, arena {facts.arena_bytes / 2**20:.1f} MiB, {len(facts.operators)} calls"
    )
    table = Table("phase", "NPU", "cores", "as chosen", "bound", title="modelled tokens/s, with range")
    for tokens, position in PHASES:
        cells = [f"{tokens} tokens from {position}"]
        bound = 0.0
        for each in (with_jobs_from(work, 1), with_jobs_from(work, 0), work):
            found = phase(each, tokens, position, ROWS)
            cells.append(f"{found.tokens_per_second:.2f} ({tokens / found.high:.2f} to {tokens / found.low:.2f})")
            bound = max(bound, tokens / found.bound)
        table.add_row(*cells, f"{bound:.2f}")
    console.print(table)
    shares = Table(
        "matrix", "channels", "prompt", "token", title="channels on the NPU, in a prompt and for a single token"
    )
    seen = {each.name.rpartition(".")[2]: each for each in work if isinstance(each, Product)}
    for kind, each in seen.items():
        shares.add_row(kind, *(str(n) for n in (each.rows, each.share.channels(ROWS), each.share.channels(1))))
    console.print(shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SHAPES), metavar="NAME", help=", ".join(SHAPES))
    parser.add_argument("--bits", type=int, choices=(4, 8), default=4)
    parser.add_argument("--group", type=int, choices=jobs.GROUPS, default=32)
    parser.add_argument("--head-bits", type=int, choices=(4, 8), default=8)
    parser.add_argument("--here", action="store_true", help="in this process")
    given = parser.parse_args()
    for name in given.names:
        if given.here:
            measured(name, given.bits, given.group, given.head_bits)
            continue
        command = [
            sys.executable,
            "-m",
            "bench.decoders",
            name,
            "--bits",
            str(given.bits),
            "--group",
            str(given.group),
            "--head-bits",
            str(given.head_bits),
            "--here",
        ]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
