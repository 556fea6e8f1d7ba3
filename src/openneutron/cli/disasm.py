# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron disasm``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from openneutron import litert
from openneutron.cli import output
from openneutron.cli.model_source import given_file
from openneutron.device import pte
from openneutron.errors import InvalidProgramError
from openneutron.isa import Program, decode, listing, payload, rows
from openneutron.litert.neutron_graph import find


def disasm(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A compiled .tflite or .pte, or a delegate's payload; - for one on standard input."
        ),
    ],
    as_json: output.AsJson = False,
) -> None:
    """List the programs in a compiled file.

    The listing has the buffers, the operators with their parameters, and the instructions.
    """
    path = given_file(file)
    listed = [(title, listing(decode(program))) for title, program in programs(path)]
    if not as_json:
        for title, text in listed:
            print(f"; {title}")
            print(text)
        return
    data = {"file": path.name, "programs": [{"name": title, "listing": text} for title, text in listed]}
    output.show("", "disasm", data, as_json)


def programs(path: Path) -> list[tuple[str, Program]]:
    """Return the programs in a file, each with its title.

    Raises InvalidProgramError or InvalidModelError where the file is damaged, or has no program of this project in it.
    """
    if path.suffix == ".tflite":
        nodes = find(litert.read(path).model)
        if not nodes:
            raise InvalidProgramError(
                f"'{path.name}' has no NeutronGraph in it. Compile it first: openneutron compile {path}."
            )
        return [(f"operator {node.operator}: {node.name}", node.program) for node in nodes]
    data = path.read_bytes()
    if path.suffix == ".pte" or data[4:8] == pte.FILE_IDENTIFIER:
        return [(title, contents.program) for title, contents in pte.own_payloads(data, path.name)]
    if rows.MAGIC.to_bytes(4, "little") not in data:
        raise InvalidProgramError(
            f"'{path.name}' is no compiled .tflite or .pte, nor a delegate's payload: there is no Neutron microcode in it."
        )
    return [(path.name, payload.parse(data).program)]
