# SPDX-License-Identifier: BSD-3-Clause
"""The options of a compile: declared, documented and checked here."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, SupportsIndex

from openneutron import targets
from openneutron.errors import InvalidOptionError
from openneutron.flags import did_you_mean, flags_of, option, size_in_bytes, split_flags

ARENA = "arena"
CALLER = "caller"
IO_PLACES = (ARENA, CALLER)
"""The places of inputs and outputs."""

DEFAULT_EFFORT = "default"
HIGH_EFFORT = "high"
EFFORTS = (DEFAULT_EFFORT, HIGH_EFFORT)
"""The efforts of the search for a schedule."""

OPEN = "open"
EIQ = "eiq"
CONVERTERS = (OPEN, EIQ)
"""The converters: this project's compiler, and NXP's ``eiq_neutron_sdk``."""


def _check_target(_subject: str, name: str) -> None:
    targets.get(name)


def _check_budget(subject: str, size: Any) -> None:
    if not isinstance(size, SupportsIndex) or isinstance(size, bool):
        raise InvalidOptionError(f"{subject}: it is {size!r}; a budget is a whole number of bytes.")
    if operator.index(size) <= 0:
        raise InvalidOptionError(f"{subject}: it is {size} bytes; a budget is above 0.")


def _check_texts(subject: str, values: Any) -> None:
    if not isinstance(values, tuple) or not all(isinstance(item, str) for item in values):
        raise InvalidOptionError(f"{subject}: it is {values!r}; it is a tuple of texts.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """The options of a compile.

    ``openneutron.compile``, the command line, ``generate_neutron_compile_spec`` and the compiler share this class. A
    subclass that adds a field, made by ``openneutron.flags.option``, has a flag, a check and a place in compile specs
    for it.

    Raises InvalidTargetError for an unknown target, InvalidOptionError for any other unusable value.

    >>> CompileOptions(sram_budget=64 * 1024, effort="high").sram_budget
    65536
    >>> CompileOptions(sram_budget=0)
    Traceback (most recent call last):
        ...
    openneutron.errors.InvalidOptionError: sram_budget: it is 0 bytes; a budget is above 0.
    """

    target: str = option(
        targets.DEFAULT, "The chip; see `openneutron targets`.", metavar="NAME", check=_check_target, in_text=False
    )
    """The name of the chip."""

    sram_budget: int | None = option(
        None,
        "SRAM that a run may take, such as 287 or 1.5MiB; the target's where not given.",
        metavar="KIB",
        read=size_in_bytes,
        check=_check_budget,
        eiq=(),
    )
    """The SRAM in bytes that arena, prefetch buffer, inputs and outputs of a delegate call may take together; None: the
    target's SRAM."""

    io_place: str | None = option(
        None,
        "Inputs and outputs inside the arena (default for a .tflite), or the caller's (for a .pte).",
        choices=IO_PLACES,
        eiq=(CALLER,),
    )
    """The place of inputs and outputs: ``arena``, where their memory is reused after their last use and a run copies
    them, or ``caller``, the caller's buffers. None: ``arena`` in a ``.tflite``, ``caller`` in a ``.pte``."""

    prefetch_constants: bool = option(False, "Copy constants from flash to SRAM before each use.")
    """True copies each operator's constants from flash to SRAM ahead of their use. The budget covers their memory
    too."""

    effort: str = option(
        DEFAULT_EFFORT,
        "How far to look for a faster schedule in little memory; high takes longer and says what it gained.",
        choices=EFFORTS,
        eiq=(),
    )
    """The effort of the search for a schedule: ``default`` or ``high``."""

    check: bool = option(
        False, "Go through each compiled program byte by byte: whatever is read must be there.", eiq=()
    )
    """True audits each program byte by byte before it is returned (compiler/emit/audit)."""

    profile: bool = option(False, "Have each kernel call of a run leave an event, which takes memory.")
    """True reserves memory for an event of each kernel call of a run."""

    converter: str = option(
        OPEN,
        "Who compiles the partitions of a PyTorch model: this project's compiler, or NXP's eiq_neutron_sdk.",
        choices=CONVERTERS,
        in_text=False,
    )
    """The converter of a PyTorch model's partitions: ``open`` is this project's compiler, ``eiq`` NXP's SDK
    (docs/converters.md)."""

    converter_flags: tuple[str, ...] = option(
        (),
        "Flags for NXP's eiq_neutron_sdk, such as --minNumOpsPerGraph=2, in one text.",
        metavar="FLAGS",
        read=split_flags,
        check=_check_texts,
        in_text=False,
    )
    """Flags for the converter ``eiq``: fields of its compilationOpts, such as ``--minNumOpsPerGraph=2``."""

    def __post_init__(self) -> None:
        for name, flag in flags_of(type(self)).items():
            value = getattr(self, name)
            flag.check(value)
            accepted = flag.declared.eiq
            if self.converter == EIQ and accepted is not None and value not in (flag.default, *accepted):
                raise InvalidOptionError(
                    f"{name}: it is {value!r}; NXP's converter has no such option. Leave it out with converter='eiq'."
                )
        if self.converter == OPEN and self.converter_flags:
            raise InvalidOptionError(
                f"converter_flags: '{self.converter_flags[0]}' is for NXP's converter. Leave it out, or set "
                "converter='eiq'."
            )

    @property
    def place(self) -> str:
        """Return the place of inputs and outputs in a program: ``arena`` where ``io_place`` is None."""
        return self.io_place or ARENA

    def placed(self, default: str) -> Self:
        """Return the options with ``io_place`` set: to ``default`` where it is None."""
        return self if self.io_place is not None else dataclasses.replace(self, io_place=default)

    def to_dict(self) -> dict[str, Any]:
        """Return the options by name, for JSON; ``from_dict`` reads them.

        >>> CompileOptions.from_dict(CompileOptions(check=True).to_dict()) == CompileOptions(check=True)
        True
        """
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the options with these values. Raises InvalidOptionError for an unknown name."""
        for name in values.keys() - flags_of(cls).keys():
            raise InvalidOptionError(f"compile options: '{name}' is unknown.{did_you_mean(name, flags_of(cls))}")
        made: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return cls(**made)
