# SPDX-License-Identifier: BSD-3-Clause
"""Random calls, sound and damaged: what check accepts runs inside its memory, and all variants agree."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.support.convolution_calls import SOURCES, variants
from tests.support.objects import compiled
from tests.support.runtime_builds import INCLUDES, MEMORY_CHECKED
from tests.support.tools import sanitizing_compiler

CASES = 20_000
WIDE_CASES = 8_000
RESULT = re.compile(r"sound (\d+) damaged (\d+) portable (\d+) vector (\d+) differ 0 checksum ([0-9a-f]{8})\n")
WIDE_RESULT = re.compile(r"sound (\d+) damaged (\d+) ran (\d+) checksum ([0-9a-f]{8})\n")


def _run(
    folder: Path, compiler: str, *flags: str, main: str = "fuzz_convolution.c", cases: int = CASES
) -> tuple[list[int], str]:
    folder.mkdir()
    objects = compiled(folder, compiler, [*flags, *INCLUDES], [Path(__file__).with_name(main), *SOURCES])
    subprocess.run([compiler, *flags, "-o", "fuzz", *objects], cwd=folder, check=True)
    done = subprocess.run([folder / "fuzz", "1", str(cases)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    result = (RESULT if main == "fuzz_convolution.c" else WIDE_RESULT).fullmatch(done.stdout)
    assert result, done.stdout
    *counts, checksum = result.groups()
    return [int(count) for count in counts], checksum


def test_accepted_calls_stay_inside_their_memory_and_variants_agree(tmp_path: Path) -> None:
    (sound, damaged, portable, vector), checksum = _run(
        tmp_path / "sanitized", sanitizing_compiler(MEMORY_CHECKED), *MEMORY_CHECKED
    )
    assert sound > CASES // 3 and damaged > CASES // 20 and portable > sound
    assert vector > (sound // 2 if "avx2" in variants() else -1)
    # Without a vector instruction of its own, as on a microcontroller.
    *_, plain = _run(tmp_path / "plain", "gcc", "-std=c11", "-O3", "-fPIC", "-DNEUTRON_PORTABLE_ONLY")
    assert plain == checksum


def test_accepted_calls_on_int16_stay_inside_their_memory_and_variants_agree(tmp_path: Path) -> None:
    main = "fuzz_convolution_16.c"
    (sound, damaged, ran), checksum = _run(
        tmp_path / "sanitized", sanitizing_compiler(MEMORY_CHECKED), *MEMORY_CHECKED, main=main, cases=WIDE_CASES
    )
    assert sound > WIDE_CASES // 3 and damaged > WIDE_CASES // 20 and ran > sound
    *_, plain = _run(
        tmp_path / "plain", "gcc", "-std=c11", "-O3", "-fPIC", "-DNEUTRON_PORTABLE_ONLY", main=main, cases=WIDE_CASES
    )
    assert plain == checksum
