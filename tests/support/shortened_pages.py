# SPDX-License-Identifier: BSD-3-Clause
"""Run pages as ``scripts.run_pages`` does, with the steps of torch that the tests shorten:
``python -m tests.support.shortened_pages OUT.json PAGE...``"""

from __future__ import annotations

import re
import sys

from scripts import run_pages
from tests.support import composite_operators

_replaced = run_pages.Session.replaced


def _shortened(session: run_pages.Session, block: re.Match[str]) -> str:
    """Run a block. The blocks before it may have imported torch."""
    composite_operators.shorten()
    return _replaced(session, block)


if __name__ == "__main__":
    run_pages.Session.replaced = _shortened  # type: ignore[method-assign]
    try:
        run_pages.main(*sys.argv[1:])
    except run_pages.BlockError as error:
        sys.exit(str(error))
