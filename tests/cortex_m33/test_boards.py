# SPDX-License-Identifier: BSD-3-Clause
"""The kernels on other cores than the Cortex-M33: every byte is the portable kernels'."""

from __future__ import annotations

import struct

from tests.cortex_m33 import random_calls, random_convolutions
from tests.cortex_m33.boards import CORTEX_M55, TRAPPING_CORTEX_M4
from tests.cortex_m33.firmware import HERE, RUNTIME, SPEED, execute, image, library


def test_a_build_without_unaligned_accesses_runs_where_they_are_faults() -> None:
    """CCR.UNALIGN_TRP is set, and the inputs and outputs begin at any address."""
    random_calls.compare(random_calls.KERNELS, 0, 12, board=TRAPPING_CORTEX_M4)


def test_convolutions_with_helium() -> None:
    """``python -m tests.cortex_m33.every_board`` does so with clang too."""
    random_convolutions.compare("", SPEED, "gcc", CORTEX_M55)


def test_every_kernel_with_helium() -> None:
    random_calls.compare(random_calls.KERNELS, 0, 40, SPEED, CORTEX_M55)


def test_rescaling_with_helium_rounds_as_the_portable_code() -> None:
    """Every shift, with values and multipliers at the edges, ties, and random ones."""
    archive = library(SPEED, only=(RUNTIME / "kernels" / "check.c",), board=CORTEX_M55)
    firmware = image(archive, (HERE / "rescaling.c", HERE / "board.c"), board=CORTEX_M55)
    different, count = struct.unpack("<2I", execute(firmware, {}).files["results"])
    assert (different, count) == (0, 81 * 400 * 8)
