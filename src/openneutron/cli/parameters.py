# SPDX-License-Identifier: BSD-3-Clause
"""Parameters of typer commands, made of the fields and flags of classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from enum import StrEnum
from inspect import Parameter
from typing import Annotated, Any, get_type_hints

import typer

from openneutron.errors import InvalidOptionError
from openneutron.options.flags import Flag, flags_of


def _varied(flag: Flag) -> Parameter:
    """Return the parameter of a flag with several values in one text."""
    declared = flag.declared
    values = [*declared.choices, *(("yes", "no") if flag.is_switch else ())]
    metavar = ",".join(values) or f"{declared.metavar}{',...' if declared.span is None else '..' + declared.metavar}"
    made = typer.Option(flag.name, help=declared.help, metavar=metavar)
    return Parameter(flag.field, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, made])


def of_fields(parameters: type) -> dict[str, Parameter]:
    """Return a parameter for each field of a class, with the annotation that the field has."""
    hints = get_type_hints(parameters, include_extras=True)
    return {
        item.name: Parameter(
            item.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if item.default is MISSING else item.default,
            annotation=hints[item.name],
        )
        for item in fields(parameters)
    }


def of_flags(options: type, varies: bool = False) -> dict[str, Parameter]:
    """Return a typer parameter for each flag of an options class; the value of a flag that is not given is None, where
    the flag is read from a text. With ``varies`` each takes a text with several values."""
    return {name: _varied(flag) if varies else _parameter(flag) for name, flag in flags_of(options).items()}


def _parameter(flag: Flag) -> Parameter:
    declared, default = flag.declared, flag.default
    kind: Any = bool if flag.is_switch else str
    spelled = "/".join(flag.values) or flag.name
    made = typer.Option(spelled, help=declared.help, metavar=declared.metavar or None, show_default=not flag.is_switch)
    if declared.choices:
        choices = StrEnum("Choice", {choice.upper(): choice for choice in declared.choices})  # type: ignore[misc]
        default = None if default is None else choices(default)
        kind = choices | None
    elif declared.read is not None:
        default = None
        made = typer.Option(flag.name, help=declared.help, metavar=declared.metavar, parser=_parser(flag))
    return Parameter(flag.field, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, made])


def _parser(flag: Flag) -> Callable[[str], Any]:

    def parsed(text: str) -> Any:
        try:
            return flag.read(text)
        except InvalidOptionError as error:
            raise typer.BadParameter(str(error)) from error

    return parsed
