# SPDX-License-Identifier: BSD-3-Clause
"""Read a ``.pt2`` file of torch.export.save as data: nothing in the file is executed.

``torch.export.load`` (2.13) unpickles sample inputs, weights and constants of some kinds, and passes the JSON of the
program to ``exec``, ``eval`` and imports (exported_text.py). This module checks the archive first and gives torch's own
loader exactly the checked bytes.
"""

from __future__ import annotations

import importlib
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.pt2_archive._package import PT2ArchiveReader, load_pt2

from openneutron.device.third_party import suppressed
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.pytorch.source.exported_text import NeedsTrust, NotRegistered, check_program, unsafe_payload
from openneutron.pytorch.source.file_kind import what_it_is

MODEL = "model"
"""The name of the program in the archive of torch.export.save."""

PROGRAM = f"models/{MODEL}.json"
PAYLOADS = {
    "weight": f"data/weights/{MODEL}_weights_config.json",
    "constant": f"data/constants/{MODEL}_constants_config.json",
}
PICKLES = (f"data/sample_inputs/{MODEL}.pt", f"data/weights/{MODEL}.pt", f"data/constants/{MODEL}.pt")
"""Records that torch loads with ``weights_only``, and without where that fails; the last two are from older
releases."""

TRUST = "If you know who made the file, load it with --trust (trust=True)"


def load_exported(path: Path, trust: bool = False, imports: Sequence[str] = ()) -> ExportedProgram:
    """Return the program in a ``.pt2`` file that ``torch.export.save`` wrote.

    Nothing in the file is executed, unless ``trust`` permits it. ``imports`` are modules to import first, which is
    code: they register the classes of the program's inputs and outputs with pytree, or the operators of a library.

    Raises InvalidModelError where the file is no such program, or can only be loaded by running code in it;
    InvalidOptionError where a module can't be imported.
    """
    for module in imports:
        _import(module)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidModelError(f"'{path}' can't be read: {error.strerror}.") from error
    try:
        if not trust:
            _check(data)
            program = load_pt2(io.BytesIO(data)).exported_programs[MODEL]
        else:
            with suppressed():  # torch's own warning of this fails to be formatted
                program = torch.export.load(io.BytesIO(data))
        program.module(check_guards=False)  # checks what the loader does not, such as the list of modules
        return program
    except NeedsTrust as reason:
        raise InvalidModelError(
            f"'{path.name}' is not loaded: {reason}, so that loading it may run code of whoever made it. {TRUST}, or export the "
            "model again without that."
        ) from reason
    except NotRegistered as reason:
        raise InvalidModelError(
            f"'{path.name}': {reason}. Name the module that registers it: --import {reason.module} (imports=)."
        ) from reason
    except Exception as error:  # torch's loader declares none of what a damaged file makes it raise
        raise InvalidModelError(
            f"'{path.name}' {what_it_is(path)}; a program that torch.export.save wrote is needed here: "
            "torch.export.save(torch.export.export(model, inputs), 'model.pt2')."
        ) from error


def _import(module: str) -> None:
    """Import a user's module. The current folder is searched last, so that its modules hide no installed module."""
    here = str(Path.cwd())
    sys.path.append(here)
    try:
        importlib.import_module(module)
    # A user's module may raise anything, and end with sys.exit.
    except (Exception, SystemExit) as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())
        raise InvalidOptionError(f"--import: '{module}' can't be imported: {words}.") from error
    finally:
        sys.path.remove(here)


def _check(data: bytes) -> None:
    """Check every record that torch's loader interprets, parsed in the loader's way."""
    reader = PT2ArchiveReader(io.BytesIO(data))
    names = reader.get_file_names()
    if any(name.startswith("data/aotinductor/") for name in names):
        raise NeedsTrust("it holds native code that AOTInductor compiled")
    if [name for name in names if name.startswith("models/")] != [PROGRAM]:
        raise ValueError(f"not one program under {PROGRAM}")
    for name in PICKLES:
        if name in names:
            _check_pickle(name, reader.read_bytes(name))
    for what, name in PAYLOADS.items():
        if name in names:
            for entry in unsafe_payload(json.loads(reader.read_string(name))):
                raise NeedsTrust(f"its {what} {entry!r} is a pickled object")
    check_program(reader.read_bytes(PROGRAM))


def _check_pickle(name: str, content: bytes) -> None:
    """Raise NeedsTrust where a record holds more than tensors, numbers, text and containers of these."""
    if not content:
        return
    try:
        torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:
        raise NeedsTrust(f"'{name}' in it is a pickle {_named(content)}") from error


def _named(content: bytes) -> str:
    try:
        found: list[Any] = torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(content))
    except Exception:  # damaged, or of a protocol that torch does not take apart
        found = []
    listed = ", ".join(sorted(map(str, found))[:NAMES_SHOWN])
    return f"that names {listed}" if found else "of more than tensors"


NAMES_SHOWN = 4
