# SPDX-License-Identifier: BSD-3-Clause
"""What of a ``.pte`` file is ours."""

from __future__ import annotations

from pathlib import Path

from openneutron.errors import InvalidProgramError
from openneutron.isa import payload, pte
from openneutron.isa.payload import Payload


def payloads(path: Path, data: bytes) -> list[tuple[str, Payload]]:
    """The NeutronBackend delegates' payloads, verified, each with a title; none where there are no such delegates.

    Raises InvalidProgramError where the file, or one of them, is damaged.
    """
    found = []
    for index, delegate in enumerate(pte.delegates(data, path.name)):
        if delegate.backend == pte.BACKEND_ID:
            title = f"{delegate.method}, delegate {index}"
            try:
                found.append((title, payload.parse(delegate.payload)))
            except InvalidProgramError as error:
                raise InvalidProgramError(f"'{path.name}' ({title}): {error}") from error
    return found
