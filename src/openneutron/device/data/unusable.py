# SPDX-License-Identifier: BSD-3-Clause
"""Files and items that give no sample, and the message about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from openneutron.errors import InvalidOptionError

SHOWN = 3
"""A message names so many files; of the others it has the number."""


class UnusableError(Exception):
    """A file or an item gives no sample; the text is the reason, as ``it is 20x30 pixels; the model takes 32x32``."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """The words of a message about a source: the option that names the source, the source, its number of files, and a
    suggestion."""

    option: str
    source: str
    total: int
    suggestion: str = ""

    def about(self, problems: Sequence[tuple[str, str]]) -> InvalidOptionError:
        """Return the error about these files, each with its reason."""
        listed = "; ".join(f"'{name}': {reason}" for name, reason in problems[:SHOWN])
        end = f" {self.suggestion}" if self.suggestion else ""
        if len(problems) == 1:
            return InvalidOptionError(f"{self.option}: {listed}.{end}")
        more = f"; and {len(problems) - SHOWN:,} more" if len(problems) > SHOWN else ""
        return InvalidOptionError(
            f"{self.option}: {len(problems):,} of the {self.total:,} files of '{self.source}' can't be used: {listed}{more}.{end}"
        )


def problems_of(names: Iterable[str], check: Callable[[int], object]) -> list[tuple[str, str]]:
    """Return the names whose check, by their place, raises UnusableError, with the reasons."""
    found = []
    for place, name in enumerate(names):
        try:
            check(place)
        except UnusableError as error:
            found.append((name, str(error)))
    return found
