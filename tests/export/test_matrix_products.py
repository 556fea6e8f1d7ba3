# SPDX-License-Identifier: BSD-3-Clause
"""A folder of a model with matrix products on the NPU of i.MX 95, compiled for aarch64 and run with the model of the NPU as NXP's driver."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from openneutron.compiler import compile_graph
from openneutron.errors import InvalidModelError
from openneutron.features.export.bundle import export_bundle
from tests.fuzz import driver
from tests.support import aarch64, random_graphs
from tests.support.litert_files import graph_file
from tests.support.objects import compiled
from tests.support.tools import required

COMPILER = "aarch64-linux-gnu-gcc"
PASSED = "layer\nt2: 32 of 32 bytes as expected\npassed\n"
NO_LIBRARY = (
    "the NPU's driver can't be loaded: nowhere.so: cannot open shared object file: No such file or directory; set "
    "OPENNEUTRON_NEUTRON_DRIVER to its path, or OPENNEUTRON_WITHOUT_NPU to cpu"
)
NO_MEMORY = (
    "the NPU's driver has no buffer of 8512 bytes; raise the contiguous memory of the system (cma= of the kernel's command line), or "
    "set OPENNEUTRON_WITHOUT_NPU to cpu"
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A linear layer that is one matrix product on the NPU."""
    graph = random_graphs.single("fully_connected", 3)
    with driver.every_product():
        program = compile_graph(graph, driver.with_release()).program
    path = tmp_path_factory.mktemp("products") / "layer.tflite"
    path.write_bytes(graph_file(graph, program))
    return path


@pytest.fixture(scope="module")
def example(source: Path) -> Path:
    """The example of the exported folder, for aarch64."""
    folder = source.parent / "bundle"
    assert export_bundle(source, folder).form == "cmake"
    assert "/* Once. The arena is in memory of NXP's driver. */\n" in (folder / "README.md").read_text()
    names = re.findall(r"LIST_DIR}/([\w/]+\.c)", (folder / "sources.cmake").read_text())
    sources = [folder / name for name in (*names, "example/main.c", "example/board_stdio.c") if "threads" not in name]
    places = ("include", "model", "src", "example", "runtime/include", "runtime/ports/host", "runtime/ports/cortex_m33")
    flags = ["-std=gnu99", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-DNEUTRON_OWN_SYSTEM"]
    objects = source.parent / "objects"
    objects.mkdir()
    made = compiled(objects, COMPILER, [*flags, *(f"-I{folder / place}" for place in places)], sources)
    program = source.parent / "example"
    subprocess.run([required(COMPILER), *made, "-pthread", "-ldl", "-o", program], check=True)
    return program


@pytest.mark.parametrize(
    ("library", "memory", "on_cpu", "words"),
    [
        pytest.param(True, "1024", False, "", id="NPU"),
        pytest.param(False, "1024", False, NO_LIBRARY, id="no library"),
        pytest.param(True, "0", False, NO_MEMORY, id="no memory"),
        pytest.param(False, "1024", True, NO_LIBRARY, id="CPU without library"),
        pytest.param(True, "0", True, NO_MEMORY, id="CPU without memory"),
    ],
)
def test_it_runs_or_says_why_not(example: Path, library: bool, memory: str, on_cpu: bool, words: str) -> None:
    model = aarch64.library_folder() / "libneutron_device_model.so"
    variables = {
        "OPENNEUTRON_NEUTRON_DRIVER": str(model) if library else "nowhere.so",
        "NEUTRON_DEVICE_MODEL": f"memory_mib={memory}",
        "OPENNEUTRON_WITHOUT_NPU": "cpu" if on_cpu else "",
    }
    found = subprocess.run(
        [required(COMPILER), "-print-file-name=libc.so.6"], capture_output=True, text=True, check=True
    )
    command = [required("qemu-aarch64"), "-L", Path(found.stdout.strip()).resolve().parents[1], example]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **variables})
    if not words:
        assert (done.stdout, done.stderr, done.returncode) == (PASSED, "", 0)
    elif on_cpu:
        said = f"OpenNeutron: {words}. OPENNEUTRON_WITHOUT_NPU is cpu, so the CPU computes the matrix products.\n"
        assert (done.stdout, done.stderr, done.returncode) == (PASSED, said, 0)
    else:
        assert done.stdout.startswith("init: ") and done.stdout.endswith(f"\n{words}\n") and done.returncode == 1


def test_only_linux_has_the_driver(source: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError) as caught:
        export_bundle(source, tmp_path / "bundle", form="zephyr")
    assert str(caught.value) == (
        "'layer.tflite' has matrix products for the NPU of i.MX 95, whose driver is a library for Linux. Export it with --for cmake."
    )
