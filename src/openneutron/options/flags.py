# SPDX-License-Identifier: BSD-3-Clause
"""Options that are declared once: the field of a dataclass carries its command-line flag, its help, its check and its form in JSON.

The command line, flags in texts (``extra_flags``) and the validation read these declarations.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from openneutron.errors import InvalidOptionError

Options = TypeVar("Options")

_DECLARATION = "option"

LARGEST_KIB = 2**22 - 1
"""The largest size is below 4 GiB: an address in microcode has 32 bits (docs/microcode.md)."""

SHOWN_CHARACTERS = 24
"""The number of characters of an unreadable value that messages show."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """The properties of an option other than its name, type and default.

    * ``read`` turns the text of a flag into a value. It raises InvalidOptionError for an unreadable text.
    * ``span`` turns ``A..B`` or ``A..B..STEP`` into values, for options that can have a range.
    * ``check`` gets the option's name and a value. It raises InvalidOptionError for an unusable value.
    * ``eiq`` has the values that NXP's converter accepts beside the default; None if it accepts all.
    * ``in_text`` is True if the flag is also accepted in texts of flags, and not only on the command line.
    """

    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    read: Callable[[str], Any] | None = None
    span: Callable[[str], Sequence[Any]] | None = None
    check: Callable[[str, Any], None] | None = None
    eiq: tuple[Any, ...] | None = None
    in_text: bool = True


def option(default: Any, help: str, **properties: Any) -> Any:
    """Return a dataclass field with the properties of a ``Declaration``."""
    return dataclasses.field(default=default, metadata={_DECLARATION: Declaration(help, **properties)})


@dataclass(frozen=True, slots=True)
class Flag:
    """An option's flag on a command line: ``--sram-budget`` for the field ``sram_budget``."""

    field: str
    default: Any
    declared: Declaration

    @property
    def name(self) -> str:
        return f"--{self.field.replace('_', '-')}"

    @property
    def is_switch(self) -> bool:
        """Return whether the flag has no value."""
        return isinstance(self.default, bool)

    @property
    def values(self) -> dict[str, bool]:
        """Return the flags of a switch, ``--name`` and ``--no-name``, with their values; empty for another option."""
        return {self.name: True, f"--no-{self.name.removeprefix('--')}": False} if self.is_switch else {}

    def __str__(self) -> str:
        if self.is_switch:
            return next(name for name, value in self.values.items() if value != self.default)
        return f"{self.name}={'|'.join(self.declared.choices) or self.declared.metavar}"

    def read(self, text: str) -> Any:
        """Return the option's value for the text behind the flag. Raises InvalidOptionError for an unreadable text."""
        return text if self.declared.read is None else self.declared.read(text)

    def check(self, value: Any) -> None:
        """Raise InvalidOptionError for a value that the option can't have."""
        if type(value) is type(self.default) and value == self.default:
            return
        if self.is_switch and not isinstance(value, bool):
            raise InvalidOptionError(f"{self.field}: it is {value!r}; it is True or False.")
        if self.declared.choices:
            check_choice(self.field, value, self.declared.choices)
        if self.declared.check is not None:
            self.declared.check(self.field, value)


def flags_of(options: type) -> dict[str, Flag]:
    """Return the flags of a dataclass's fields that were made by ``option``, by the names of the fields."""
    return {
        item.name: Flag(item.name, item.default, item.metadata[_DECLARATION])
        for item in dataclasses.fields(options)
        if _DECLARATION in item.metadata
    }


def size_in_bytes(text: str) -> int:
    """Return a size in bytes from whole KiB: ``287``, ``287KiB`` or ``1.5MiB``. Raises InvalidOptionError for any other
    text.

    >>> size_in_bytes("1.5MiB")
    1572864
    """
    found = re.fullmatch(r"0*(\d{1,12}(?:\.\d{1,12})?) ?(KiB|MiB)?", text.strip(), re.IGNORECASE)
    size = Fraction(0) if found is None else Fraction(found[1]) * (1024 if (found[2] or "").lower() == "mib" else 1)
    if size < 1 or size > LARGEST_KIB or size.denominator != 1:
        shown = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
        raise InvalidOptionError(
            f"'{shown}' is no size above 0 and up to {LARGEST_KIB} in whole KiB. Write 287, 287KiB or 1.5MiB."
        )
    return int(size) * 1024


def sizes_of_regions(text: str) -> int | tuple[tuple[str, int], ...]:
    """Return a size in bytes, or the size of each memory region. Raises InvalidOptionError for any other text.

    >>> sizes_of_regions("64")
    65536
    >>> sizes_of_regions("dtcm=64, sram=1.5MiB")
    (('dtcm', 65536), ('sram', 1572864))
    """
    if "=" not in text:
        return size_in_bytes(text)
    found = {}
    for part in text.split(","):
        name, equals, size = (word.strip() for word in part.partition("="))
        if not (name and equals) or name in found:
            raise InvalidOptionError(f"'{text}' gives no size for each region. Write dtcm=64,sram=256.")
        found[name] = size_in_bytes(size)
    return tuple(found.items())


