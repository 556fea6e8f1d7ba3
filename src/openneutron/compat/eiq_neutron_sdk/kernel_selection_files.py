# SPDX-License-Identifier: BSD-3-Clause
"""Kernel selections as files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from openneutron import files
from openneutron.errors import InvalidOptionError
from openneutron.isa import kernel_selection


def merge_kernel_selection_files(
    input_files: Sequence[str | os.PathLike[str]], output_file: str | os.PathLike[str]
) -> None:
    """Writes one kernel selection with the kernels of all of these.

    Raises InvalidProgramError where a file is no kernel selection or they are of several versions, InvalidOptionError
    where one can't be read or the result can't be written.
    """
    parsed = {}
    for path in map(Path, input_files):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise InvalidOptionError(f"'{path}' can't be read: {error.strerror}.") from error
        parsed[str(path)] = kernel_selection.parse(str(path), text)
    files.write({Path(output_file): kernel_selection.merge(parsed).text().encode()})
