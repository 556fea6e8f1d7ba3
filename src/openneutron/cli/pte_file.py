# SPDX-License-Identifier: BSD-3-Clause
"""What of a ``.pte`` file is ours."""

from __future__ import annotations

from pathlib import Path

from openneutron.isa import payload, pte
from openneutron.isa.payload import Payload


def payloads(path: Path, data: bytes) -> list[tuple[str, Payload]]:
    """The NeutronBackend delegates' payloads, verified, each with a title; none where there are no such delegates.

    Raises InvalidProgramError where the file, or one of them, is damaged.
    """
    return [
        (f"{found.method}, delegate {index}", payload.parse(found.payload))
        for index, found in enumerate(pte.delegates(data, path.name))
        if found.backend == pte.BACKEND_ID
    ]
