# SPDX-License-Identifier: BSD-3-Clause
"""The documentation site builds without a warning, fetches nothing from the network, and documents every public name."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import openneutron
import openneutron.pytorch
from tests.support.built_once import built_once

pytest.importorskip("mkdocs")
pytest.importorskip("torch")


@pytest.fixture(scope="module")
def site(root: Path) -> Path:
    """Return the folder of the built site."""

    def build(folder: Path) -> None:
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
        environment = os.environ | {"OPENNEUTRON_PAGES_RUNNER": "tests.support.shortened_pages"}
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return built_once("site", build)


def test_pages_fetch_nothing_from_the_network(site: Path) -> None:
    """Links to other sites are allowed; scripts, styles, fonts, images and frames are not."""
    fetched = re.compile(r"<(?!a\b|link rel=\"canonical\")\w[^>]*\s(?:src|href)=\"?(?:https?:)?//[^>]*>")
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 20
    assert [(page.name, found) for page in pages for found in fetched.findall(page.read_text())] == []
    styles = [(path.name, path.read_text()) for path in site.rglob("*.css")]
    assert [name for name, text in styles if re.search(r"url\([\"']?(https?:)?//", text)] == []


def test_the_index_of_the_search_is_in_the_site(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    assert any("least_bytes" in item["text"] for item in index["docs"])
    assert (site / "search" / "search_index.js").read_text().startswith("var __index = ")
    assert "assets/iframe-worker.js" in (site / "index.html").read_text()


def documented(root: Path) -> list[str]:
    """Return the dotted names of the page of the Python API."""
    return re.findall(r"^::: ([\w.]+)$", (root / "docs/reference/api.md").read_text(), re.MULTILINE)


def test_every_public_name_is_on_the_page_of_the_api(root: Path, site: Path) -> None:
    names = documented(root)
    public = {f"openneutron.{name}" for name in openneutron.__all__ if name != "__version__"}
    public |= {f"openneutron.pytorch.{name}" for name in openneutron.pytorch.__all__}
    assert public <= set(names)
    page = (site / "reference/api.html").read_text()
    assert [name for name in names if f'id="{name}"' not in page] == []


def members(kind: type) -> Iterator[tuple[str, object]]:
    """Yield the public methods and properties of a class, without those of its bases."""
    for name, value in vars(kind).items():
        if not name.startswith("_") and (inspect.isroutine(value) or isinstance(value, property)):
            yield name, value


def test_every_public_method_has_a_docstring(root: Path) -> None:
    missing = []
    for dotted in documented(root):
        module, _, name = dotted.rpartition(".")
        found = getattr(importlib.import_module(module), name)
        if not found.__doc__:
            missing.append(dotted)
        if inspect.isclass(found):
            missing += [f"{dotted}.{part}" for part, value in members(found) if not value.__doc__]
    assert missing == []
