# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron board``, and the chip file of a board: that of the chip, with measured facts about jobs."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

from openneutron.cli import output
from openneutron.device import files
from openneutron.device.runtime_sources import runtime_folder
from openneutron.errors import InvalidTargetError, MissingToolError
from openneutron.features.board.cases import PACKED_SIGNED, WITHOUT, cases_header
from openneutron.features.board.findings import Findings, read_findings, rescaling, sentences
from openneutron.targets import KNOWN

_UNNAMED = re.compile(r"[^A-Za-z0-9_-]+")
_UNQUOTED = re.compile(r"[^A-Za-z0-9_.+ -]+")


def chip_text(found: Findings, name: str) -> str:
    """Return the text of a chip file for a board: that of i.MX 95, with another name, and with the check's findings
    in the table ``jobs``. Facts that the check does not show are unchanged.

    The name of the chip is ``name``, or ``name`` with the suffix ``-board`` if a known chip has this name, or if it
    does not begin with a letter.
    """
    assert found.form is not None, "a board without a form of jobs has no chip file"
    text = (resources.files("openneutron.targets") / "chips" / "imx95.toml").read_text()
    source = f"measured: openneutron board, kernel {_UNQUOTED.sub(' ', found.kernel).strip()}"
    kinds = (PACKED_SIGNED,) if found.form == "third" else (WITHOUT,)
    wrong = found.wrong_k(kinds)
    right = sorted({result.case.k for result in found.of(kinds)} - set(wrong))
    measured = {"release": f'["{found.form}"]', "right_k": str(right), "wrong_k": str(wrong)}
    if found.times is not None:
        measured["overhead"] = f"{found.times.overhead_us:.4g}"
        rates = {"bandwidth": found.times.bytes_per_ns, "macs": found.times.products_per_ns}
        measured |= {fact: f"{rate:.4g}" for fact, rate in rates.items() if rate is not None}
    head, jobs, tail = _parts(text)
    for fact, value in measured.items():
        unit = r'(?P<unit>, unit = "[^"]*")?'
        pattern = re.compile(rf'^{fact} = \{{ value = (?:\[[^\]]*\]|[^,]*){unit}, source = "[^"]*" \}}$', re.MULTILINE)
        jobs, count = pattern.subn(
            lambda match, fact=fact, value=value: (  # type: ignore[misc]
                f'{fact} = {{ value = {value}{match["unit"] or ""}, source = "{source}" }}'
            ),
            jobs,
        )
        assert count == 1, f"imx95.toml has one line for jobs.{fact}"
    if 1 in found.rescaled:
        # A comment: no program depends on it.
        jobs = jobs.replace("[jobs]\n", f"[jobs]\n# With --rescale npu: {rescaling(1, found.rescaled[1])}\n", 1)
    named = _UNNAMED.sub("-", name)
    named = f"{named}-board" if named in KNOWN or not named[:1].isalpha() else named
    head = re.sub(r'^name = ".*"$', f'name = "{named}"', head, count=1, flags=re.MULTILINE)
    return head + jobs + tail


def _parts(text: str) -> tuple[str, str, str]:
    """Return a chip file in three parts: the text before the table ``jobs``, the table, and the text after it."""
    start = text.index("[jobs]\n")
    end = text.index("\n[", start)
    return text[:start], text[start:end], text[end:]


BOARDS = ("imx95",)
PROGRAM = "board_check"
COMPILER = "aarch64-linux-gnu-gcc"
FLAGS = ("-std=c11", "-O2", "-o", PROGRAM, f"{PROGRAM}.c", "-ldl")

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Check how a board's NPU computes matrix products, which no document tells.",
)


