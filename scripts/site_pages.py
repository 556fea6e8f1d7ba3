# SPDX-License-Identifier: BSD-3-Clause
"""Hooks of MkDocs (mkdocs.yml) that change pages while the site is built."""

from __future__ import annotations

import re
from typing import Any

FILTERED = {"supported-ops.md": "operators"}
"""Pages whose tables get a field that filters their rows."""

_TABLE = re.compile(r"(?:^\|.*\n){3,}", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, **_context: Any) -> str:
    """Return the page with its tables marked for docs/assets/filter.js, where the page is listed in ``FILTERED``."""
    if page.file.src_uri in FILTERED:
        return _TABLE.sub(r'<div class="filtered" markdown>\n\n\g<0>\n</div>\n', markdown)
    return markdown
