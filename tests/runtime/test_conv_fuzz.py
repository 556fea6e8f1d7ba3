# SPDX-License-Identifier: BSD-3-Clause
"""Random calls, sound and damaged: what check accepts runs inside its memory, and all variants agree."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.runtime.convolution_calls import FLAGS, SOURCES

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
CASES = 20_000


def test_accepted_calls_stay_inside_their_memory_and_variants_agree(tmp_path: Path) -> None:
    program = tmp_path / "fuzz"
    main = Path(__file__).parent / "fuzz_convolution.c"
    subprocess.run(
        ["gcc", *FLAGS, "-O1", "-g", *SANITIZERS, "-o", str(program), str(main), *map(str, SOURCES)], check=True
    )
    done = subprocess.run([str(program), "1", str(CASES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    counts = re.fullmatch(r"sound (\d+) damaged (\d+) portable (\d+) avx2 \d+ avx512vnni \d+ differ 0\n", done.stdout)
    assert counts, done.stdout
    sound, damaged, portable = (int(count) for count in counts.groups())
    assert sound > CASES // 3 and damaged > CASES // 20 and portable > sound