MOST_STEPS = 16
"""The largest number of values in a range without a step."""


def sizes_between(text: str) -> tuple[int, ...]:
    """Return the sizes in a range of whole KiB, in bytes. The text is ``100..1500`` or ``100..1500..50``; both ends are included.

    Without a step, the function chooses a round step that gives at most 16 sizes. If the steps miss the upper end, it
    is added to the sizes.

    >>> [size // 1024 for size in sizes_between("100..400..100")]
    [100, 200, 300, 400]
    """
    first, last, *steps = text.split("..")
    if len(steps) > 1:
        raise InvalidOptionError(f"'{text}' is no range. Write 100..1500 or 100..1500..50.")
    low, high = size_in_bytes(first), size_in_bytes(last)
    if high < low:
        raise InvalidOptionError(f"'{text}' ends below its beginning. Write the smaller size first.")
    rounds = (1024 * factor * 10**power for power in range(8) for factor in (1, 2, 5))
    step = size_in_bytes(steps[0]) if steps else next(size for size in rounds if (high - low) < MOST_STEPS * size)
    sizes = list(range(low, high + 1, step))
    return tuple(sizes if sizes[-1] == high else [*sizes, high])


def whole_number(text: str) -> int:
    """Return the whole number in a text. Raises InvalidOptionError for any other text."""
    if not re.fullmatch(r"\d{1,12}", text.strip()):
        raise InvalidOptionError(f"'{text[:SHOWN_CHARACTERS]}' is no whole number.")
    return int(text)


def split_names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the names in a text, which commas separate, or in a list.

    >>> split_names("join, chain")
    ('join', 'chain')
    """
    if not isinstance(names, str):
        return tuple(names or ())
    return tuple(name.strip() for name in names.split(",") if name.strip())


def split_flags(flags: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return flags from one text, quoted as in a shell, or from a list. Raises InvalidOptionError for an unclosed
    quote.

    >>> split_flags("--effort=high --no-check")
    ('--effort=high', '--no-check')
    """
    if not isinstance(flags, str):
        return tuple(flags or ())
    try:
        return tuple(shlex.split(flags))
    except ValueError as error:
        raise InvalidOptionError(f"'{flags}' can't be split: a quote is not closed.") from error


def with_flags(options: Options, given: Sequence[str]) -> Options:
    """Return the options with the changes that flags make. ``--name=value`` and ``--name``, ``value`` have the same meaning.

    Raises InvalidOptionError for a flag that is unknown, that has no value or an unusable one, that is given twice with different values, or
    that contradicts an option that has been set.
    """
    known = [flag for flag in flags_of(type(options)).values() if flag.declared.in_text]
    flags = {name: flag for flag in known for name in flag.values or (flag.name,)}
    changes: dict[str, Any] = {}
    rest = list(given)
    while rest:
        name, equals, text = rest.pop(0).partition("=")
        flag = flags.get(name)
        if flag is None:
            listed = ", ".join(map(str, known))
            raise InvalidOptionError(
                f"extra_flags: '{name}' is not a flag of the compiler; its flags are {listed}.{did_you_mean(name, flags)}"
            )
        if not equals and not flag.is_switch and rest and not rest[0].startswith("--"):
            equals, text = "=", rest.pop(0)
        value = _value(flag, name, text if equals else None)
        if changes.setdefault(flag.field, value) != value:
            raise InvalidOptionError(f"extra_flags: '{name}' is given twice with different values. Leave one out.")
        before = getattr(options, flag.field)
        if before not in (flag.default, value):
            raise InvalidOptionError(
                f"extra_flags: '{name}' sets {value}, but {flag.field} is {before} already. Leave one out."
            )
    return dataclasses.replace(options, **changes)  # type: ignore[type-var]


def _value(flag: Flag, name: str, text: str | None) -> Any:
    if flag.is_switch:
        if text is not None:
            raise InvalidOptionError(f"extra_flags: '{name}' takes no value; '{text}' is given.")
        return flag.values[name]
    if not text:
        raise InvalidOptionError(f"extra_flags: '{flag.name}' has no value. Write {flag}.")
    return read_as(f"extra_flags: {flag.name}", flag.read, text)


def read_as(subject: str, read: Callable[[Any], Any], given: Any) -> Any:
    """Return ``read(given)``. If it raises InvalidOptionError, the message gets the subject in front."""
    try:
        return read(given)
    except InvalidOptionError as error:
        raise InvalidOptionError(f"{subject}: {error}") from error


def check_choice(subject: str, value: object, choices: Sequence[str]) -> None:
    """Raise InvalidOptionError for a value that is not one of the choices."""
    if value not in choices:
        hint = did_you_mean(str(value), choices)
        raise InvalidOptionError(f"{subject}: '{value}' is unknown; there are {', '.join(choices)}.{hint}")


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return the end of a message that suggests the nearest known name; empty where none is near."""
    near = difflib.get_close_matches(given, list(known), 1)
    return f" Did you mean '{near[0]}'?" if near else ""


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
"""The entries of a quantization file other than the version: fields of QuantizationOptions, each with a check and the words that describe a
right value."""


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
