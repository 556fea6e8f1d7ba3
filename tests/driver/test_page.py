# SPDX-License-Identifier: BSD-3-Clause
"""docs/runtime.md against the driver: its table of errors, and the names that it uses."""

from __future__ import annotations

import re
from pathlib import Path

from openneutron.device.simulator import library
from tests.support.altered_programs import CODES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "runtime.md").read_text()
HEADERS = "\n".join(path.read_text() for path in sorted((ROOT / "runtime" / "include").glob("*.h")))


def row(name: str, code: int) -> str:
    driver = library()
    category, text = driver.getNeutronErrorCategory(code).decode(), driver.neutronErrorText(code).decode()
    return f"| `ENEUTRON_{name}` | {code} (0x{code:x}) | {category} | {text} |"


def test_the_table_of_errors() -> None:
    """Every error, in the order of the header, in the driver's words."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| `ENEUTRON_")]
    in_order = sorted(CODES.items(), key=lambda item: item[1] >> 8)
    assert lines == [row(name, code) for name, code in in_order]
    assert library().getNeutronErrorComponent(CODES["NULL"]) == b"driver"
    assert library().getNeutronErrorCategory(0) == b"none"


def test_what_the_page_names_is_in_the_headers() -> None:
    names = set(re.findall(r"\b(neutron[A-Z]\w+|getNeutron\w+|[A-Z]+_ERROR_[A-Z]+|TRACE_CONFIG_\w+)\b", PAGE))
    assert len(names) > 15
    assert {name for name in names if not re.search(rf"\b{name}\b", HEADERS)} == set()


def test_switches_are_the_delegates() -> None:
    """Those of the page's table are those that its source lists, and each of them is asked for there."""
    source = (ROOT / "runtime" / "delegate" / "neutron_backend.cpp").read_text()
    listed = set(re.findall(r"^//   ([A-Z_]{6,})(?:=\d)? ", source, re.MULTILINE))
    assert len(listed) == 8
    assert {name for name in listed if not re.search(rf"#(if|ifdef|ifndef|elif defined)[ (]{name}\b", source)} == set()
    assert set(re.findall(r"^\| `(?!ENEUTRON_)([A-Z_]+)(?:=\w+)?` \|", PAGE, re.MULTILINE)) == listed
