# SPDX-License-Identifier: BSD-3-Clause
"""Results in a notebook: own tables, escaped, without a script, in inherited colours."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser
from pathlib import Path

import pytest

import openneutron
from openneutron.api.litert import CompiledLiteRTModel
from openneutron.features.report.notebook import explanation_html, summary_html
from openneutron.features.report.text import summary_rows
from tests.support.litert_files import mixed_file


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> CompiledLiteRTModel:
    """A compiled .tflite with operators on either side."""
    path = tmp_path_factory.mktemp("notebook") / "mixed.tflite"
    path.write_bytes(mixed_file())
    found = openneutron.compile(path)
    assert isinstance(found, CompiledLiteRTModel)
    return found


class Tags(HTMLParser):
    """The tags, texts and styles of a page; every tag that opens must close in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.texts: list[str] = []
        self.attributes: set[str] = set()
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


TAGS = {"b", "div", "table", "tbody", "td", "th", "thead", "tr"}


def test_a_program_its_summary_and_its_explanation_have_html(program: CompiledLiteRTModel) -> None:
    pages = {
        "program": program._repr_html_(),
        "summary": program.summary()._repr_html_(),  # type: ignore[attr-defined]
        "explanation": program.explain()._repr_html_(),  # type: ignore[attr-defined]
        "report": program.report._repr_html_(),
    }
    for page in pages.values():
        tags = Tags(page)
        assert tags.seen <= TAGS
        assert tags.attributes == {"style", "scope"}
        values = {value for _, value in summary_rows(program.report)}
        assert values <= set(tags.texts)
    assert pages["program"] == pages["summary"] == pages["report"]
    calls = [call.kernel for part in program.report.partitions for call in part.report.operators]
    assert set(calls) <= set(Tags(pages["explanation"]).texts)


def test_colours_are_the_notebooks_own(program: CompiledLiteRTModel) -> None:
    page = explanation_html(program.report)
    assert "color:#" not in page and "rgb" not in page and "<script" not in page and "<style" not in page
    assert "color:inherit" in page and "currentColor" in page


def test_names_are_escaped(program: CompiledLiteRTModel) -> None:
    report = dataclasses.replace(program.report, model="<script>alert('1')</script>")
    page = summary_html(report)
    assert "&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;" in page
    assert Tags(page).seen <= TAGS


def test_the_texts_are_still_texts(program: CompiledLiteRTModel) -> None:
    assert isinstance(program.summary(), str)
    assert program.summary().splitlines()[0].startswith("mixed.tflite  for imxrt700")
    assert program.explain().startswith("mixed.tflite  for imxrt700")
    assert "On the CPU" in program.explain()
    assert str(program).startswith("mixed.tflite for imxrt700: ")
    assert "\n" not in str(program) and repr(program) == "CompiledLiteRTModel()"


def test_a_loaded_file_has_html(program: CompiledLiteRTModel, tmp_path: Path) -> None:
    program.save(tmp_path / "net.tflite")
    loaded = openneutron.load(tmp_path / "net.tflite")
    page = loaded._repr_html_()
    assert page == loaded.summary()._repr_html_()  # type: ignore[attr-defined]
    assert "net.tflite" in Tags(page).texts
    assert Tags(page).seen <= TAGS
