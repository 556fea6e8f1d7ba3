# SPDX-License-Identifier: BSD-3-Clause
"""Programs that torch.export.save wrote, read back."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.export import ExportedProgram

from openneutron.errors import InvalidModelError


def load_exported(path: Path, trust: bool = False) -> ExportedProgram:
    """The program in a ``.pt2``. ``trust``: the file comes from somebody whose code may run here.

    Raises InvalidModelError where it can't be read.
    """
    del trust  # torch.export.load unpickles in either case
    try:
        return torch.export.load(path)
    except Exception as error:  # torch.export.load declares none of what a damaged file makes it raise
        raise InvalidModelError(
            f"'{path.name}' can't be read; a program that torch.export.save wrote is what is needed here: "
            "torch.export.save(torch.export.export(model, inputs), 'model.pt2')."
        ) from error
