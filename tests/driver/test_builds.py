# SPDX-License-Identifier: BSD-3-Clause
"""Builds other than the package's own: without a heap, and with a kernel selection in place of the library's table."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.support import programs
from tests.support.objects import compiled
from tests.support.runtime_builds import RUNTIME, WITHOUT_HEAP, c_compiler, driver_sources, kernel_sources, written

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


def test_no_heap_and_kernel_selection(tmp_path: Path) -> None:
    """One lookup program; the executable holds no allocation and no kernel but that one."""
    library = tmp_path / "libneutron.a"
    compiler = c_compiler()
    objects = sorted(compiled(tmp_path, compiler, WITHOUT_HEAP, [*driver_sources(), *kernel_sources()]))
    subprocess.run(["ar", "rcs", library, *objects], check=True)
    undefined = subprocess.run(["nm", "-u", library], capture_output=True, text=True, check=True).stdout
    called = set(re.findall(r" U (\w+)", undefined))
    assert called & {"malloc", "free", "calloc", "printf", "fprintf", "puts"} == set()

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
