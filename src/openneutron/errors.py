# SPDX-License-Identifier: BSD-3-Clause
"""The errors a user can cause. Each message names the subject, the fact, the bound and a remedy."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

Suggestions = Mapping[str, int]
"""Other options under which a model fits its budget, in words, and the bytes of SRAM that the model then takes."""


class OpenNeutronError(Exception):
    """A fault on the user's side: the command line prints its message alone and exits with code 2."""


class InvalidTargetError(OpenNeutronError, ValueError):
    """The target is unknown, or not one this project compiles for."""


class InvalidOptionError(OpenNeutronError, ValueError):
    """An option's value is out of its range, unknown, or contradicts another."""


class InvalidModelError(OpenNeutronError, ValueError):
    """A model file or module can't be read, or is not something that can be compiled."""


class BudgetError(OpenNeutronError, RuntimeError):
    """No schedule is feasible within the SRAM budget; ``least_bytes`` is a sufficient budget. ``suggestions``: see ``Suggestions``."""

    def __init__(self, message: str, least_bytes: int, suggestions: Suggestions = MappingProxyType({})) -> None:
        super().__init__(message)
        self.least_bytes = least_bytes
        self.suggestions = suggestions


class CompilerFaultError(OpenNeutronError, RuntimeError):
    """The compiler's own check of a program (``check``) found that it reads what is not there: a mistake in the compiler."""


class InvalidProgramError(OpenNeutronError, ValueError):
    """A compiled program or delegate payload is truncated, corrupt, or of another version."""


class DriverError(OpenNeutronError, RuntimeError):
    """The driver refused a program or a run; ``code`` is its NeutronError value."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class MissingToolError(OpenNeutronError, RuntimeError):
    """Something that must be installed for this step is not, for instance a C++ compiler."""


class ConverterError(OpenNeutronError, RuntimeError):
    """A converter that is not this project's failed; ``output`` is what it said, ``exit_code`` its process's."""

    def __init__(self, message: str, output: str, exit_code: int) -> None:
        super().__init__(message)
        self.output = output
        self.exit_code = exit_code
