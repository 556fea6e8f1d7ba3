# SPDX-License-Identifier: BSD-3-Clause
"""Hooks of MkDocs (mkdocs.yml) that change pages while the site is built.

The tutorials, how-to pages and explanations run, and their outputs are inserted (scripts/run_pages.py). ``build/pages`` keeps the outputs for builds with
the same pages and sources; a fresh checkout has none.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

ROOT = Path(__file__).parents[1]
EXECUTED = ("tutorials", "how-to", "explanation")
"""Folders of docs/ whose pages run."""
KEPT = ROOT / "build" / "pages"

RUNNER = "OPENNEUTRON_PAGES_RUNNER"
"""The environment variable with another module than ``scripts.run_pages`` that runs the pages."""

FILTERED = ("supported-ops.md",)
"""Pages whose tables get a field that filters their rows (docs/assets/filter.js)."""

_TABLE = re.compile(r"(?:^\|.*\n){3,}", re.MULTILINE)
_executed: dict[str, str] = {}


def on_pre_build(**_context: Any) -> None:
    """Run the pages, unless their outputs for these sources are kept."""
    pages = [path for folder in EXECUTED for path in sorted((ROOT / "docs" / folder).glob("*.md"))]
    kept = KEPT / f"{_digest(pages)}.json"
    if not kept.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        module = os.environ.get(RUNNER, "scripts.run_pages")
        command = [sys.executable, "-W", "ignore", "-m", module, str(kept), *map(str, pages)]
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PATH": path}, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise PluginError(done.stderr)
    _executed.update(json.loads(kept.read_text()))


def _digest(pages: list[Path]) -> str:
    """Return a digest of the pages and of the sources that determine their outputs."""
    sources = [path for folder in ("src", "runtime") for path in sorted((ROOT / folder).rglob("*.[pch]*"))]
    found = hashlib.sha256()
    for path in [*pages, *sources, Path(__file__).parent / "run_pages.py"]:
        if path.is_file() and path.suffix != ".pyc":
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


def on_page_markdown(markdown: str, page: Any, **_context: Any) -> str:
    """Return the page with the outputs of its code, and with its tables marked for the filter where they have one."""
    if page.file.abs_src_path in _executed:
        return _executed[page.file.abs_src_path]
    if page.file.src_uri in FILTERED:
        return _TABLE.sub(r'<div class="filtered" markdown>\n\n\g<0>\n</div>\n', markdown)
    return markdown
