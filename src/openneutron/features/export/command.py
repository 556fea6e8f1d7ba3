# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron export``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from openneutron.cli import output
from openneutron.features.export import PORTS, Bundle, export_bundle
from openneutron.features.export.readme import Port
from openneutron.features.report.table import Column, Table, right
from openneutron.features.report.units import size_text
from openneutron.options import DataOptions

DEFAULT_PORT = "cortex_m33"

WORDS = {
    "microcode": "microcode, flash",
    "weights": "weights, flash",
    "arena": "arena, SRAM",
    "prefetch": "prefetch buffer, SRAM",
    "state": "state between runs, SRAM",
    "others": "driver's context and the like, SRAM",
    "callers": "inputs and outputs, the caller's memory",
}


def export_model(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A compiled .pte, or a compiled .tflite that is one NeutronGraph.")
    ],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The folder: new, empty, or an earlier export.")],
    port: Annotated[str, typer.Option(metavar="NAME", help=f"The build system: {', '.join(PORTS)}.")] = DEFAULT_PORT,
    force: Annotated[
        bool, typer.Option("--force", help="Write into a folder with other files, and over changed files.")
    ] = False,
    golden: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Data whose first sample the example runs on: a folder of pictures, WAV files or .npy files, a .npy or .npz file, "
            "or file.py:loader; default: random values.",
        ),
    ] = None,
    preprocess: Annotated[
        str | None,
        typer.Option(metavar="STEPS", help="The preprocessing of --golden; default: that of the calibration."),
    ] = None,
    as_json: output.AsJson = False,
) -> None:
    """Write a compiled model as a folder that firmware is built from.

    The folder has the model, the kernels that it calls, the driver, a C API, an example that checks itself, and the files of
    the build system.
    """
    bundle = export_bundle(model, to, port=port, force=force, golden=golden, data=DataOptions(preprocess=preprocess))
    data = {
        "folder": str(bundle.folder),
        "port": bundle.port,
        "kernels": list(bundle.kernels),
        "files": list(bundle.files),
        "memory": bundle.memory,
    }
    for text in _notes(bundle):
        output.note(text)
    output.show(_summary(bundle, PORTS[port]), "export", data, as_json)


def _notes(bundle: Bundle) -> Iterator[str]:
    """Yield notes about the chip of the model. One is for a chip whose memory does not hold the constants, another for
    a chip that has a port of its own."""
    if bundle.target is None:
        return
    name, home = bundle.target.name, bundle.target.constants_home
    size, there = bundle.memory["microcode"] + bundle.memory["weights"], int(home.size.value * 1024)
    if size > there:
        yield f"microcode and weights take {size_text(size)}; {name} has {size_text(there)} of {home.name}"
    if bundle.target.port.name != bundle.port and bundle.port == DEFAULT_PORT:
        yield f"the model was compiled for {name}, whose port is {bundle.target.port.name}: --port {bundle.target.port.name}"


def _summary(bundle: Bundle, port: Port) -> Group:
    rows = [(WORDS[name], f"{size:,} bytes") for name, size in bundle.memory.items()]
    table = Table.of_rows((Column(style="cyan"), right("")), rows, gap=4, has_headings=False)
    return Group(
        Text.assemble((str(bundle.folder), "bold"), f": {len(bundle.files)} files{port.words}"),
        table,
        Text(f"kernels: {', '.join(bundle.kernels)}"),
        Text(f"next: {port.next_step.format(folder=shlex.quote(str(bundle.folder)))}"),
    )
