# SPDX-License-Identifier: BSD-3-Clause
"""Count the instructions and the loaded bytes of a linear layer on Cortex-A55: our kernel, and beside it llama.cpp's.

llama.cpp is no part of this project. Its sources come from the sdist of ``llama-cpp-python`` (MIT), which ``pip download`` fetches, or
from the folder of ``--llama-cpp``, which has it. The files with the kernels are compiled for Cortex-A55. llama_cpp.c makes the calls of its
products of repacked weights: Q8_0 and Q4_0, weights in groups of 32, with the dot products of Armv8.2.

QEMU's user mode executes both, and a plugin counts. A product's count is the slope between two numbers of outputs, so it has neither
the quantization of the inputs nor the costs of a call; an input value's count is the rest. The counts are an amount of work and no time.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from openneutron import targets
from openneutron.compiler.rewrite.jobs import known_sizes
from openneutron.compiler.select.calls import JobWeights
from openneutron.device import neutron_jobs as jobs
from openneutron.isa import Program
from openneutron.language.decoder import Matrix
from openneutron.language.program import ON_CPU, TOGETHER_IN_DDR, matrix_words
from tests.language.kernel_calls import Single, span

TITLE = "Instructions and loaded bytes of linear layers on Cortex-A55, ours and llama.cpp's (QEMU counts them)"
OPTIONS = ("llama_cpp",)
LEFT = ("weights", "kernels")

TOOLS = ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++", "qemu-aarch64")
RELEASE = "llama_cpp_python-0.3.36"
REQUIREMENT = "llama-cpp-python==0.3.36"

FLAGS = ("-O3", "-mcpu=cortex-a55", "-DNDEBUG", "-w", "-static", "-ffunction-sections", "-fdata-sections")
"""llama.cpp's build of type Release on this core. Parts of ggml that no product reaches are left out by the linker."""
SOURCES = ("arch/arm/repack.cpp", "arch/arm/quants.c", "quants.c")
OURS = ("-O3", f"-DMOST_DATA={1 << 22}")
"""The flags of the host library."""

LAYERS = (2048, 6144)
"""The inputs of the linear layers of Qwen3-1.7B."""
OUTPUTS = (128, 256)
"""The numbers of outputs between which a count grows in proportion."""
TOKENS = (1, 128)
BITS = (8, 4)
GROUP = 32
ZEROS = ("last", "add", "cap_bits", "job_from", "job_channels", "few_channels", "job_rows", "job_kind", "flipped")
"""The parameters of a linear layer that has no jobs, no residual and no cap."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A linear layer of ``tokens`` rows; int4 weights are in groups of 32."""

    bits: int
    inputs: int
    outputs: int
    tokens: int


Counts = tuple[int, int]
"""Instructions and loaded bytes of a layer."""


def measure(llama_cpp: str | None = None) -> dict[str, Any]:
    """Return the counts of each layer; the reason where they are left out."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return {"left_out": f"it takes {', '.join(missing)}"}
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="openneutron-llama-cpp-") as name:
        archive = _archive(Path(name), llama_cpp)
        theirs = None if archive is None else _built(Path(name), archive)
        for bits in BITS:
            for tokens in TOKENS:
                for inputs in LAYERS:
                    layers = [Layer(bits, inputs, outputs, tokens) for outputs in OUTPUTS]
                    cell = {
                        name: _slopes(layers, [_ours(layer, of_npu) for layer in layers])
                        for name, of_npu in (("ours", False), ("ours, in the NPU's order", True))
                    }
                    if theirs is not None:
                        cell["llama.cpp"] = _slopes(layers, [_theirs(theirs, layer) for layer in layers])
                    results[f"int{bits}, {inputs} inputs, {tokens} tokens"] = cell
    return results


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and lines of the printed table."""
    heads = ("layer", "kernels", "instructions a product", "bytes a product", "instructions an input value")
    if "left_out" in results:
        return heads, [(f"left out: {results['left_out']}", *("-",) * 4)]
    lines = []
    for layer, cell in results.items():
        if "llama.cpp" not in cell:
            cell = {**cell, f"llama.cpp: left out, no {REQUIREMENT}": None}
        for kernels, found in cell.items():
            numbers = ("-",) * 3 if found is None else tuple(f"{value:.3f}" for value in found.values())
            lines.append((layer, kernels, *numbers))
    return heads, lines


def _slopes(layers: list[Layer], counts: list[Counts]) -> dict[str, float]:
    """Return the counts for a product, and the instructions for an input value that no product has."""
    (few, more), ((instructions, loads), (all_instructions, all_loads)) = layers, counts
    products = few.inputs * few.tokens * (more.outputs - few.outputs)
    a_product = (all_instructions - instructions) / products
    rest = instructions - a_product * few.inputs * few.tokens * few.outputs
    return {
        "instructions": round(a_product, 4),
        "loaded_bytes": round((all_loads - loads) / products, 4),
        "instructions_of_an_input": round(rest / (few.inputs * few.tokens), 3),
    }


