# SPDX-License-Identifier: BSD-3-Clause
"""The known targets, and kernel selections as files, under the SDK's names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from openneutron import targets
from openneutron.device import files
from openneutron.device.converter import kernel_selections
from openneutron.features.compat.eiq_neutron_sdk.neutron_converter import NeutronTarget, getNeutronTarget


def merge_kernel_selection_files(
    input_files: Sequence[str | os.PathLike[str]], output_file: str | os.PathLike[str]
) -> None:
    """Write a kernel selection that has the kernels of all ``input_files``.

    Raises InvalidProgramError where a file is no kernel selection, or where the files are of several versions. Raises
    InvalidOptionError where a file can't be read or the result can't be written.
    """
    files.write({Path(output_file): kernel_selections.merged(map(Path, input_files)).text().encode()})


def isNeutronTarget(name: str) -> bool:
    """Return whether the target is known; ``openneutron.targets`` has the targets that can be compiled for."""
    return name in targets.NPUS


def getNeutronTargets() -> list[NeutronTarget]:
    """Return all known targets."""
    return [getNeutronTarget(name) for name in targets.NPUS]
