# SPDX-License-Identifier: BSD-3-Clause
"""The page for users of TensorFlow Lite Micro: both sides of its diff compile, and the new side computes what the simulator does."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from openneutron.compiler import compile_graph
from openneutron.features.export.bundle import export_bundle
from scripts.published_networks import cifarnet
from tests.export.bundles import host_objects
from tests.support import oracle
from tests.support.litert_files import graph_file
from tests.support.tools import required

pytestmark = pytest.mark.without_tiles("a bundle is firmware of a core that runs the kernels")

STAND_IN = Path(__file__).parent / "stand_ins" / "tflite_micro"
FLAGS = ("-std=c++17", "-Wall", "-Wextra", "-Wconversion", "-Werror")

MAIN = """
extern "C" {
#include "golden.h"
}
int main() {
    static int8_t scores[KWS_OUTPUT0_BYTES];
    if (!start() || !classify(static_cast<const int8_t *>(golden[0].inputs[0]), scores)) return 1;
    return memcmp(scores, golden[0].outputs[0], sizeof scores) == 0 ? 0 : 2;
}
"""


def sides(root: Path) -> tuple[str, str]:
    """Return the old and the new program of the page."""
    (diff,) = re.findall(
        r"```diff\n(.*?)```", (root / "docs" / "how-to" / "from-tflite-micro.md").read_text(), re.DOTALL
    )
    lines = [(line[:1] or " ", line[1:]) for line in diff.splitlines()]
    old, new = ("\n".join(text for sign, text in lines if sign in (" ", own)) + "\n" for own in "-+")
    assert sum(sign == "+" for sign, _ in lines) <= 10
    return old, new


def test_the_old_side_is_an_application_of_tflite_micro(root: Path, tmp_path: Path) -> None:
    old, _ = sides(root)
    (tmp_path / "old.cpp").write_text(old)
    command = [required("g++", "c++"), *FLAGS, f"-I{STAND_IN}", "-fsyntax-only", str(tmp_path / "old.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_new_side_runs(root: Path, tmp_path: Path) -> None:
    graph = cifarnet()
    model = tmp_path / "kws.tflite"
    model.write_bytes(graph_file(graph, compile_graph(graph, oracle.TARGET).program))
    export_bundle(model, tmp_path / "bundle")
    _, new = sides(root)
    (tmp_path / "new.cpp").write_text(new + MAIN)
    objects = host_objects(tmp_path / "bundle", tmp_path, tmp_path / "bundle" / "example" / "golden.c")
    places = (f"-I{tmp_path / 'bundle' / name}" for name in ("include", "model", "runtime/include", "example"))
    command = [required("g++", "c++"), *FLAGS, *places, tmp_path / "new.cpp", *objects, "-o", tmp_path / "new"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert subprocess.run([tmp_path / "new"], check=False).returncode == 0
