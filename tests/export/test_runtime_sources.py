# SPDX-License-Identifier: BSD-3-Clause
"""The runtime's files that a bundle gets: enough to link, and no other kernel's."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import pytest

from openneutron.device.runtime_sources import runtime_folder, sources_of
from openneutron.isa import rows
from tests.cortex_m33.firmware import library
from tests.support.tools import required

KERNELS = [row.name for row in rows.KERNELS]
FROM_THE_C_LIBRARY = {"memcpy", "memset"}


@cache
def symbols() -> dict[str, tuple[set[str], set[str]]]:
    """Return the symbols that each object of the Cortex-M33 library defines and needs, by its source's stem."""
    folder = library().parent
    listed = subprocess.run(
        [required("arm-none-eabi-nm"), "-A", *map(str, sorted(folder.glob("*.o")))],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found: dict[str, tuple[set[str], set[str]]] = {}
    for line in listed.splitlines():
        place, rest = line.rsplit(".o:", 1)
        kind, name = rest.split()[-2:]
        defined, needed = found.setdefault(Path(place).name, (set(), set()))
        (needed if kind == "U" else defined).add(name)
    return found


@pytest.mark.parametrize("kernel", KERNELS)
def test_one_kernel_links_alone(kernel: str) -> None:
    """Whatever its sources need is defined by one of the sources that come along, but for the table, which a selection has."""
    names = [Path(name).stem for name in sources_of([kernel]) if name.endswith(".c")]
    defined = {"neutron_kernels", "neutron_kernel_count", *FROM_THE_C_LIBRARY}
    needed = set()
    for name in names:
        has, wants = symbols().get(name, (set(), set()))
        defined |= has
        needed |= wants
    missing = {name for name in needed - defined if not name.startswith("__aeabi_")}
    assert missing == set()
    assert {f"{kernel}_check", f"{kernel}_run"} <= defined


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_other_kernel_comes_along(kernel: str) -> None:
    names = {Path(name).stem for name in sources_of([kernel])}
    assert names & set(KERNELS) == {kernel, *rows.run_by(kernel)}
    assert not any(".." in name for name in sources_of([kernel]))
    assert not any("_avx" in name and Path(name).suffix == ".c" for name in sources_of([kernel]))


def test_of_all_kernels_all_sources_come_along() -> None:
    """Nothing of the runtime is forgotten but the table, the ports, what checks a board or models one, and the sources for other machines."""
    folder = runtime_folder()
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*.[ch]")}
    left_out = there - sources_of(KERNELS).keys()
    beside = ("board/", "device_model/", "ports/")
    assert {name for name in left_out if not name.startswith(beside)} == {
        name for name in there if name == "kernels/table.c" or ("_avx" in name and name.endswith(".c"))
    } | {name for name in left_out if name.endswith("avx2.h")}
