# SPDX-License-Identifier: BSD-3-Clause
"""A slice of the damaged files of ``tests.fuzz.files``, in a process whose memory is limited."""

from __future__ import annotations

import subprocess
import sys

MUTANTS = 240


def test_damaged_files_work_or_are_refused_in_bounded_memory() -> None:
    command = [sys.executable, "-m", "tests.fuzz.files", "0", str(MUTANTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{MUTANTS} mutants, 0 faults of 0 kinds\n"), done.stdout + done.stderr
