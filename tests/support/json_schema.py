# SPDX-License-Identifier: BSD-3-Clause
"""The part of JSON Schema that docs/reference/json.schema.json uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

TYPES: dict[str, Any] = {
    "string": str,
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
    "integer": int,
    "number": (int, float),
}
KEYWORDS = {"type", "properties", "required", "additionalProperties", "items", "anyOf", "oneOf", "const"}
COMMENTS = {"$schema", "$comment", "title"}


def violations(value: Any, schema: dict[str, Any], place: str = "$") -> Iterator[str]:
    """Yield each violation of the schema, with its place in the value."""
    assert schema.keys() <= KEYWORDS | COMMENTS, schema.keys()
    if "const" in schema and value != schema["const"]:
        yield f"{place}: it is {value!r}, not {schema['const']!r}"
    for keyword in ("anyOf", "oneOf"):
        found = [list(violations(value, choice, place)) for choice in schema.get(keyword, [])]
        fitting = sum(not each for each in found)
        if found and (fitting == 0 or (keyword == "oneOf" and fitting > 1)):
            yield f"{place}: {fitting} choices fit; the nearest: {min(found, key=len)[:3]}"
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        yield f"{place}: {value!r} is no {' or '.join(kinds)}"
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from violations(item, schema.get("items", {}), f"{place}[{index}]")
    if isinstance(value, dict):
        yield from (f"{place}: '{name}' is absent" for name in schema.get("required", []) if name not in value)
        rest = schema.get("additionalProperties", {})
        for name, item in value.items():
            known = schema.get("properties", {}).get(name, rest)
            if known is False:
                yield f"{place}: '{name}' is unknown"
            else:
                yield from violations(item, known, f"{place}.{name}")


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
