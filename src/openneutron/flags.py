# SPDX-License-Identifier: BSD-3-Clause
"""The compiler's options as flags of a command line, for callers that have nothing but text to say them in.

Every field of ``CompileOptions`` has one: ``--sram-budget=512`` (KiB), ``--io-place=arena``, ``--fetch-constants-to-sram``,
``--effort=high`` and so on.
"""

from __future__ import annotations

import dataclasses
import difflib
import shlex
import typing
from collections.abc import Sequence
from dataclasses import dataclass

from openneutron.errors import InvalidOptionError
from openneutron.options import CompileOptions

NAMES = {"io": "io-place"}
"""Fields whose flag is called otherwise: as ``openneutron compile`` calls it."""

UNITS = {"sram_budget": (1024, "KIB")}
"""Fields that are stated in another unit than their own."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A field's flag. ``kind`` is bool for a switch, otherwise what the text after the = becomes."""

    name: str
    field: str
    kind: type
    unit: int = 1
    value_name: str = ""

    def __str__(self) -> str:
        return self.name if self.kind is bool else f"{self.name}={self.value_name}"

    def read(self, text: str | None) -> bool | int | str:
        """The field's value. Raises InvalidOptionError where the text is none."""
        if self.kind is bool:
            if text is not None:
                raise InvalidOptionError(f"extra_flags: '{self.name}' is a switch; '{text}' is no part of it.")
            return True
        if not text:
            raise InvalidOptionError(f"extra_flags: '{self.name}' has no value. Write {self}.")
        if self.kind is int:
            if not text.isdecimal():
                raise InvalidOptionError(f"extra_flags: {self.name} is '{text}'; it is a whole number. Write {self}.")
            return int(text) * self.unit
        return text


def _flags() -> dict[str, Flag]:
    hints = typing.get_type_hints(CompileOptions)
    made = {}
    for item in dataclasses.fields(CompileOptions):
        kinds = [kind for kind in typing.get_args(hints[item.name]) if kind is not type(None)] or [hints[item.name]]
        unit, value_name = UNITS.get(item.name, (1, "N" if kinds[0] is int else "TEXT"))
        name = f"--{NAMES.get(item.name, item.name.replace('_', '-'))}"
        made[name] = Flag(name, item.name, kinds[0], unit, value_name)
    return dict(sorted(made.items()))


FLAGS = _flags()
"""All flags by name."""


def split_flags(flags: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return flags from one text, quoted as in a shell, or from a list. Raises InvalidOptionError for an unclosed
    quote."""
    if not isinstance(flags, str):
        return tuple(flags or ())
    try:
        return tuple(shlex.split(flags))
    except ValueError as error:
        raise InvalidOptionError(f"extra_flags: '{flags}' can't be taken apart: a quote stays open.") from error


def with_flags(options: CompileOptions, flags: Sequence[str]) -> CompileOptions:
    """The options as the flags change them; ``--name=value`` and ``--name``, ``value`` are the same.

    Raises InvalidOptionError for a flag that is unknown, has no value or an unusable one, is given twice, or says
    something else than an option that was set already.
    """
    told: dict[str, bool | int | str] = {}
    defaults = CompileOptions(io=options.io)
    rest = list(flags)
    while rest:
        name, equals, text = rest.pop(0).partition("=")
        flag = FLAGS.get(name)
        if flag is None:
            raise _unknown(name)
        if not equals and flag.kind is not bool and rest and not rest[0].startswith("--"):
            equals, text = "=", rest.pop(0)
        value = flag.read(text if equals else None)
        if told.setdefault(flag.field, value) != value:
            raise InvalidOptionError(f"extra_flags: '{name}' is given twice, and differently. Leave one out.")
        before = getattr(options, flag.field)
        if flag.field != "io" and before not in (getattr(defaults, flag.field), value):
            raise InvalidOptionError(
                f"extra_flags: '{name}' says {value}, and {flag.field} is {before} already. Leave one out."
            )
    return dataclasses.replace(options, **told)  # type: ignore[arg-type]


def _unknown(name: str) -> InvalidOptionError:
    near = difflib.get_close_matches(name, FLAGS, 1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    listed = ", ".join(str(flag) for flag in FLAGS.values())
    return InvalidOptionError(f"extra_flags: '{name}' is no flag of the compiler; there are {listed}.{hint}")
