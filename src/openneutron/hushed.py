# SPDX-License-Identifier: BSD-3-Clause
"""Third parties' warnings, which a user can do nothing about."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hushed() -> Iterator[None]:
    """No warnings and no log below an error: torch, torchao and ExecuTorch tell of their own deprecations and libraries."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
