# SPDX-License-Identifier: BSD-3-Clause
"""Programs whose calls several threads compute, under the thread sanitizer."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from openneutron.isa import Program
from tests.driver.sanitized import FLAGS, RUNTIME
from tests.support.fuzz_seeds import write_seeds
from tests.support.objects import compiled
from tests.support.tools import sanitizing_compiler

HOST = RUNTIME / "ports" / "host"


def races(folder: Path, programs: Sequence[Program], sources: Sequence[str | Path], *flags: str) -> str:
    """Return the differences and data races of programs that two to four threads compute, as text.

    ``sources`` are those of the driver and the kernels.
    """
    compiler = sanitizing_compiler(("-fsanitize=thread",))
    flags = (*FLAGS, "-DNEUTRON_THREADS", f"-I{HOST}", *flags)
    own = [HOST / "host_threads.c", Path(__file__).parent / "parts_of_calls.c"]
    objects = compiled(folder, compiler, flags, [*own, *sources])
    subprocess.run([compiler, *FLAGS, *objects, "-o", folder / "parts"], check=True)
    command = [folder / "parts", *write_seeds(folder, programs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unexpected memory mapping" in done.stderr:
        done = subprocess.run(["setarch", "-R", *command], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 66), done.stderr
    return done.stdout + done.stderr
