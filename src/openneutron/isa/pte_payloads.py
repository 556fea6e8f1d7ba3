# SPDX-License-Identifier: BSD-3-Clause
"""The programs of this project inside a ``.pte`` file."""

from __future__ import annotations

from openneutron.errors import InvalidProgramError
from openneutron.isa import payload, pte
from openneutron.isa.payload import Payload


def payloads(data: bytes, name: str = "model.pte") -> list[tuple[str, Payload]]:
    """Return the verified payloads of the NeutronBackend delegates, each with a title; empty without such delegates.

    Raises InvalidProgramError where the file or one of its payloads is damaged.
    """
    found = []
    for index, delegate in enumerate(pte.delegates(data, name)):
        if delegate.backend == pte.BACKEND_ID:
            title = f"{delegate.method}, delegate {index}"
            try:
                found.append((title, payload.parse(delegate.payload)))
            except InvalidProgramError as error:
                raise InvalidProgramError(f"'{name}' ({title}): {error}") from error
    return found
