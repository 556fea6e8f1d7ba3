# SPDX-License-Identifier: BSD-3-Clause
"""The chip file of a board: that of the chip, with measured facts about jobs."""

from __future__ import annotations

import re
from importlib.resources import files

from openneutron.features.board.cases import PACKED_SIGNED, WITHOUT
from openneutron.features.board.findings import Findings, rescaling
from openneutron.targets import KNOWN

_UNNAMED = re.compile(r"[^A-Za-z0-9_-]+")
_UNQUOTED = re.compile(r"[^A-Za-z0-9_.+ -]+")


def chip_text(found: Findings, name: str) -> str:
    """Return the TOML of i.MX 95 with the board's facts in its table ``jobs``; facts that the check does not show stay as they are."""
    assert found.form is not None, "a board without a form of jobs has no chip file"
    text = (files("openneutron.targets") / "chips" / "imx95.toml").read_text()
    source = f"measured: openneutron board, kernel {_UNQUOTED.sub(' ', found.kernel).strip()}"
    kinds = (PACKED_SIGNED,) if found.form == "third" else (WITHOUT,)
    wrong = found.wrong_k(kinds)
    right = sorted({result.case.k for result in found.of(kinds)} - set(wrong))
    measured = {"release": f'["{found.form}"]', "right_k": str(right), "wrong_k": str(wrong)}
    if found.times is not None:
        measured["overhead"] = f"{found.times.overhead_us:.4g}"
        rates = {"bandwidth": found.times.bytes_per_ns, "macs": found.times.products_per_ns}
        measured |= {fact: f"{rate:.4g}" for fact, rate in rates.items() if rate is not None}
    head, jobs, tail = _parts(text)
    for fact, value in measured.items():
        unit = r'(?P<unit>, unit = "[^"]*")?'
        pattern = re.compile(rf'^{fact} = \{{ value = (?:\[[^\]]*\]|[^,]*){unit}, source = "[^"]*" \}}$', re.MULTILINE)
        jobs, count = pattern.subn(
            lambda match, fact=fact, value=value: (  # type: ignore[misc]
                f'{fact} = {{ value = {value}{match["unit"] or ""}, source = "{source}" }}'
            ),
            jobs,
        )
        assert count == 1, f"imx95.toml has one line for jobs.{fact}"
    if 1 in found.rescaled:
        # A comment: no program depends on it.
        jobs = jobs.replace("[jobs]\n", f"[jobs]\n# With --rescale npu: {rescaling(1, found.rescaled[1])}\n", 1)
    named = _UNNAMED.sub("-", name)
    named = f"{named}-board" if named in KNOWN or not named[:1].isalpha() else named
    head = re.sub(r'^name = ".*"$', f'name = "{named}"', head, count=1, flags=re.MULTILINE)
    return head + jobs + tail


def _parts(text: str) -> tuple[str, str, str]:
    """Return the text before the table ``jobs``, the table, and the text behind it."""
    start = text.index("[jobs]\n")
    end = text.index("\n[", start)
    return text[:start], text[start:end], text[end:]
