# SPDX-License-Identifier: BSD-3-Clause
"""Load functions and objects from users' Python files, named as ``file.py:name``. Their code runs with the user's
rights."""

from __future__ import annotations

import ast
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openneutron.device.files import nearest
from openneutron.errors import InvalidModelError, OpenNeutronError, said

MADE_WHILE_IT_RUNS = ("globals", "vars", "locals", "exec", "eval", "setattr")
"""Names of functions that may define further names at run time. A file that uses one of them may define names that its
text does not show."""


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function, or another object, of a Python file."""

    path: Path
    name: str

    def __str__(self) -> str:
        return f"{self.path.name}:{self.name}"

    def check(self, error: type[OpenNeutronError] = InvalidModelError) -> None:
        """Check, without running the file, that it defines the name. Raises ``error`` where the file is no Python
        file, or can't define the name.

        A file that may define further names at run time is accepted, for instance one with a wildcard import or a
        call of ``exec``.
        """
        try:
            tree = ast.parse(self.path.read_bytes())
        except SyntaxError as fault:
            line = "" if fault.lineno is None else f", line {fault.lineno}"
            raise error(f"'{self}'{line}: SyntaxError: {fault.msg}") from fault
        except (ValueError, RecursionError, MemoryError) as fault:  # the text has NUL bytes, or is nested too deeply
            raise error(f"'{self}' is no Python file: {str(fault) or type(fault).__name__}.") from fault
        nodes = list(ast.walk(tree))
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        elsewhere = any(isinstance(node, ast.Global) for node in nodes) or bool(used & set(MADE_WHILE_IT_RUNS))
        names = set(_names(tree.body))
        if self.name in names or names & {"*", "__getattr__"} or elsewhere:
            return
        functions = (node.name for node in tree.body if isinstance(node, ast.FunctionDef))
        raise error(f"'{self.path.name}' has no function '{self.name}'.{nearest(self.name, functions)}")

    def load(
        self,
        purpose: str,
        error: type[OpenNeutronError] = InvalidModelError,
        is_wanted: Callable[[Any], bool] = callable,
    ) -> Any:
        """Return the object that the file defines. ``purpose`` is the end of a message, such as ``it must return a
        module``.

        Raises ``error`` where the file's code raises, or defines no object of this name that ``is_wanted`` accepts.
        """
        module = self.run(lambda: _imported(self.path), purpose, error)
        found = getattr(module, self.name, None)
        if found is None or not is_wanted(found):
            hint = nearest(self.name, (name for name, value in vars(module).items() if is_wanted(value)))
            raise error(f"'{self.path.name}' has no function '{self.name}'.{hint}")
        return found

    def run(self, call: Callable[[], Any], purpose: str, error: type[OpenNeutronError] = InvalidModelError) -> Any:
        """Return the result of a call of the user's code. Raises ``error`` where the code raises, with the line that
        raised. An OpenNeutronError or KeyboardInterrupt of the code is passed on unchanged."""
        try:
            with _search(self.path.resolve().parent):
                return call()
        except (OpenNeutronError, KeyboardInterrupt):
            raise
        except BaseException as fault:
            frames = [
                frame
                for frame in traceback.extract_tb(fault.__traceback__)
                if Path(frame.filename).name == self.path.name
            ]
            line = f", line {frames[-1].lineno}" if frames else ""
            if isinstance(fault, SyntaxError) and fault.lineno is not None:
                line = f", line {fault.lineno}"
            if isinstance(fault, SystemExit):
                raise error(f"'{self}'{line}: it calls sys.exit({fault.code!r}); {purpose}.") from fault
            raise error(f"'{self}'{line}: {said(fault)}") from fault


def parsed(text: str) -> tuple[str, str] | None:
    """Return the file and the name of ``file.py:name``; None for another form.

    >>> parsed("net.py:digits")
    ('net.py', 'digits')
    """
    file, colon, name = text.rpartition(":")
    return (file, name) if colon and file.endswith(".py") else None


def _names(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names that a module's statements assign, including those in nested blocks; ``*`` for a wildcard import."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield statement.name
            continue
        for node in ast.walk(statement):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield node.name
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, ast.alias):
                yield (node.asname or node.name).partition(".")[0]


def _imported(path: Path) -> Any:
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _module_name(path: Path) -> str:
    """Return the name for the file's module: its stem, or another name if the stem is that of an installed module such
    as torch."""
    try:
        there = importlib.util.find_spec(path.stem)
    except (ImportError, ValueError):  # no name of a module, or half a module
        there = None
    taken = there is not None and (there.origin is None or Path(there.origin) != path.resolve())
    return f"model_in_{path.stem}" if taken else path.stem


@contextmanager
def _search(folder: Path) -> Iterator[None]:
    """Keep the file's folder at the end of the module search path while the block runs. At the end of the path, a
    file named re.py hides no installed module."""
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
