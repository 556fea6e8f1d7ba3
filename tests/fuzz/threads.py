# SPDX-License-Identifier: BSD-3-Clause
"""Calls that are computed in parts: data races, then random mutations of programs: ``python -m tests.fuzz.threads FIRST COUNT``.

Programs that call every kernel run in two to four threads under the thread sanitizer.

Each mutation that the driver accepts runs whole and with each call in two to four parts, the last part first, on the same memory. The results
are equal, since the driver divides a call only where no part writes what another part reads. The address and undefined-behaviour sanitizers see
accesses outside of the buffers, and outside of the scratch that each part has of its own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.driver.races import races
from tests.support.fuzz_seeds import covering, seeds, write_seeds
from tests.support.fuzzer import build
from tests.support.runtime_builds import driver_sources, kernel_sources

DEFINITIONS = ("-DNEUTRON_THREADS",)


def main(first: int, count: int) -> int:
    """Look for data races in all kernels, then run the mutations, and print how many ended in which error. Return the exit code."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "races").mkdir()
        found = races(folder / "races", covering(), [*driver_sources(), *kernel_sources()])
        if found:
            print(found)
            return 1
        command: list[str | Path] = [build(folder, *DEFINITIONS), "11", str(first), str(count)]
        return subprocess.run([*command, *write_seeds(folder, seeds())], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
