# SPDX-License-Identifier: BSD-3-Clause
"""Recognize the kinds of files that PyTorch writes, without importing PyTorch."""

from __future__ import annotations

import zipfile
from pathlib import Path


def what_it_is(path: Path) -> str:
    """Return the kind of a file for a message, such as ``is a TorchScript file``. The names in its archive decide."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.partition("/")[2] for name in archive.namelist()]
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return "is no file of PyTorch's, or damaged"
    if "constants.pkl" in names and any(name.startswith("code/") for name in names):
        return "is a TorchScript file"
    if "data.pkl" in names:
        return "is a file that torch.save wrote, with weights or a pickled module in it"
    return "is damaged, or of another version of PyTorch"
