# SPDX-License-Identifier: BSD-3-Clause
"""The errors that a user can cause. Each message names the subject, the fact, the bound and a remedy."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Suggestions = Mapping[str, int]
"""Suggestions under which a model fits its budget: other options in words, each with the bytes of SRAM that they need."""


class OpenNeutronError(Exception):
    """An error that is reported by its message alone: the command line prints the message and exits with code 2. The
    user can remove the cause of nearly all subclasses; CompilerFaultError is a bug in the compiler."""


class OpenNeutronWarning(UserWarning):
    """A fact about a model that the user should know and that is no error: the command line prints its message on stderr."""


class InvalidTargetError(OpenNeutronError, ValueError):
    """The target is unknown, or this project does not compile for it."""


class InvalidOptionError(OpenNeutronError, ValueError):
    """An option's value is out of its range, unknown, or contradicts another."""


class InvalidModelError(OpenNeutronError, ValueError):
    """A model file or module can't be read, or can't be compiled."""


class BudgetError(OpenNeutronError, RuntimeError):
    """No schedule is feasible within the SRAM budget. ``least_bytes`` is a budget that suffices.

    ``suggestions`` has other options under which the model fits its budget, as text, each with the SRAM that it needs in bytes. ``layers`` are
    the layers that run at the moment of the highest memory use, in the program for ``least_bytes``.
    """

    def __init__(
        self,
        message: str,
        least_bytes: int,
        suggestions: Suggestions = MappingProxyType({}),
        layers: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.least_bytes = least_bytes
        self.suggestions = suggestions
        self.layers = layers


class CompilerFaultError(OpenNeutronError, RuntimeError):
    """The audit of a program (``check``) found a read of undefined bytes: a bug in the compiler."""


class InvalidProgramError(OpenNeutronError, ValueError):
    """A compiled program or delegate payload is truncated, corrupt, or of another version."""


class DriverError(OpenNeutronError, RuntimeError):
    """The driver refused a program or a run; ``code`` is its NeutronError value."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class MissingToolError(OpenNeutronError, RuntimeError):
    """A tool that this step needs is not installed, for instance a C++ compiler."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of NXP's converter that may be caused by a node of its graph.

    ``verdict`` describes the failure, if possible in the converter's own words: "refuses it: ...". ``output`` is
    everything that the converter printed. ``outside`` has the names of the results of those operators that the
    converter did not put into the NeutronGraph.
    """

    verdict: str
    output: str = field(repr=False)
    outside: tuple[str, ...] = ()


class ConverterError(OpenNeutronError, RuntimeError):
    """NXP's converter failed. ``output`` is its output, and ``exit_code`` the exit code of its process. ``failure``
    describes a failure that the graph may have caused. It is None if the converter would fail in the same way for
    every graph."""

    def __init__(self, message: str, output: str, exit_code: int, failure: Failure | None = None) -> None:
        super().__init__(message)
        self.output = output
        self.exit_code = exit_code
        self.failure = failure


def warn(message: str) -> None:
    """Issue an OpenNeutronWarning whose location is the user's line that called this package."""
    package, frame, level = __name__.partition(".")[0], sys._getframe(), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, OpenNeutronWarning, stacklevel=level)


def said(error: BaseException) -> str:
    """Return the type of an exception and the first line of its message; in brackets also those of its cause, if its text differs."""
    text = _head(error)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return f"{text} (caused by {_head(cause)})" if cause is not None and _head(cause) != text else text


def _head(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as odd:  # a user's class whose __str__ raises
        text = f"its text can't be had ({type(odd).__name__})"
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {line}" if line else type(error).__name__
