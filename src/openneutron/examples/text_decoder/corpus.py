# SPDX-License-Identifier: BSD-3-Clause
"""The documentation strings of Python's standard library as numbers of characters. The text depends on Python's version alone."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

CHARACTERS = "\n" + "".join(map(chr, range(ord(" "), ord("~") + 1)))
"""The end of a line and the 95 printable characters of ASCII; a character's number is its index."""

TESTED = 10
"""One of so many documentation strings is for testing, the others are for training."""

_NUMBERS = {character: number for number, character in enumerate(CHARACTERS)}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Two texts as numbers of characters, int64 [length]."""

    train: torch.Tensor
    test: torch.Tensor


def load() -> Corpus:
    """Return the documentation strings of the modules in the standard library's folder, without its packages."""
    strings = list(dict.fromkeys(docstrings(sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")))))
    tested = strings[::TESTED]
    trained = (string for place, string in enumerate(strings) if place % TESTED)
    return Corpus(encoded("\n\n".join(trained)), encoded("\n\n".join(tested)))


def docstrings(files: Iterable[Path]) -> Iterator[str]:
    """Yield the documentation strings of Python files, without their indentation."""
    for file in files:
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, _DOCUMENTED) and (string := ast.get_docstring(node)):
                yield string


def encoded(text: str) -> torch.Tensor:
    """Return the numbers of a text's characters, int64 [length], without characters that have none."""
    return torch.tensor([_NUMBERS[character] for character in text if character in _NUMBERS], dtype=torch.int64)


def decoded(numbers: Iterable[int]) -> str:
    """Return the text of characters' numbers."""
    return "".join(CHARACTERS[number] for number in numbers)
