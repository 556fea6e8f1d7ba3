# SPDX-License-Identifier: BSD-3-Clause
"""Read values of parameters without typer's conversion where they need none.

typer converts every value with pydantic, whose import takes as long as the compile of a small model. A text that
stays a text or becomes a path, and a parameter that is not given, need no conversion.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import typer


def without_conversions(command: Any) -> None:
    """Let the parameters of a command, and of a group's commands, take simple values without a conversion. Other
    values go through typer's conversion."""
    for part in getattr(command, "commands", {}).values():
        without_conversions(part)
    annotations = {} if command.callback is None else inspect.signature(command.callback, eval_str=True).parameters
    command.get_params = partial(_parameters, command.get_params, annotations)


def _parameters(listed: Callable[[Any], list[Any]], annotations: Mapping[str, inspect.Parameter], context: Any) -> Any:
    """Return a command's parameters, with the parameter for help, which click creates when it is first needed. Replaces the conversion of each
    parameter by ``_value``."""
    items = listed(context)
    for item in items:
        if not isinstance(item.process_value, partial):
            read = reader(annotations[item.name].annotation) if item.name in annotations else None
            item.process_value = partial(_value, item, read, item.process_value)
    return items


def reader(annotation: Any) -> Callable[[str], Any] | None:
    """Return the function that reads a parameter's text: its parser, ``str``, ``Path``, or an enumeration; None for a
    parameter of another type."""
    info = [item for item in getattr(annotation, "__metadata__", ()) if hasattr(item, "parser")]
    kind = annotation.__origin__ if info else annotation
    for item in info:
        if item.parser is not None or getattr(item, "click_type", None) is not None:
            parser: Callable[[str], Any] | None = item.parser
            return parser
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(item for item in get_args(kind) if item is not type(None))
    if get_origin(kind) is list:
        kind = get_args(kind)[0]
    return kind if isinstance(kind, type) and (kind in (str, Path) or issubclass(kind, Enum)) else None


def _value(
    item: Any, read: Callable[[str], Any] | None, convert: Callable[[Any, Any], Any], context: Any, value: Any
) -> Any:
    """Return the value of a parameter; ``convert`` is typer's own conversion, which also reports what is missing or
    wrong."""
    several = item.multiple or item.nargs == -1
    if value is None and not item.required:
        absent = () if several else None
        return absent if item.callback is None else item.callback(context, item, absent)
    if item.callback is not None:
        return convert(context, value)
    if isinstance(value, Enum):
        return value
    texts = value if several else [value]
    if read is None or not texts or not all(isinstance(text, str) for text in texts):
        return convert(context, value)
    if isinstance(read, type) and issubclass(read, Enum):
        choices = [choice.value for choice in read]
        for text in texts:
            if text not in choices:
                from openneutron.device.files import nearest  # for messages alone

                listed = ", ".join(map(str, choices))
                raise typer.BadParameter(
                    f"'{text}' is unknown; there are {listed}.{nearest(text, choices)}", ctx=context, param=item
                )
    values = [read(text) for text in texts]
    return values if several else values[0]
