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
from openneutron.features.export.bundle import Bundle, export_bundle
from openneutron.features.export.forms import FORMS
from openneutron.features.export.readme import WORDS
from openneutron.features.report.table import Column, Table, right, size_text
from openneutron.options import DataOptions


def export_model(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="A compiled .pte, or a compiled .tflite that is one NeutronGraph; or several of these.",
        ),
    ],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The folder: new, empty, or an earlier export.")],
    form: Annotated[
        str,
        typer.Option(
            "--for",
            "--port",
            metavar="NAME",
            help=f"The form of the folder: {', '.join(FORMS)}; default: that of the target, if it is a CPU, else cortex_m33.",
        ),
    ] = "",
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
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="For a form with NXP's driver: the .tflite that NXP's converter has converted. LiteRT computes the example's "
            "expected outputs from it.",
        ),
    ] = None,
    preprocess: Annotated[
        str | None,
        typer.Option(metavar="STEPS", help="The preprocessing of --golden; default: that of the calibration."),
    ] = None,
    as_json: output.AsJson = False,
) -> None:
    """Write compiled models as a folder that firmware is built from.

    The folder has the models, the kernels that they call, the driver, a C API, an example that checks itself, and the files of
    a build system or package.
    """
    bundle = export_bundle(
        models,
        to,
        form=form,
        force=force,
        golden=golden,
        reference=reference,
        data=DataOptions(preprocess=preprocess),
    )
    data = {
        "folder": str(bundle.folder),
        "port": bundle.form,
        "kernels": list(bundle.kernels),
        "files": list(bundle.files),
        "memory": bundle.memory,
    }
    for text in _notes(bundle):
        output.note(text)
    output.show(_summary(bundle), "export", data, as_json)


def _notes(bundle: Bundle) -> Iterator[str]:
    """Yield notes about the chips of the models. One is for a chip whose memory does not hold the constants. Another
    is for a bundle in the first form of ``FORMS`` where the chip has another form."""
    for target in dict.fromkeys(bundle.targets):
        if target is None:
            continue
        name, home = target.name, target.constants_home
        size, there = bundle.memory["microcode"] + bundle.memory["weights"], int(home.size.value * 1024)
        if size > there:
            yield f"microcode and weights take {size_text(size)}; {name} has {size_text(there)} of {home.name}"
        if target.port.name != bundle.form and bundle.form == next(iter(FORMS)):
            yield f"the model was compiled for {name}, whose form is {target.port.name}: --for {target.port.name}"


def _summary(bundle: Bundle) -> Group:
    form = FORMS[bundle.form]
    rows = [(WORDS[name], f"{size:,} bytes") for name, size in bundle.memory.items()]
    table = Table.of_rows((Column(style="cyan"), right("")), rows, gap=4, has_headings=False)
    return Group(
        Text.assemble((str(bundle.folder), "bold"), f": {len(bundle.files)} files{form.words}"),
        table,
        Text(f"kernels: {', '.join(bundle.kernels)}" if bundle.kernels else "kernels: those of NXP's firmware"),
        Text(f"next: {form.next_step.format(folder=shlex.quote(str(bundle.folder)))}"),
    )
