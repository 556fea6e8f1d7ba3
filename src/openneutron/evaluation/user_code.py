# SPDX-License-Identifier: BSD-3-Clause
"""Functions of a user's Python file."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openneutron.errors import InvalidOptionError, OpenNeutronError
from openneutron.files import nearest, obstacle


def function_of(file: str, name: str, subject: str) -> Callable[..., Any]:
    """Return a function of a Python file, which runs with the file's folder at the end of the module search path.

    Raises InvalidOptionError, which names the ``subject``, where the file has no such function or raises itself.
    """
    path = Path(file)
    problem = obstacle(path)
    if problem is not None:
        raise InvalidOptionError(f"{subject}: '{file}' {problem}.")
    module_name = f"openneutron_{subject}_in_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    with running(file, f"{subject}: '{file}'"):
        spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        hint = nearest(name, (key for key, value in vars(module).items() if callable(value)))
        raise InvalidOptionError(f"{subject}: '{path.name}' has no function '{name}'.{hint}")
    called: Callable[..., Any] = function
    return called


@contextmanager
def running(file: str, subject: str) -> Iterator[None]:
    """Raise InvalidOptionError, with the line of the file, where the user's code raises."""
    folder = str(Path(file).resolve().parent)
    sys.path.append(folder)
    try:
        yield
    except (OpenNeutronError, KeyboardInterrupt):
        raise
    except BaseException as error:
        frames = [
            frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name == Path(file).name
        ]
        line = f", line {frames[-1].lineno}" if frames else ""
        words = next((text.strip() for text in str(error).splitlines() if text.strip()), "")
        said = f"{type(error).__name__}: {words}" if words else type(error).__name__
        raise InvalidOptionError(f"{subject}{line}: {said}. Correct the function.") from error
    finally:
        sys.path.remove(folder)
