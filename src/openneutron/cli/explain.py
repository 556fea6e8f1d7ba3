# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron explain``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group, RenderableType

from openneutron import litert
from openneutron.cli import output
from openneutron.cli.model_source import LiteRTFile
from openneutron.cli.options import GivenModel, takes_a_model
from openneutron.cli.progress import Steps
from openneutron.mixed import analyse_file
from openneutron.report import Summary, of_compiled_file
from openneutron.report.text import calls_table, memory_table, on_cpu_table, summary_table


@takes_a_model(without=("io_dtype", "profile", "converter", "converter_flags", "any_runtime"))
def explain(
    *,
    asked: GivenModel,
    memory: Annotated[bool, typer.Option("--memory", help="Show each partition's memory map too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Say what would run on the NPU, at what cost.

    Every kernel call with its modelled cycles, and every operator that stays on the CPU with the reason. Writes no file.
    """
    source = asked.source
    with Steps(quiet) as steps:
        if isinstance(source, LiteRTFile):
            steps("Reading", 0, 1)
            read = litert.read(source.path)
            summary = of_compiled_file(
                analyse_file(read, str(source), asked.options, asked.delegation.operators_not_to_delegate, steps)
            )
        else:
            from openneutron.cli.pytorch_model import explain_pytorch

            summary = explain_pytorch(source, asked, steps)
    if as_json:
        output.show_json(summary.to_dict(details=True))
    else:
        output.show(explanation(summary, memory))


def explanation(summary: Summary, memory: bool) -> RenderableType:
    """Return the summary, each partition's kernel calls (and memory), and everything on the CPU."""
    parts: list[RenderableType] = [summary_table(summary, with_cpu=False)]
    for part in summary.partitions:
        parts += ["", calls_table(part)]
        if memory:
            parts += ["", memory_table(part)]
    if summary.on_cpu:
        parts += ["", on_cpu_table(summary.on_cpu)]
    return Group(*parts)
