# SPDX-License-Identifier: BSD-3-Clause
"""The converters of a partition to a NeutronGraph: this project's compiler (``open``), or NXP's SDK (``eiq``)."""

from __future__ import annotations

from openneutron.converter.conversion import Conversion, Converter, OpenConverter
from openneutron.converter.eiq import EiqConverter
from openneutron.flags import check_choice

CONVERTERS: dict[str, Converter] = {item.name: item for item in (OpenConverter(), EiqConverter())}


def get(name: str) -> Converter:
    """Return the converter of this name. Raises InvalidOptionError for an unknown name."""
    check_choice("converter", name, tuple(CONVERTERS))
    return CONVERTERS[name]


__all__ = ["CONVERTERS", "Conversion", "Converter", "get"]
