# SPDX-License-Identifier: BSD-3-Clause
"""Builds other than the package's own: without a heap, and with a kernel selection in place of the library's table."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.support import fuzzer, programs
from tests.support.objects import compiled
from tests.support.runtime_builds import (
    MEMORY_CHECKED,
    RUNTIME,
    WITHOUT_HEAP,
    c_compiler,
    driver_sources,
    kernel_sources,
    written,
)
from tests.support.tools import sanitizing_compiler

SELECTION = """
#include "selection.h"
#define NEUTRON_KERNEL NEUTRON_KERNEL_DECLARATION
{lines}
#undef NEUTRON_KERNEL
#define NEUTRON_KERNEL NEUTRON_KERNEL_ENTRY
const NeutronKernel neutron_kernels[] = {{
{lines}
}};
const uint32_t neutron_kernel_count = sizeof(neutron_kernels) / sizeof(neutron_kernels[0]);
"""


FORBIDDEN = {"malloc", "free", "calloc", "printf", "fprintf", "puts"}


def needed(files: Iterable[Path]) -> set[str]:
    """Return the symbols that objects or libraries need from elsewhere."""
    undefined = subprocess.run(["nm", "-u", *files], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r" U (\w+)", undefined))


def test_no_kernel_for_this_machine_has_a_heap(tmp_path: Path) -> None:
    """The variants for this machine's vectors too, as the fuzzer has them."""
    objects = compiled(tmp_path, sanitizing_compiler(MEMORY_CHECKED), fuzzer.flags_with(), kernel_sources())
    assert needed(objects) & FORBIDDEN == set()


def test_no_heap_and_kernel_selection(tmp_path: Path) -> None:
    """One lookup program; the executable holds no allocation and no kernel but that one."""
    library = tmp_path / "libneutron.a"
    compiler = c_compiler()
    objects = sorted(compiled(tmp_path, compiler, WITHOUT_HEAP, [*driver_sources(), *kernel_sources()]))
    subprocess.run(["ar", "rcs", library, *objects], check=True)
    assert needed([library]) & FORBIDDEN == set()

    definition = (RUNTIME / "kernels" / "kernels.def").read_text()
    selection = tmp_path / "lookup_kernel_selection.c"
    selection.write_text(
        SELECTION.format(lines="\n".join(re.findall(r"NEUTRON_KERNEL\(\d+, lookup_s8.*\)", definition)))
    )
    runner = tmp_path / "no_heap"
    harness = Path(__file__).parent / "no_heap.c"
    subprocess.run(
        [compiler, *WITHOUT_HEAP, harness, selection, library, "-Wl,--gc-sections", "-o", runner], check=True
    )
    symbols = subprocess.run(["nm", runner], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"(\w+_s8)_run", symbols)) == {"lookup_s8"}

    done = subprocess.run(
        [runner, *written(tmp_path, programs.inverted_twice())], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, bytes(range(90)).hex())
