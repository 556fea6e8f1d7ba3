# SPDX-License-Identifier: BSD-3-Clause
"""A kernel's run survives every accepted parameter block: random words under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import pytest

from openneutron.isa.rows import KERNEL_BY_NAME
from tests.runtime import element_calls
from tests.support.built_once import built_once
from tests.support.objects import compiled
from tests.support.runtime_builds import INCLUDES, MEMORY_CHECKED, RUNTIME
from tests.support.tools import sanitizing_compiler

ROUNDS = 60_000


@functools.cache
def program() -> Path:
    """Return the executable that calls the checks and runs of ``element_calls.KERNELS`` with random words."""

    def build(folder: Path) -> None:
        lines = (RUNTIME / "kernels" / "kernels.def").read_text().splitlines()
        wanted = [f", {name}, " for name in element_calls.KERNELS]
        selected = [
            line for line in lines if line.startswith("NEUTRON_KERNEL(") and any(name in line for name in wanted)
        ]
        (folder / "selection.def").write_text("\n".join(selected) + "\n")
        sources = [Path(__file__).with_name("fuzz_checks.c"), *element_calls.SOURCES]
        compiler = sanitizing_compiler(MEMORY_CHECKED)
        definition = f'-DSELECTION="{folder / "selection.def"}"'
        objects = compiled(folder, compiler, [*MEMORY_CHECKED, *INCLUDES, definition], sources)
        subprocess.run([compiler, *MEMORY_CHECKED, "-o", "fuzz_checks", *objects], cwd=folder, check=True)

    return built_once("fuzz-checks", build) / "fuzz_checks"


def _is_convolution(kernel: str) -> bool:
    """Return True for convolutions. Random words make none that is accepted, so test_conv_fuzz.py calls these kernels."""
    return any(field.name == "requant_base" for field in KERNEL_BY_NAME[kernel].fields)


@pytest.mark.parametrize("kernel", [name for name in element_calls.KERNELS if not _is_convolution(name)])
def test_what_check_accepts_run_survives(kernel: str) -> None:
    row = KERNEL_BY_NAME[kernel]
    words = [field.name for field in row.fields]
    channels = next((words.index(name) for name in ("channels", "group_channels") if name in words), len(words) - 1)
    # Random offsets of two constants are seldom both inside the memory.
    rounds = ROUNDS * max(1, sum(name.endswith("_base") for name in words)) ** 2
    # So do blocks of rows, and groups of channels of another width.
    rounds *= 6 if {"block_rows", "sums"} & set(words) else 1
    arguments = [str(row.code), "7", str(rounds), str(channels)]
    finished = subprocess.run([program(), *arguments], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert int(finished.stdout) > 50, "the random words are refused nearly always: they test nothing"
