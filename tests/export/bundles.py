# SPDX-License-Identifier: BSD-3-Clause
"""Small compiled models, and bundles of them built and run."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import openneutron
from openneutron import litert, targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.options import QuantizationOptions
from openneutron.pytorch.source import models
from scripts.published_networks import cifarnet as published_cifarnet
from tests.support.litert_files import graph_file
from tests.support.objects import compiled
from tests.support.tools import required

TEMPLATES = Path(__file__).parents[2] / "src" / "openneutron" / "features" / "export" / "templates"
HOST_BOARD = TEMPLATES / "cmake" / "files" / "example" / "board_stdio.c"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
SEMIHOSTING = ("-semihosting-config", "enable=on,target=native")


@cache
def cifarnet(io: str = "float32") -> Any:
    """CifarNet from PyTorch, compiled."""
    model, example = models.get("cifarnet")
    return openneutron.compile(
        model,
        example,
        calibration=models.samples("cifarnet", 4),
        name="cifarnet",
        quantization=QuantizationOptions(io_dtype=io),
    )


def compiled_tflite(source: Path, **options: Any) -> bytes:
    """A ``.tflite`` of one NeutronGraph."""
    graph = litert.read(source).graph
    return graph_file(graph, compile_graph(graph, targets.get("imxrt700"), CompileOptions(**options)).program)


def cifarnet_of(target: str, folder: Path) -> Path:
    """The file of CifarNet as a LiteRT graph, compiled for a target, in a folder."""
    graph = published_cifarnet()
    path = folder / "cifarnet.tflite"
    path.write_bytes(graph_file(graph, compile_graph(graph, targets.get(target)).program))
    return path


def built(folder: Path, *options: str) -> str:
    """Configures and builds a bundle as its README says; what the build printed."""
    required("arm-none-eabi-gcc")
    required("cmake")
    said = ""
    for command in (["cmake", "-B", "build", *options], ["cmake", "--build", "build"]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        said += done.stdout + done.stderr
    return said


def execute(program: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A program for mps2-an505 in QEMU."""
    quiet = ["-display", "none", "-monitor", "none", "-serial", "none"]
    command = [required("qemu-system-arm"), "-M", "mps2-an505", *quiet, *SEMIHOSTING, *options]
    command += ["-kernel", str(program)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """The bundle's example in QEMU."""
    return execute(folder / "build" / "example.elf")


STRICT = ("-std=c99", "-pedantic", "-O0", "-DNEUTRON_PORTABLE_ONLY", "-Wall", "-Wextra", "-Wconversion", "-Werror")


def host_objects(folder: Path, work: Path, *mains: Path, flags: Sequence[str] = ()) -> list[Path]:
    """The objects of the bundle's library and of other sources, as strict C99 for this computer and without the port."""
    sources = [*folder.glob("src/*.c"), *folder.glob("model/*.c"), *folder.glob("runtime/driver/*.c")]
    sources += [*folder.glob("runtime/kernels/**/*.c"), *mains]
    places = ("include", "model", "runtime/include", "example")
    return compiled(
        work, required("cc", "gcc"), [*STRICT, *flags, *(f"-I{folder / place}" for place in places)], sources
    )


def host_program(folder: Path, work: Path, *mains: Path, sanitizers: Sequence[str] = ()) -> Path:
    """The bundle's library and a ``main``, for this computer and without the port."""
    program = work / "program"
    objects = host_objects(folder, work, *mains, flags=sanitizers)
    command = [required("cc", "gcc"), *sanitizers, *map(str, objects), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def checked_on_the_host(folder: Path, work: Path) -> subprocess.CompletedProcess[str]:
    """The bundle's example, for this computer, with the address and undefined-behaviour sanitizers."""
    example = folder / "example"
    program = host_program(
        folder,
        work,
        *(example / f"{name}.c" for name in ("main", "selfcheck", "golden")),
        HOST_BOARD,
        sanitizers=SANITIZERS,
    )
    return subprocess.run([program], capture_output=True, text=True, check=False)


def piped(program: Path, arguments: Sequence[str], data: bytes) -> bytes:
    """Return the stdout of a program for this stdin."""
    return subprocess.run([program, *arguments], input=data, stdout=subprocess.PIPE, check=True).stdout


def constant_bytes(golden: Path, name: str) -> bytes:
    """Return the bytes of a constant of ``golden.c``, with the zeros up to a multiple of 16 bytes behind them."""
    (body,) = re.findall(rf" {name}\[\d+\] = {{([^}}]*)}}", golden.read_text())
    return np.array([int(word, 16) for word in body.replace(",", " ").split()], "<u4").tobytes()
