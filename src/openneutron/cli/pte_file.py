# SPDX-License-Identifier: BSD-3-Clause
"""What of a ``.pte`` file is ours."""

from __future__ import annotations

from pathlib import Path

from openneutron import pte
from openneutron.isa.payload import Payload


def payloads(path: Path, data: bytes) -> list[tuple[str, Payload]]:
    """Return the file's payloads; see ``pte.payloads``."""
    return pte.payloads(data, path.name)
