# SPDX-License-Identifier: BSD-3-Clause
"""Describe the microcode by rows of fields, from which encoder, decoder, listing and C header follow."""

from openneutron.isa.listing import listing
from openneutron.isa.microcode import (
    Microcode,
    Program,
    Record,
    aligned,
    base,
    base_text,
    decode,
    encode,
    record,
    with_checksum,
)

__all__ = [
    "Microcode",
    "Program",
    "Record",
    "aligned",
    "base",
    "base_text",
    "decode",
    "encode",
    "listing",
    "record",
    "with_checksum",
]