def _ours(layer: Layer, of_npu: bool) -> Counts:
    """Return the counts of our kernel, without the driver's; ``of_npu``: of weights in the order that the NPU of i.MX 95 reads."""
    from bench import aarch64
    from tests.cortex_m33.cases import Case, Flag

    program, inputs = _program(layer, of_npu)
    counts = []
    for loads in (False, True):
        (done,) = aarch64.run([Case(program, (inputs,), Flag.TRACE)], OURS, loads)
        (traced,) = done.runs
        assert traced.error == 0 and len(traced.calls) == 1
        counts.append(traced.calls[0].ticks)
    return counts[0], counts[1]


def _program(layer: Layer, of_npu: bool) -> tuple[Program, bytes]:
    """Return a program of one linear layer on the CPU, and its inputs."""
    random, given = np.random.default_rng(0), dict.fromkeys(ZEROS, 0)
    matrix = _matrix(layer, random)
    facts = targets.described("imx95").jobs
    assert facts is not None
    release = facts.release.value[0] if of_npu else jobs.RELEASES[0].name
    packed = JobWeights(matrix.values, release, known_sizes(facts) if of_npu else ON_CPU[layer.bits], matrix.int4)
    constants = {
        "weights": packed,
        "scales": matrix.scales,
        "bias": np.zeros(layer.outputs, np.float32),
        "job": np.zeros(0, np.int32),
    }
    call = Single("dynamic_linear_f32", {**given, **matrix_words(packed, matrix)}, constants)
    call.floats("input", layer.tokens, layer.inputs)
    call.views["residual"] = call.views["input"]
    call.integers("span", 2)
    call.floats("output", layer.tokens, layer.outputs)
    call.memory("memory", min(layer.tokens, TOGETHER_IN_DDR) * packed.inputs)
    x = random.standard_normal((layer.tokens, layer.inputs), np.float32)
    return call.program(), x.tobytes() + span(0, layer.tokens).tobytes()


def _matrix(layer: Layer, random: np.random.Generator) -> Matrix:
    """Return random weights."""
    shape = (layer.outputs, layer.inputs)
    if layer.bits == 8:
        return Matrix(random.integers(-127, 128, shape, np.int8), np.ones(layer.outputs, np.float32))
    nibbles = random.integers(0, 256, (layer.outputs, layer.inputs // 2), np.uint8)
    weights, scales = jobs.int4_weights(
        nibbles, random.random((layer.outputs, layer.inputs // GROUP), np.float32) + 0.1, GROUP
    )
    return Matrix(weights.values, scales, weights)


def _archive(folder: Path, given: str | None) -> Path | None:
    """Return the path of the sdist; None where it can't be had."""
    if given is None:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary",
            "llama-cpp-python",
            REQUIREMENT,
        ]
        subprocess.run([*command, "--dest", str(folder)], capture_output=True, check=False)
    found = list((folder if given is None else Path(given)).glob(f"{RELEASE}.tar.gz"))
    return found[0] if found else None


def _built(folder: Path, archive: Path) -> Path:
    """Return the program with llama.cpp's kernels."""
    with tarfile.open(archive) as file:
        file.extractall(folder, [each for each in file if "/vendor/llama.cpp/ggml/" in each.name], filter="data")
    ggml = folder / RELEASE / "vendor" / "llama.cpp" / "ggml"
    source = ggml / "src"
    includes = [f"-I{path}" for path in (ggml / "include", source, source / "ggml-cpu")]
    objects = []
    for path in (*(source / "ggml-cpu" / name for name in SOURCES), Path(__file__).with_suffix(".c")):
        objects.append(folder / f"{len(objects)}.o")
        compiler = "aarch64-linux-gnu-g++" if path.suffix == ".cpp" else "aarch64-linux-gnu-gcc"
        _call([compiler, *FLAGS, *includes, "-c", str(path), "-o", str(objects[-1])])
    program = folder / "layer"
    link = ["-Wl,--gc-sections", "-Wl,--unresolved-symbols=ignore-all", "-lm"]
    _call(["aarch64-linux-gnu-g++", *FLAGS, *map(str, objects), *link, "-o", str(program)])
    return program


def _theirs(program: Path, layer: Layer) -> Counts:
    """Return the counts of llama.cpp's kernels, with the quantization of the inputs."""
    from bench import aarch64

    numbers = [str(each) for each in (layer.bits, layer.inputs, layer.outputs, layer.tokens)]
    counts = []
    for loads in ("", ",loads=1"):
        machine = ["qemu-aarch64", "-cpu", aarch64.CPU, "-plugin", f"{aarch64.plugin()}{loads}"]
        marks = [
            int(each)
            for each in re.findall(r"^instructions (\d+)$", _call([*machine, str(program), *numbers]), re.MULTILINE)
        ]
        counts.append(marks[-1] - marks[0])
    return counts[0], counts[1]


def _call(command: list[str]) -> str:
    """Run a command, and return what it writes to the standard error."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stderr
