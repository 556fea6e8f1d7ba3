# SPDX-License-Identifier: BSD-3-Clause
"""Count the instructions of an inference on Cortex-A55: our runtime, and beside it LiteRT with XNNPACK.

``python -m bench cortex_a --litert FOLDER`` takes a folder with LiteRT for aarch64; without one, our figures stand alone. The folder
has a Python for aarch64 in ``root`` and LiteRT's wheel with NumPy in ``site``. On Debian 12 these commands make it::

    pip download --no-deps --only-binary :all: --python-version 3.11 --platform manylinux_2_27_aarch64 \\
        --platform manylinux_2_28_aarch64 --dest wheels ai-edge-litert numpy
    for wheel in wheels/*.whl; do unzip -q $wheel -d FOLDER/site; done
    dpkg --add-architecture arm64 && apt-get update
    for package in libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 libffi8 libssl3 libbz2-1.0 liblzma5 libuuid1 \\
        libpython3.11-minimal libpython3.11-stdlib python3.11-minimal; do apt-get download $package:arm64; done
    for package in *.deb; do dpkg-deb -x $package FOLDER/root; done

QEMU's user mode executes both, and a plugin counts. The counts are an amount of work and no time: they know neither caches nor which
instructions a core issues together. Ours are those of the driver's call. LiteRT's are those between two calls
of the system that mark them in the guest; they contain the call of ``invoke`` from Python, which is about 3,000 instructions (a call of ``reset_all_variables`` is). XNNPACK chooses its kernels by
/proc/cpuinfo, so the guest reads one of a Cortex-A55. Both use one thread.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench import child

TITLE = "Instructions of one inference on Cortex-A55 (QEMU counts them)"
OPTIONS = ("litert",)
TOOLS = ("aarch64-linux-gnu-gcc", "qemu-aarch64")
RUNS = 5
"""Inferences of LiteRT that are counted, after two others."""
BUILDS = {"ours": ("-O3",), "portable": ("-O3", "-DNEUTRON_PORTABLE_ONLY")}
"""Flags for the compiler; the host library is built with -O3 too."""

CPUINFO = """processor\t: 0
BogoMIPS\t: 50.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x2
CPU part\t: 0xd05
CPU revision\t: 0

"""
"""Of a Cortex-A55: part 0xD05 of implementer 0x41 (its Technical Reference Manual, MIDR_EL1)."""

SCRIPT = """
import os, sys, numpy
from ai_edge_litert.interpreter import Interpreter
model, inputs, outputs, runs = sys.argv[1:]
interpreter = Interpreter(model, num_threads=1)
interpreter.allocate_tensors()
given, at = numpy.fromfile(inputs, numpy.int8), 0
for detail in interpreter.get_input_details():
    size = int(numpy.prod(detail["shape"]))
    interpreter.set_tensor(detail["index"], given[at : at + size].reshape(detail["shape"]))
    at += size
for _ in range(2):
    interpreter.invoke()
os.getppid()
for _ in range(int(runs)):
    interpreter.invoke()
os.getppid()
results = [interpreter.get_tensor(detail["index"]).ravel() for detail in interpreter.get_output_details()]
numpy.concatenate(results).tofile(outputs)
"""


def measure(litert: str | None = None) -> dict[str, Any]:
    """Return the counts of each shared model; nothing without the tools."""
    if any(shutil.which(tool) is None for tool in TOOLS):
        return {}
    folder = "" if litert is None else str(Path(litert).resolve())
    return child.module_json("bench.cortex_a", folder, *map(str, child.shared_models()))  # type: ignore[no-any-return]


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and lines of the printed table."""
    heads = ("model", "portable", "ours", "XNNPACK", "ratio", "largest difference")
    lines: list[tuple[str, ...]] = [] if results else [(f"left out: it takes {' and '.join(TOOLS)}", *("-",) * 5)]
    for model, cell in results.items():
        theirs = cell["theirs"]
        counts = (f"{cell['portable']:,}", f"{cell['ours']:,}")
        total, apart = (theirs["total"], str(theirs["largest_difference"])) if theirs else (None, "-")
        beside = (f"{total:,}", f"{cell['ours'] / total:.2f}") if total else ("-", "-")
        lines.append((child.short_name(model), *counts, *beside, apart))
    return heads, lines


def _measured(model: Path, folder: Path | None) -> dict[str, Any]:
    import numpy as np

    from bench import aarch64
    from openneutron import litert, targets
    from openneutron.compiler import CompileOptions, compile_graph
    from openneutron.litert.interpret import interpret
    from tests.cortex_m33.cases import Case

    graph = litert.read(model).graph
    random = np.random.default_rng(0)
    inputs = [random.integers(-128, 128, graph[name].shape, np.int8) for name in graph.inputs]
    given = b"".join(values.tobytes() for values in inputs)
    wanted = b"".join(value.tobytes() for value in interpret(model.read_bytes(), inputs))
    program = compile_graph(graph, targets.get("cortex-a55"), CompileOptions(io_place="caller")).program
    counts = {}
    for name, flags in BUILDS.items():
        (done,) = aarch64.run([Case(program, (given,))], flags)
        assert done.runs[0].outputs == wanted, f"{model.name}: our outputs are not LiteRT's"
        counts[name] = done.runs[0].ticks
    if folder is None:
        return {**counts, "theirs": None}
    total, outputs = _run(folder, model, given)
    apart = np.frombuffer(outputs, np.int8).astype(int) - np.frombuffer(wanted, np.int8)
    return {**counts, "theirs": {"total": total, "largest_difference": int(abs(apart).max())}}


def _run(folder: Path, model: Path, inputs: bytes) -> tuple[int, bytes]:
    """Return the instructions of an inference with LiteRT, and its outputs."""
    import tempfile

    from bench import aarch64

    cpuinfo = folder / "root" / "proc" / "cpuinfo"
    cpuinfo.parent.mkdir(exist_ok=True)
    cpuinfo.write_text(CPUINFO)
    paths = {"PYTHONPATH": folder / "site", "PYTHONHOME": folder / "root" / "usr"}
    variables = {**paths, "PYTHONDONTWRITEBYTECODE": 1, "PYTHONHASHSEED": 0}
    settings = [word for name, value in variables.items() for word in ("-E", f"{name}={value}")]
    (python,) = (folder / "root" / "usr" / "bin").glob("python3.[0-9]*")
    with tempfile.TemporaryDirectory() as files:
        (Path(files) / "inputs").write_bytes(inputs)
        guest: list[str | Path] = [python, "-c", SCRIPT, model, "inputs", "outputs", str(RUNS)]
        machine: list[str | Path] = [
            "qemu-aarch64",
            "-cpu",
            aarch64.CPU,
            "-L",
            folder / "root",
            "-plugin",
            aarch64.plugin(),
        ]
        done = subprocess.run([*machine, *settings, *guest], cwd=files, capture_output=True, text=True, check=False)
        counted = re.findall(r"^instructions (\d+)$", done.stderr, re.MULTILINE)
        if done.returncode != 0 or len(counted) != 2:
            raise RuntimeError(f"LiteRT in {folder} exits with {done.returncode}:\n{done.stderr[-2000:]}")
        return (int(counted[1]) - int(counted[0])) // RUNS, (Path(files) / "outputs").read_bytes()


if __name__ == "__main__":
    litert_folder = Path(sys.argv[1]) if sys.argv[1] else None
    print(json.dumps({Path(model).stem: _measured(Path(model), litert_folder) for model in sys.argv[2:]}))
