# SPDX-License-Identifier: BSD-3-Clause
"""Read options from a file: ``openneutron.toml``, or ``[tool.openneutron]`` of ``pyproject.toml``.

The file is that of the nearest folder, from the working folder upwards. Its keys are the names of options of a
compile, such as ``sram-budget``. An option on the command line precedes the same option in the file. Options that let
a model run code, ``--trust`` and ``--import``, and functions in a Python file can only be given on the command line:
entering a folder must not run its code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from inspect import Parameter
from pathlib import Path
from typing import Any

from openneutron import targets
from openneutron.cli.values import reader
from openneutron.errors import InvalidOptionError, OpenNeutronError
from openneutron.options import CompileOptions, QuantizationOptions
from openneutron.options.flags import Flag, did_you_mean, flags_of

FILE = "openneutron.toml"
PROJECT = "pyproject.toml"
TABLE = "tool.openneutron"
"""The table in ``pyproject.toml``."""

ON_THE_COMMAND_LINE = ("model", "trust", "imports")
"""Parameters of a model that no file sets."""

OF_DATA = ("calibration", "preprocess")
"""Parameters that may name a function in a Python file."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The options in a file, by their keys, with the file's text for the lines in messages."""

    path: Path
    table: str
    values: Mapping[str, Any]
    text: str = field(repr=False)

    def where(self, key: str) -> str:
        """Return the file and the line of a key; the file alone if no line with the key is found."""
        table = ""
        for number, line in enumerate(self.text.splitlines(), 1):
            if heading := re.match(r"\s*\[([^\[\]]+)\]", line):
                table = heading[1].replace(" ", "")
            elif table == self.table and re.match(rf"\s*([\"']?){re.escape(key)}\1\s*[=.]", line):
                return f"{self.path}, line {number}"
        return str(self.path)


def found(folder: Path) -> Configuration | None:
    """Return the options of the nearest file, from a folder upwards; None if no folder has such a file.
    ``openneutron.toml`` precedes ``pyproject.toml``, which counts only if it has options in its table.

    Raises InvalidOptionError where a file is not valid TOML, or has something else in place of the table.
    """
    for place in (folder, *folder.parents):
        for name, table in ((FILE, ""), (PROJECT, TABLE)):
            path = place / name
            if not path.is_file():
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            if table and table not in text:
                continue  # the file may be broken for reasons that do not concern this command
            values = _parsed(path, text)
            for part in table.split(".") if table else ():
                values = values.get(part, {})
                if not isinstance(values, dict):
                    raise InvalidOptionError(f"{path}: '{part}' is {values!r}; it must be a table of options.")
            if values or not table:
                return Configuration(path, table, values, text)
    return None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    import tomllib  # here, since most folders have no such file

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidOptionError(f"{path}: it is no TOML: {error}.") from error


def defaults(given: Configuration, parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return the options in a file as defaults of a command: values in the form of the command line, by the names of the command's parameters.

    Raises InvalidOptionError, with file and line, for an unknown key or an unusable value.
    """
    known = {name.replace("_", "-"): name for name in parameters if name not in ON_THE_COMMAND_LINE}
    flags = {**flags_of(CompileOptions), **flags_of(QuantizationOptions)}
    made = {}
    for key, value in given.values.items():
        name = known.get(key.replace("_", "-"))
        if name is None:
            raise InvalidOptionError(
                f"{given.where(key)}: '{key}' is unknown; the keys are {', '.join(known)}.{did_you_mean(key, known)}"
            )
        try:
            made[name] = _text(value, parameters[name], given.path.parent)
            if name in flags:
                _check(flags[name], made[name])
        except OpenNeutronError as error:
            raise InvalidOptionError(f"{given.where(key)}: {key}: {error}") from error
    return made


def _text(value: Any, parameter: Parameter, folder: Path) -> Any:
    """Return a value of the file as text of the command line, or as a list of texts. The value of a switch stays a
    bool. Relative paths start at the file's folder.

    Raises InvalidOptionError for an unusable value.
    """
    read = reader(parameter.annotation)
    if read is None:
        if not isinstance(value, bool):
            raise InvalidOptionError(f"it is {value!r}; it is true or false.")
        return value
    several = "list[" in str(parameter.annotation)
    if several and isinstance(value, str):
        value = [value]
    items = value if several and isinstance(value, list) else [value]
    if any(isinstance(item, bool) or not isinstance(item, (str, int, float)) for item in items):
        raise InvalidOptionError(f"it is {value!r}; it is a text{' or a list of texts' if several else ''}.")
    if parameter.name in OF_DATA and any(".py:" in str(item) for item in items):
        raise InvalidOptionError("a function in a Python file is named on the command line alone, since it runs code.")
    is_path = (
        read is Path or parameter.name == "calibration" or (parameter.name == "target" and targets.is_file(str(value)))
    )
    texts = [str(folder / item) if is_path else str(item) for item in items]
    if isinstance(read, type) and issubclass(read, Enum):
        choices = [choice.value for choice in read]
        for item in texts:
            if item not in choices:
                raise InvalidOptionError(
                    f"'{item}' is unknown; there are {', '.join(choices)}.{did_you_mean(item, choices)}"
                )
    return texts if several else texts[0]


def _check(flag: Flag, value: Any) -> None:
    flag.check(flag.read(value) if isinstance(value, str) else value)
