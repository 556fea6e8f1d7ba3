# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron demo``."""

from __future__ import annotations

import dataclasses
import io
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.console import Group
from rich.text import Text

from openneutron.cli import output
from openneutron.device import files
from openneutron.device.third_party import needs_demo, suppressed
from openneutron.features.report.table import Column, Table, right
from openneutron.features.report.text import summary_table

if TYPE_CHECKING:
    from openneutron.features.demo.main_job import Outcome


def demo(
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="Folder for the compiled network and an image.")
    ] = Path("demo_output"),
    qat: Annotated[
        bool,
        typer.Option("--qat", help="Then train the network on with its quantization simulated, and compile it again."),
    ] = False,
    as_json: output.AsJson = False,
    quiet: output.Quiet = False,
) -> None:
    """Train a small network on handwritten digits, compile it, and run every test image on the simulated NPU.

    The digits are those of scikit-learn; nothing is downloaded. The last lines have commands for the compiled network and for
    a network of your own.
    """
    files.check_folder(to)
    with suppressed():
        with needs_demo("openneutron demo takes"):
            from openneutron.features.demo import main_job
        with output.Steps(quiet or as_json) as steps:
            outcome = main_job.run(qat, steps)
    image = io.BytesIO()
    np.save(image, outcome.data.test[:1].numpy())
    path = to / "cifarnet.pte"
    files.write({path: outcome.program.buffer, to / "x.npy": image.getvalue()}, to)
    summary = dataclasses.replace(outcome.program.report, file=str(path))
    data = {
        "test_images": len(outcome.data.test),
        "correct": outcome.correct(),
        "alike_on_npu_and_cpu": outcome.alike(),
        "summary": summary.to_dict(),
    }
    shown = (
        _head(outcome),
        "",
        _accuracy(outcome),
        "",
        summary_table(summary, advice=outcome.program.quick_advice),
        "",
        _next_steps(outcome, to),
    )
    output.show(Group(*shown), "demo", data, as_json)


def _head(outcome: Outcome) -> Text:
    train, test = outcome.data.train, outcome.data.test
    return Text.assemble(
        ("CifarNet on handwritten digits", "bold"),
        f": {len(train):,} images to train with, {len(test)} to test with, scaled from 8x8 to {test.shape[2]}x{test.shape[3]}",
    )


def _accuracy(outcome: Outcome) -> Table:
    """Return a table of the accuracy, with a row for each way of running the network."""
    tested = len(outcome.data.test)
    rows = [
        (where, f"{100 * correct / tested:.2f} %", f"{correct} of {tested} test images")
        for where, correct in outcome.correct().items()
    ]
    rows.append(("", "", f"{outcome.alike()} of {tested} with the same class on NPU and CPU"))
    return Table.of_rows((Column(style="cyan"), right("", style="bold"), Column()), rows, gap=3, has_headings=False)


def _next_steps(outcome: Outcome, folder: Path) -> Text:
    """Return text with the commands to try next."""
    command, there = _command(), shlex.quote(str(folder))
    digit = int(outcome.data.test_labels[0])
    return Text.assemble(
        ("Next", "bold"),
        f", with the files in {there} (x.npy is a handwritten {digit}):\n\n"
        f"  {command} run {there}/cifarnet.pte --input {there}/x.npy\n"
        f"  {command} disasm {there}/cifarnet.pte\n\n"
        "With a network of your own, where my_model.py has a function make() that returns the module and its example inputs,\n"
        "and images/ has typical inputs, such as pictures:\n\n"
        f"  {command} explain my_model.py:make\n"
        f"  {command} compile my_model.py:make --calibration images/ -o my_model.pte",
    )


def _command() -> str:
    """Return the shell words that start ``openneutron`` from the current folder."""
    script = Path(sys.executable).parent / "openneutron"
    if shutil.which("openneutron") == str(script):
        return "openneutron"
    if not script.exists():
        return f"{shlex.quote(sys.executable)} -m openneutron"
    return shlex.quote(str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script))
