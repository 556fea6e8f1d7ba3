# SPDX-License-Identifier: BSD-3-Clause
"""Writes every generated file of the project anew; tests/test_generated.py compares them with what is committed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from scripts import (
    commands_page,
    drawings,
    errors_page,
    firmware_page,
    json_schema,
    microcode_page,
    options_page,
    pictures,
    runtime_headers,
    supported_ops_page,
    targets_page,
)

ROOT = Path(__file__).parents[1]

GENERATED: dict[str, Callable[[], str]] = {
    "runtime/include/neutron_isa.h": runtime_headers.header_text,
    "runtime/kernels/kernels.def": runtime_headers.kernels_def_text,
    "runtime/driver/parts.def": runtime_headers.parts_def_text,
    "docs/microcode.md": microcode_page.text,
    "docs/supported-ops.md": supported_ops_page.text,
    "docs/options.md": options_page.text,
    "docs/targets.md": targets_page.text,
    "docs/reference/commands.md": commands_page.text,
    "docs/reference/json.schema.json": json_schema.text,
    "docs/reference/errors.md": errors_page.text,
    "docs/assets/terminal.svg": pictures.terminal_svg,
    "docs/assets/memory.svg": pictures.memory_svg,
    **drawings.DRAWINGS,
    "docs/firmware.md": firmware_page.text,  # last: it compiles what the ones before it wrote
}
"""Each generated file and what makes its text."""


def main() -> None:
    for name, make in GENERATED.items():
        (ROOT / name).write_text(make())


if __name__ == "__main__":
    main()
