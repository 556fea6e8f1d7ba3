# SPDX-License-Identifier: BSD-3-Clause
"""The parameters that take objects with options, and the object that a keyword belongs to."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Mapping
from typing import Any

from openneutron.errors import InvalidOptionError
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


def as_group(parameter: str, given: Any) -> Any:
    """Return the value of a parameter as its object with options; a dict has the options by name.

    Raises InvalidOptionError for an unknown option in a dict, and for a value of another type.

    >>> as_group("data", {"sample_rate": 16000}).sample_rate
    16000
    """
    group = GROUPS[parameter]
    if isinstance(given, group):
        return given
    if not isinstance(given, Mapping):
        raise InvalidOptionError(
            f"{parameter}: it is a {type(given).__name__}. Pass openneutron.{group.__name__}(...)."
        )
    known = [item.name for item in dataclasses.fields(group)]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f"Did you mean '{near[0]}'?" if near else f"There are {', '.join(known)}."
            raise InvalidOptionError(f"{parameter}: '{name}' is no field of {group.__name__}. {hint}")
    return group(**given)
