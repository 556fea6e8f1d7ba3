# SPDX-License-Identifier: BSD-3-Clause
"""The error of each misuse of the API."""

from __future__ import annotations

from tests.cortex_m33.cases import Misuse

CHECK_AND_PREPARE = {
    Misuse.NULL_CONFIG: ("NULL", "NULL"),
    Misuse.NULL_MICROCODE: ("NULL", "NULL"),
    Misuse.NULL_WEIGHTS: ("NULL", "NULL"),
    Misuse.NULL_HANDLE: ("accepted", "NULL"),
    Misuse.NULL_CONTEXT: ("accepted", "NULL"),
    Misuse.ODD_MICROCODE: ("ALIGNMENT", "ALIGNMENT"),
    Misuse.ODD_WEIGHTS: ("ALIGNMENT", "ALIGNMENT"),
    Misuse.ODD_CONTEXT: ("accepted", "ALIGNMENT"),
    Misuse.NOT_INITIALISED: ("accepted", "STATE"),
}
"""The errors of neutronModelCheck and of neutronModelPrepare."""

RUN = {
    Misuse.SUSPENDED: "STATE",
    Misuse.UNPREPARED: "HANDLE",
    Misuse.NO_HANDLE: "HANDLE",
    Misuse.NULL_DATA: "NULL",
    Misuse.NULL_INPUTS: "NULL",
    Misuse.NULL_INPUT: "NULL",
    Misuse.NULL_OUTPUTS: "NULL",
    Misuse.NULL_OUTPUT: "NULL",
    Misuse.NULL_SCRATCH: "NULL",
    Misuse.NULL_PREFETCH: "NULL",
    Misuse.ODD_SCRATCH: "ALIGNMENT",
    Misuse.ODD_PREFETCH: "ALIGNMENT",
}
"""The error of neutronRunBlocking."""
