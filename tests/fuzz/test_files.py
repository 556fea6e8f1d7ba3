# SPDX-License-Identifier: BSD-3-Clause
"""Slices of the damaged files of ``tests.fuzz.files``, in a process whose memory is limited, and of ``tests.fuzz.exported_files``."""

from __future__ import annotations

import subprocess
import sys

import pytest

MUTANTS = 240
EXPORTED = 16


def test_damaged_files_work_or_are_refused_in_bounded_memory() -> None:
    command = [sys.executable, "-m", "tests.fuzz.files", "0", str(MUTANTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{MUTANTS} mutants, 0 faults of 0 kinds\n"), done.stdout + done.stderr


@pytest.mark.filterwarnings("ignore")
def test_damaged_exported_programs_compile_or_are_refused() -> None:
    pytest.importorskip("executorch")
    from tests.fuzz.exported_files import every, fault, seed, use

    use(seed())
    assert {words: found for words, made in every()[:EXPORTED] if (found := fault(made()))} == {}
