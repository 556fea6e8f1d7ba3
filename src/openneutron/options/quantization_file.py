# SPDX-License-Identifier: BSD-3-Clause
"""Read and write quantization files: the options of a model's quantization as JSON (docs/how-to/find-the-layer.md)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from openneutron.errors import InvalidOptionError
from openneutron.options.flags import did_you_mean

FILE_VERSION = 1

FILE_ENTRIES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "keep_float": (lambda value: _is_list(value, str), "a list of names"),
    "activations": (lambda value: isinstance(value, str), "a text"),
    "layer_activations": (lambda value: _is_pairs(value), "a list of pairs of a name and a type"),
    "observer": (lambda value: isinstance(value, str), "a text"),
    "layer_observers": (lambda value: _is_pairs(value), "a list of pairs of a name and an observer"),
    "equalize": (lambda value: isinstance(value, bool), "true or false"),
    "smooth": (
        lambda value: value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)),
        "a number",
    ),
    "adaptive_rounding": (lambda value: isinstance(value, bool), "true or false"),
    "correct_biases": (lambda value: isinstance(value, bool), "true or false"),
}
"""The entries other than the version: fields of QuantizationOptions, with a check and its words."""


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)


def _is_pairs(value: Any) -> bool:
    return _is_list(value, list) and all(len(item) == 2 and _is_list(item, str) for item in value)


def _checked(subject: str, found: Any) -> dict[str, Any]:
    """Return the fields of QuantizationOptions that a file gives. Raises InvalidOptionError for a wrong entry."""
    if not isinstance(found, dict):
        raise InvalidOptionError(f"{subject}: it holds a {type(found).__name__}; a JSON object is needed here.")
    if found.get("version") != FILE_VERSION:
        raise InvalidOptionError(
            f"{subject}: its version is {found.get('version')!r}; this release reads {FILE_VERSION}. Make the file again."
        )
    given = {name: value for name, value in found.items() if name != "version"}
    for name, value in given.items():
        if name not in FILE_ENTRIES:
            raise InvalidOptionError(f"{subject}: '{name}' is unknown.{did_you_mean(name, FILE_ENTRIES)}")
        is_valid, words = FILE_ENTRIES[name]
        if not is_valid(value):
            raise InvalidOptionError(f"{subject}: '{name}' is {value!r}; it must be {words}.")
    return {
        name: tuple(tuple(item) if isinstance(item, list) else item for item in value)
        if isinstance(value, list)
        else value
        for name, value in given.items()
    }


def entries_in(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the fields of QuantizationOptions that a file gives. Raises InvalidOptionError where the file can't be read, or has a
    wrong entry."""
    subject = f"quantization file '{os.fspath(path)}'"
    try:
        found = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidOptionError(f"{subject}: it can't be read: {words}. Give a JSON file.") from error
    return _checked(subject, found)


def entries_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a file with these fields; fields that a file has no entry for are left out."""
    plain = json.loads(json.dumps({name: value for name, value in fields.items() if name in FILE_ENTRIES}))
    return {"version": FILE_VERSION, **plain}
