# SPDX-License-Identifier: BSD-3-Clause
"""The table of all cases, docs/people.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.suites.people.case import CASES, Case, Result
from tests.suites.people.kinds import KINDS

PAGE = Path(__file__).parents[3] / "docs" / "people.md"

SHORT = "**short**"

HEAD = """# Models as people write them

Small models of everyday work: networks written by hand, detector heads, masks, streams, several inputs and outputs, integers, files.
Each is quantized with eight samples, compiled for i.MX RT700 unless its row names another chip, run on the simulated NPU, and compared with
the float model over four samples, or with LiteRT's reference kernels for a file. The bar is the least signal to noise ratio of each
output in dB; a case without another bar also has to run whole in one delegate call.

Made by `python -m tests.suites.people --write`; with names of cases in front, it measures and writes these alone.

"""


def page(results: Mapping[str, Result], before: str = "") -> str:
    """Return the text of the page. Cases without a result here have the row that they have in the page ``before``."""
    known = rows(before)
    cells = {name: _cell(one, results[name]) if name in results else known[name][1] for name, one in CASES.items()}
    good = sum(not cell.startswith(SHORT) for cell in cells.values())
    text = HEAD + f"{good} of {len(cells)} cases reach their bar.\n"
    for kind, words in KINDS.items():
        text += f"\n## {words}\n\n| case | bar | result |\n| --- | --- | --- |\n"
        for name, one in CASES.items():
            if one.kind == kind:
                text += f"| {name} | {bar(one)} | {cells[name]} |\n"
    return text


def rows(text: str) -> dict[str, tuple[str, str]]:
    """Return the bars and the results on a page by the names of the cases."""
    lines = (
        line.removeprefix("| ").removesuffix(" |").split(" | ", 2)
        for line in text.splitlines()
        if line.startswith("| ")
    )
    return {name: (bars, result) for name, bars, result in lines if name not in ("case", "---")}


def bar(one: Case) -> str:
    """Return the bar of a case in words."""
    if one.refused:
        return "refused"
    bars = one.bar if isinstance(one.bar, tuple) else (one.bar,)
    words = " / ".join(f"{each:g}" for each in bars)
    words += "" if one.calls == 1 else f", {one.calls} calls"
    return words + ("" if one.target == "imxrt700" else f", {one.target}")


def _cell(one: Case, result: Result) -> str:
    text = result.text.replace("|", "\\|")
    text += f" ({one.reason})" if one.reason else ""
    return text if result.good else f"{SHORT}: {text}"
