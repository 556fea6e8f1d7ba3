# SPDX-License-Identifier: BSD-3-Clause
"""Checks of a PyTorch model that run before PyTorch is loaded, since loading takes seconds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from openneutron.cli import calibration
from openneutron.cli.model_source import BUILT_IN, BuiltInModel, PythonFunction, PyTorchModel
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.given_file import nearest, obstacle

MADE_WHILE_IT_RUNS = ("globals", "vars", "locals", "exec", "eval", "setattr")
"""A file that uses one of these may define names that its text does not show."""


def check(source: PyTorchModel, samples: Path | None, weights: Path | None) -> None:
    """Check that the named files exist, and that the text of a model's file contains the function.

    Raises InvalidModelError where the built-in model or function does not exist, InvalidOptionError where ``samples``
    or ``weights`` can't be read.
    """
    if isinstance(source, BuiltInModel) and source.name not in BUILT_IN:
        raise InvalidModelError(
            f"there is no built-in model '{source}'.{nearest(source.name, BUILT_IN)} There are {', '.join(BUILT_IN)}."
        )
    if isinstance(source, PythonFunction):
        _check_function(source)
    if weights is not None and (problem := obstacle(weights)) is not None:
        raise InvalidOptionError(f"--weights: '{weights}' {problem}.")
    if samples is not None:
        calibration.files_in(samples)


def _check_function(source: PythonFunction) -> None:
    try:
        tree = ast.parse(source.path.read_bytes())
    except SyntaxError as error:
        line = "" if error.lineno is None else f", line {error.lineno}"
        raise InvalidModelError(f"'{source}'{line}: SyntaxError: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes, nesting without end
        raise InvalidModelError(f"'{source}' is no Python file: {str(error) or type(error).__name__}.") from error
    nodes = list(ast.walk(tree))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    elsewhere = any(isinstance(node, ast.Global) for node in nodes) or bool(used & set(MADE_WHILE_IT_RUNS))
    names = set(_names(tree.body))
    if source.function in names or names & {"*", "__getattr__"} or elsewhere:
        return
    functions = (node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    raise InvalidModelError(
        f"'{source.path.name}' has no function '{source.function}'.{nearest(source.function, functions)}"
    )


def _names(body: list[ast.stmt]) -> Iterator[str]:
    """Return the names that a module's statements assign, including those in nested blocks; ``*`` for a wildcard
    import."""
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
