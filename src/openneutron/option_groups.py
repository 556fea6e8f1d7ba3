# SPDX-License-Identifier: BSD-3-Clause
"""The parameters that take objects with options, and the object that a keyword belongs to."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Mapping

from openneutron.options import (
    CompileOptions,
    DataOptions,
    DelegationOptions,
    LoadingOptions,
    OutputOptions,
    QuantizationOptions,
)

GROUPS: Mapping[str, type] = {
    "options": CompileOptions,
    "quantization": QuantizationOptions,
    "delegation": DelegationOptions,
    "data": DataOptions,
    "loading": LoadingOptions,
    "outputs": OutputOptions,
}
"""The parameters whose values are objects with options, and the classes of these objects."""


def suggestion(keyword: str, parameters: Collection[str]) -> str:
    """Return the end of a message about an unknown keyword: the object that the keyword belongs to, or the nearest
    known one; empty where none is near.

    >>> suggestion("sram_buget", ["options", "name"])
    ' Did you mean options=CompileOptions(sram_budget=...)?'
    """
    known = {parameter: parameter for parameter in parameters}
    for parameter, group in GROUPS.items():
        if parameter in parameters:
            known |= {item.name: f"{parameter}={group.__name__}({item.name}=...)" for item in dataclasses.fields(group)}
    if keyword in known:
        return f" Pass {known[keyword]}."
    near = difflib.get_close_matches(keyword, known, 1)
    return f" Did you mean {known[near[0]]}?" if near else ""
