# SPDX-License-Identifier: BSD-3-Clause
"""What of a ``.pte`` file is ours."""

from __future__ import annotations

from pathlib import Path

from openneutron.isa import pte_payloads
from openneutron.isa.payload import Payload


def payloads(path: Path, data: bytes) -> list[tuple[str, Payload]]:
    """Return the file's payloads; see ``isa.pte_payloads``."""
    return pte_payloads.payloads(data, path.name)
