# SPDX-License-Identifier: BSD-3-Clause
"""The code on the page docs/raw-flow.md runs unchanged, and prints nothing that its reader can't act on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import openneutron


def test_the_code_of_the_page_runs_and_nothing_is_on_stderr(root: Path, tmp_path: Path) -> None:
    """With every warning on, those that Python does not show by default included."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", (root / "docs/raw-flow.md").read_text(), re.DOTALL | re.MULTILINE)
    script = tmp_path / "raw_flow.py"
    script.write_text(code)
    command = [sys.executable, "-W", "default", str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    said = re.match(r"(\d+) of \1 operators on the NPU, in 1 delegate call\n", done.stdout)
    assert said is not None, done.stdout
    got, want = (
        [float(number) for number in re.findall(r"\d\.\d+", text)] for text in done.stdout.split("tensor(")[1:3]
    )
    assert len(got) == 4 and all(abs(a - b) <= 2 / 256 for a, b in zip(got, want, strict=True))
    loaded = openneutron.load(tmp_path / "model.pte")
    assert dict(loaded.on_cpu).keys() == {
        "quantized_decomposed::quantize_per_tensor.out",
        "quantized_decomposed::dequantize_per_tensor.out",
    }


@pytest.mark.parametrize(
    "command",
    [
        ("openneutron", "compile", "autoencoder", "--quiet", "-o", "made.pte"),
        ("examples.aot_neutron_compile", "-q", "-d", "-m", "autoencoder", "--use_random_dataset"),
    ],
    ids=lambda command: command[0],
)
def test_nothing_of_third_parties_is_on_stderr_of_commands(
    command: tuple[str, ...], root: Path, tmp_path: Path
) -> None:
    arguments = [sys.executable, "-W", "default", "-m", *command]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(tmp_path.glob("*.pte"))) == 1
