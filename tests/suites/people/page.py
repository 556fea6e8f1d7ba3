# SPDX-License-Identifier: BSD-3-Clause
"""The table of all cases, docs/people.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.suites.people.case import CASES, Case, Result
from tests.suites.people.kinds import KINDS

PAGE = Path(__file__).parents[3] / "docs" / "people.md"

HEAD = """# Models as people write them

Small models of everyday work: networks written by hand, detector heads, masks, streams, several inputs and outputs, integers, files.
Each is quantized with eight samples, compiled for i.MX RT700 unless its row names another chip, run on the simulated NPU, and compared with
the float model over four samples, or with LiteRT's reference kernels for a file. The bar is the least signal to noise ratio of each
output in dB; a case without another bar also has to run whole in one delegate call.

Made by `python -m tests.suites.people --write`.

"""


def page(results: Mapping[str, Result]) -> str:
    """Return the text of the page."""
    good = sum(result.good for result in results.values())
    text = HEAD + f"{good} of {len(results)} cases reach their bar.\n"
    for kind, words in KINDS.items():
        text += f"\n## {words}\n\n| case | bar | result |\n| --- | --- | --- |\n"
        for name, result in results.items():
            if CASES[name].kind == kind:
                text += f"| {name} | {_bar(CASES[name])} | {_cell(CASES[name], result)} |\n"
    return text


def _bar(one: Case) -> str:
    if one.refused:
        return "refused"
    bars = one.bar if isinstance(one.bar, tuple) else (one.bar,)
    words = " / ".join(f"{bar:g}" for bar in bars)
    words += "" if one.calls == 1 else f", {one.calls} calls"
    return words + ("" if one.target == "imxrt700" else f", {one.target}")


def _cell(one: Case, result: Result) -> str:
    text = result.text.replace("|", "\\|")
    text += f" ({one.reason})" if one.reason else ""
    return text if result.good else f"**short**: {text}"
