# SPDX-License-Identifier: BSD-3-Clause
"""Who turns a partition into a NeutronGraph: this project's compiler (``open``), or NXP's SDK (``eiq``)."""

from __future__ import annotations

import difflib

from openneutron.converter.conversion import Conversion, Converter, ConverterOptions
from openneutron.converter.eiq import EiqConverter
from openneutron.converter.open import OpenConverter
from openneutron.errors import InvalidOptionError

OPEN = OpenConverter.name
CONVERTERS: dict[str, Converter] = {item.name: item for item in (OpenConverter(), EiqConverter())}


def get(name: str) -> Converter:
    """The converter of this name. Raises InvalidOptionError where there is none."""
    if name not in CONVERTERS:
        near = difflib.get_close_matches(name, CONVERTERS, 1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise InvalidOptionError(f"converter: '{name}' is unknown; there are {', '.join(CONVERTERS)}.{hint}")
    return CONVERTERS[name]


__all__ = ["CONVERTERS", "OPEN", "Conversion", "Converter", "ConverterOptions", "get"]
