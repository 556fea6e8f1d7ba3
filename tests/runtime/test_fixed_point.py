# SPDX-License-Identifier: BSD-3-Clause
"""The fixed-point products and shifts that all kernels use: gemmlowp's definitions, bit by bit."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.convolution_calls import FLAGS


def test_products_and_shifts_are_those_that_gemmlowp_defines(tmp_path: Path) -> None:
    program, source = tmp_path / "fixed_point", Path(__file__).parent / "fixed_point.c"
    sanitizers = ("-fsanitize=undefined", "-fno-sanitize-recover=all")
    subprocess.run(["gcc", *FLAGS, "-O2", *sanitizers, "-o", str(program), str(source)], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{(32 * 4 * 3 * 2) ** 2 + 1_000_000}\n"), done.stderr[-2000:]
