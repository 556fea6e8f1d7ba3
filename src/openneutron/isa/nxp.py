# SPDX-License-Identifier: BSD-3-Clause
"""Programs with NXP's microcode, of which the published words are read and no other."""

from __future__ import annotations

from dataclasses import dataclass

from openneutron.errors import InvalidProgramError
from openneutron.isa import rows
from openneutron.isa.microcode import Program, Record, record

PLACES = {
    0: {
        "microcode_size": 6,
        "weights_size": 7,
        "scratch_size": 9,
        "prefetch_size": 10,
        "input_count": 11,
        "output_count": 12,
    },
    1: {
        "microcode_size": 6,
        "weights_size": 7,
        "scratch_size": 9,
        "profile_size": 10,
        "debug_size": 11,
        "prefetch_size": 12,
        "input_count": 13,
        "output_count": 14,
    },
}
"""The places of the header's words that ExecuTorch's NXP delegate reads, by the version of the payload
(executorch/backends/nxp/runtime/NeutronBackend.cpp)."""

PROFILE_MASK = 0x7FFFFFFF
"""The bits of the word of the profile's size that are the size. That delegate ignores the highest bit."""

WORDS = 15


@dataclass(frozen=True, slots=True)
class NxpProgram(Program):
    """The three blobs of a NeutronGraph that NXP's converter made. ``payload_version`` is 0 or 1; 1 has buffers for a profile and
    for debugging."""

    payload_version: int = 1

    @property
    def header(self) -> Record:
        """Return the published words by this project's names, and 0 for the others. ``format_version`` is the second word."""
        words = [int.from_bytes(self.microcode[4 * at : 4 * at + 4], "little") for at in range(WORDS)]
        known = {name: words[place] for name, place in PLACES[self.payload_version].items()}
        known |= {"magic": words[0], "format_version": words[1], "kernels_size": len(self.kernels)}
        if "profile_size" in known:
            known["profile_size"] &= PROFILE_MASK
        return record(rows.HEADER, **{name: known.get(name, 0) for name in rows.HEADER.names})

    def verify(self) -> None:
        """Raise InvalidProgramError if the blobs do not have the sizes of the header."""
        if len(self.microcode) < 4 * WORDS:
            raise InvalidProgramError(
                f"microcode: it is {len(self.microcode)} bytes; its header alone has {4 * WORDS}."
            )
        header = self.header
        if header["magic"] != rows.MAGIC:
            raise InvalidProgramError(
                f"microcode: its first word is 0x{header['magic']:08x}; microcode starts with 0x{rows.MAGIC:08x}."
            )
        for name, blob in (("microcode", self.microcode), ("weights", self.weights)):
            if header[f"{name}_size"] > len(blob):
                raise InvalidProgramError(
                    f"program: its {name} is {len(blob)} bytes; its header says {header[f'{name}_size']}. The file is truncated."
                )
