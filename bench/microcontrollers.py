# SPDX-License-Identifier: BSD-3-Clause
"""``python -m bench.microcontrollers`` prints what the language model of tests/language/trained.py takes on i.MX RT700.

Its weights are random, since their values change neither sizes nor the modelled time. The core reads them in external flash.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from transformers import LlamaConfig

import openneutron.llm
from openneutron import targets
from openneutron.isa import decode
from openneutron.language.times import modelled
from tests.language.trained import SHAPE

CHIP, CONTEXT, ROWS = "imxrt700", 256, 16
PHASES = {"decode at position 16": (1, 16), "decode at position 255": (1, 255), "prompt of 128 tokens": (128, 0)}
"""Tokens of each phase, and the position of the first one."""


def main() -> None:
    console, core = Console(width=140), targets.host_alone(targets.described(CHIP))
    read = 1e6 * core.constants_home.bandwidth.value * core.clock.value
    for bits in (8, 4):
        made = openneutron.llm.export(
            None, config=LlamaConfig(**SHAPE), target=CHIP, context=CONTEXT, chunk=ROWS, bits=bits
        ).compiled
        report, microcode = made.report, decode(made.program, checksums=False)
        console.print(
            f"int{bits}: {report.weights_bytes + report.microcode_bytes:,} bytes of flash, {report.state_bytes:,} bytes of cache and "
            f"{report.arena_bytes:,} of arena in SRAM"
        )
        table = Table("phase", "ms a token", "range", "reading flash", "bound", "longest parts")
        for words, (tokens, position) in PHASES.items():
            found = modelled(microcode, tokens, position, ROWS)
            assert found is not None
            (chip, phase), scale = found, 1e3 / tokens
            reading = sum(part.size_bytes for part in phase.parts) / read
            longest = sorted(phase.parts, key=lambda part: -part.seconds)[:3]
            table.title = chip
            table.add_row(
                words,
                f"{scale * phase.seconds:.0f}",
                f"{scale * phase.low:.0f} to {scale * phase.high:.0f}",
                f"{scale * reading:.1f}",
                f"{scale * phase.bound:.1f}",
                ", ".join(f"{part.name} {part.seconds / phase.seconds:.0%}" for part in longest),
            )
        console.print(table)


if __name__ == "__main__":
    main()
