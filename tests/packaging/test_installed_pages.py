# SPDX-License-Identifier: BSD-3-Clause
"""``make pages`` installs what README.md names, and a page fails where its output lacks the marked words."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import installed_pages, run_pages


def test_the_installation_is_that_of_the_readme(root: Path) -> None:
    torch, package = installed_pages.installation(None, False)
    assert torch[:2] == ["install", "torch==2.13.0"] and torch[2] == "--index-url"
    assert package == ["install", f"{root}[demo]"]
    assert installed_pages.installation("a.whl", True) == [["install", "torch==2.13.0"], ["install", "a.whl[demo]"]]


def test_all_tutorials_and_how_to_pages_run(root: Path) -> None:
    names = [page.name for page in installed_pages.pages()]
    assert names[0] == "README.md"
    assert {"first-model.md", "your-own-images.md", "evaluate.md", "run-on-linux.md"} <= set(names)


def test_the_output_of_a_block_has_the_marked_words_in_their_order(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('<!-- run: says="1 of 2" says=three -->\n```python\nprint("1 of 2 and three")\n```\n')
    assert "1 of 2 and three" in run_pages.run_page(page)
    page.write_text('<!-- run: says=three says="1 of 2" -->\n```python\nprint("1 of 2 and three")\n```\n')
    with pytest.raises(run_pages.BlockError) as caught:
        run_pages.run_page(page)
    assert str(caught.value).endswith("the output lacks '1 of 2'")
