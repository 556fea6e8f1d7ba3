# SPDX-License-Identifier: BSD-3-Clause
"""Imports of packages that only some users have installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from openneutron.errors import MissingToolError

PACKAGES = ("torch", "torchao", "executorch")


@contextmanager
def needs_pytorch(what: str) -> Iterator[None]:
    """Raise MissingToolError where an import inside fails because a package of the PyTorch extra is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in PACKAGES:
            raise
        raise MissingToolError(
            f"{what} {', '.join(PACKAGES)}; '{error.name}' is not installed. In the checkout: "
            "pip install '.[pytorch]'. An int8 .tflite compiles and runs without."
        ) from error