@app.command("make")
def make(
    chip: Annotated[str, typer.Argument(metavar="CHIP", help=f"The chip of the board: {', '.join(BOARDS)}.")],
    to: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="The folder for the program.")] = Path(
        "check"
    ),
    compiler: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND", help=f"The C compiler for the board; default: {COMPILER} where it is installed."
        ),
    ] = None,
    as_json: output.AsJson = False,
) -> None:
    """Write a folder with a program that runs on the board.

    The program needs nothing on the board but NXP's library. It tries jobs of many sizes, and writes what it sees to check.json. Where no
    compiler is installed here, the folder has the program's source and the line that compiles it.
    """
    if chip not in BOARDS:
        raise InvalidTargetError(f"board: there is no check for '{chip}'. Choose {', '.join(BOARDS)}.")
    command = compiler or COMPILER
    found = shutil.which(command)
    if found is None and compiler is not None:
        raise MissingToolError(f"board: the compiler '{compiler}' is not installed. Name another one with --compiler.")
    files.check_folder(to)
    runtime = runtime_folder()
    content: dict[Path, bytes] = {
        to / f"{PROGRAM}.c": (runtime / "board" / f"{PROGRAM}.c").read_bytes(),
        to / "cases.h": cases_header().encode(),
        to / "README.md": _README.encode(),
    }
    for name in ("NeutronMatmul.h", "NeutronErrors.h"):
        content[to / name] = (runtime / "include" / name).read_bytes()
    files.write(content, to)
    if found is not None:
        done = subprocess.run([found, *FLAGS], cwd=to, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise MissingToolError(f"board: {command} can't compile {PROGRAM}.c: {done.stderr.strip()[:500]}")
    line = f"{command} {' '.join(FLAGS)}"
    compiled = (
        f"{to / PROGRAM} is compiled.\n"
        if found is not None
        else f"{COMPILER} is not installed. Compile the program in {to}, on the board with gcc or here:\n\n  {line}\n\n"
    )
    text = (
        f"{compiled}Copy {to if found is None else to / PROGRAM} to the board, run it there, and copy check.json back:\n\n"
        f"  ./{PROGRAM}\n\nThen, here:\n\n  openneutron board read check.json\n"
    )
    names = sorted(path.name for path in content) + ([PROGRAM] if found is not None else [])
    output.show(text, "board make", {"folder": str(to), "files": names, "is_compiled": found is not None}, as_json)


@app.command("read")
def read(
    check: Annotated[str, typer.Argument(metavar="FILE", help="The check.json that the program wrote on the board.")],
    to: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="CHIP.toml", help="The chip file; default: imx95-board.toml beside FILE."
        ),
    ] = None,
    as_json: output.AsJson = False,
) -> None:
    """State what a board's check found, and write a chip file for it.

    The file has what was measured in place of what is published or assumed. ``openneutron compile --target CHIP.toml --converter driver``
    compiles for it.
    """
    path = files.existing(check)
    found = read_findings(path)
    text = "\n".join(sentences(found))
    chip = None if found.form is None else to or path.with_name("imx95-board.toml")
    if chip is not None:
        files.write({chip: chip_text(found, chip.stem).encode()})
        text += f"\n\nCompile for the board with its chip file:\n\n  openneutron compile MODEL --target {chip} --converter driver\n"
    data = {"file": check, "chip": None if chip is None else str(chip), **_facts(found)}
    output.show(text, "board read", data, as_json)


def _facts(found: Findings) -> Mapping[str, Any]:
    """Return the findings as values for JSON."""
    return {
        "kernel": found.kernel,
        "system": found.system,
        "library": found.library,
        "memory_mib": found.memory_mib,
        "release": found.form,
        "int4_release": found.int4_form,
        "products": [
            {
                "kind": result.case.kind,
                "m": result.case.m,
                "k": result.case.k,
                "n": result.case.n,
                "group": result.case.group,
                "is_right": result.is_right,
            }
            for result in found.results
        ],
        "rescaled": [
            {
                "result_bytes": size,
                "rounding": rescaled.rounding,
                "zero_point": rescaled.zero_point,
                "saturation": rescaled.saturation,
                "nearest": rescaled.nearest,
                "differences": {str(difference): count for difference, count in rescaled.differences.items()},
            }
            for size, rescaled in sorted(found.rescaled.items())
        ],
        "times": None
        if found.times is None
        else {
            "overhead_us": found.times.overhead_us,
            "bytes_per_ns": found.times.bytes_per_ns,
            "products_per_ns": found.times.products_per_ns,
        },
        "findings": sentences(found),
    }


_README = f"""# The check of an i.MX 95 board

`{PROGRAM}` runs matrix products on the NPU through NXP's `libNeutronDriver.so` and writes what it sees to `check.json`:

    ./{PROGRAM} [-o check.json] [--quick] [libNeutronDriver.so]

It takes a few minutes, less with `--quick`. The library is the given one, else one beside the program, else the system's. If the
program is not compiled yet:

    {COMPILER} {" ".join(FLAGS)}

The file goes to `openneutron board read check.json`. The program reads the versions of the system, and the sizes and checksums of the
library and of the firmware's files; it sends nothing.
"""
