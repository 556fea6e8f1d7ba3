# SPDX-License-Identifier: BSD-3-Clause
"""Build the fuzzer of programs (tests/fuzz/fuzz.c) with the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.objects import compiled
from tests.support.runtime_builds import INCLUDES, MEMORY_CHECKED, ROOT, driver_sources, kernel_sources
from tests.support.tools import sanitizing_compiler

MAX_WORK = 1 << 24

VARIANTS = {"fast": [], "portable": ["-DNEUTRON_PORTABLE_ONLY"]}
"""The definitions of the two builds: with the kernels' variants for this machine, and with the portable ones alone."""


def flags_with(*definitions: str) -> list[str]:
    """Return the flags that compile the fuzzer, the driver and the kernels."""
    return [*MEMORY_CHECKED, *definitions, f"-DNEUTRON_MAX_WORK=UINT64_C({MAX_WORK})", *INCLUDES]


def sources() -> list[str | Path]:
    """Return the C sources of the fuzzer, the driver and the kernels."""
    return [ROOT / "tests" / "fuzz" / "fuzz.c", *driver_sources(), *kernel_sources()]


def build(folder: Path, *definitions: str, selection: str = "") -> Path:
    """Return the executable ``fuzz``; beside it ``fuzz_selected`` with the kernels of a kernel selection alone, if its text is given."""
    compiler = sanitizing_compiler(MEMORY_CHECKED)
    flags = flags_with(*definitions)
    objects = compiled(folder, compiler, flags, sources())
    more = {"fuzz": []}
    if selection:
        (folder / "selection.c").write_text(selection)
        more["fuzz_selected"] = compiled(folder, compiler, flags, [folder / "selection.c"])
    for name, own in more.items():
        subprocess.run([compiler, *MEMORY_CHECKED, *objects, *own, "-o", folder / name], check=True)
    return folder / "fuzz"
