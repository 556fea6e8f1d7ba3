# SPDX-License-Identifier: BSD-3-Clause
"""Firmware of a model with state over a long stream, in QEMU's Cortex-M33: the bytes of the simulator, before and behind a reset.

python -m tests.export.long_stream noise_suppression          # a built-in network with states, 1,000 frames
python -m tests.export.long_stream streaming_tcn --frames 200
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from openneutron.features.export import read
from openneutron.features.export.bundle import export_bundle
from tests.export.bundles import built, run

MAIN = Path(__file__).parent / "stream_main.c"
FRAMES = 1000
CALIBRATION = 32


def run_stream(program: Any, frames: int, folder: Path) -> tuple[int, str]:
    """Return the exit code and the output of a bundle of the program, whose example is ``stream_main.c`` on random frames."""
    with patch.object(read, "FRAMES", frames):
        export_bundle(program, folder)
    shutil.copy(MAIN, folder / "example" / "main.c")
    built(folder, "-DOPENNEUTRON_WERROR=ON")
    done = run(folder)
    return done.returncode, done.stdout + done.stderr


def main() -> int:
    """Run a built-in network and print the result."""
    import openneutron
    from openneutron.pytorch.source import models

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=models.names())
    parser.add_argument("--frames", type=int, default=FRAMES)
    given = parser.parse_args()
    model, example = models.get(given.name)
    calibration = models.samples(given.name, CALIBRATION)
    program = openneutron.compile(model, example, calibration=calibration, name=given.name)
    with tempfile.TemporaryDirectory() as folder:
        code, text = run_stream(program, given.frames, Path(folder) / "bundle")
    print(f"{given.name}, {given.frames} frames: {text}", end="")
    return code


if __name__ == "__main__":
    sys.exit(main())
