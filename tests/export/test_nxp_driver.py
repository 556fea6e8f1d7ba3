# SPDX-License-Identifier: BSD-3-Clause
"""Bundles that link NXP's driver, built and run with a stand-in that has the interface of the public headers."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest
import yaml

from openneutron import litert, targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.errors import InvalidModelError, InvalidOptionError, InvalidProgramError, OpenNeutronError
from openneutron.features.export.bundle import export_bundle
from openneutron.ir import Graph
from openneutron.isa import Program
from tests.export.bundles import TEMPLATES, execute
from tests.support import random_graphs
from tests.support.litert_files import graph_file, int16_file
from tests.support.objects import compiled
from tests.support.tools import required

STAND_INS = Path(__file__).parent / "stand_ins"
STAND_IN = STAND_INS / "nxp"
STARTUP = TEMPLATES / "cortex_m33" / "files" / "port"
RELEASE, CRASHES, OTHER = 0x00030001, 0x00020001, 0x00010001
KERNELS = b"NXP's kernels".ljust(32, b"\0")
RENAMED = "neutronInit neutronDeinit neutronSetConfig neutronGetModelContextSize neutronModelPrepare neutronModelUnprepare neutronRunBlocking"


@cache
def layer() -> tuple[Graph, Program]:
    """Return a linear layer and its program, which copies its weights to SRAM and is profiled."""
    graph = random_graphs.single("fully_connected", 3)
    options = CompileOptions(prefetch_constants=True, profile=True)
    return graph, compile_graph(graph, targets.get("imxrt700"), options).program


def as_nxps(program: Program, version: int = RELEASE) -> Program:
    """Return a program of this project as the stand-in takes it: another version word, and kernels."""
    microcode = program.microcode[:4] + struct.pack("<I", version) + program.microcode[8:]
    return Program(microcode, program.weights, KERNELS)


def nxp_file(folder: Path, version: int = RELEASE) -> Path:
    """Write a ``.tflite`` as NXP's converter writes it."""
    graph, program = layer()
    made, theirs = graph_file(graph, program), as_nxps(program, version)
    made = made.replace(program.microcode[:16], theirs.microcode[:16])
    assert len(program.kernels) >= len(KERNELS) and made.count(program.kernels) == 1
    path = folder / "layer.tflite"
    path.write_bytes(made.replace(program.kernels, KERNELS.ljust(len(program.kernels), b"\0")))
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the model as NXP's converter gives it, and the file from which it was made."""
    folder = tmp_path_factory.mktemp("nxp")
    nxp_file(folder)
    (folder / "stock.tflite").write_bytes(litert.write(layer()[0]))
    return folder


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This project's driver with the kernels of the layer."""
    folder = tmp_path_factory.mktemp("runtime") / "bundle"
    path = folder.parent / "layer.tflite"
    path.write_bytes(graph_file(*layer()))
    export_bundle(path, folder, form="cmake")
    return folder


def library(runtime: Path, folder: Path, compiler: str, *flags: str) -> list[Path]:
    """Return the objects of the stand-in for NXP's driver."""
    version = int.from_bytes(layer()[1].microcode[4:8], "little")
    own = [f"-D{name}=own_{name}" for name in RENAMED.split()]
    base = ["-std=gnu11", "-O0", "-DNEUTRON_PORTABLE_ONLY", "-w", *flags]
    sources = [
        *runtime.glob("runtime/driver/*.c"),
        *runtime.glob("runtime/kernels/**/*.c"),
        runtime / "model/kernel_selection.c",
    ]
    includes = [f"-I{runtime / place}" for place in ("runtime/include", "include")]
    made = compiled(folder, compiler, [*base, *own, *includes], sources)
    stand_in = [f"-I{STAND_IN / place}/include" for place in ("driver", "common")]
    mine = [f"-DOWN_VERSION={version}u"]
    (folder / "stand_in.c").write_bytes((STAND_IN / "driver.c").read_bytes())
    return [*made, *compiled(folder, compiler, [*base, *mine, *stand_in], [folder / "stand_in.c"])]


def run(command: Sequence[str | Path], **options: object) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout + done.stderr)


def sdk(folder: Path, *libraries: Path) -> Path:
    """A folder of NXP's SDK with the headers, and with the libraries for MCX N."""
    place = folder / "middleware" / "eiq" / "neutron"
    shutil.copytree(STAND_IN, place)
    for path in libraries:
        (place / "mcxn").mkdir(exist_ok=True)
        shutil.copy(path, place / "mcxn" / path.name)
    return folder


@pytest.fixture(scope="module")
def board_sdk(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """NXP's SDK with the stand-in for a Cortex-M33."""
    required("arm-none-eabi-gcc")
    work = tmp_path_factory.mktemp("objects")
    objects = library(runtime, work, "arm-none-eabi-gcc", "-mcpu=cortex-m33", "-mthumb", "-mfloat-abi=soft")
    made = [work / "libNeutronDriver.a", work / "libNeutronFirmware.a"]
    run(["arm-none-eabi-ar", "rcsD", made[0], objects[-1]])
    run(["arm-none-eabi-ar", "rcsD", made[1], *objects[:-1]])
    return sdk(work / "sdk", *made)


PROFILE = r"nxp-profile,1,ticks\nprogram,call,function,ticks\n(0,\d+,\d+,\d+\n)+nxp-profile,end\n"


def passed(said: str) -> None:
    assert re.fullmatch(rf"layer\n\w+: (\d+) of \1 bytes as expected\n{PROFILE}passed\n", said), said


def check_kconfig(folder: Path) -> None:
    """The options of the build file are those of Kconfig."""
    kconfiglib = pytest.importorskip("kconfiglib", reason="kconfiglib is not installed: it parses Kconfig")
    parsed = kconfiglib.Kconfig(str(folder / "Kconfig"), warn_to_stderr=False)
    assert parsed.warnings == []
    text = (folder / "CMakeLists.txt").read_text()
    for name in ("ADDRESS_MASK", "ARENA_SECTION", "CONTEXT_BYTES", "NEUTRON_CHIP", "NEUTRON_SDK", "TIMEOUT_SECONDS"):
        assert name in text and f"OPENNEUTRON_{name}" in parsed.syms
    assert yaml.safe_load((folder / "module.yml").read_text())["name"] == "openneutron"


@pytest.mark.parametrize("system", ["zephyr", "mcuxpresso"])
def test_on_a_core_with_the_sdks_libraries(system: str, source: Path, board_sdk: Path, tmp_path: Path) -> None:
    folder, stand_in = tmp_path / "bundle", STAND_INS / system
    bundle = export_bundle(source / "layer.tflite", folder, form=f"{system}-nxp", reference=source / "stock.tflite")
    assert not any(name.startswith("runtime/") for name in bundle.files) and bundle.kernels == ()
    check_kconfig(folder / {"zephyr": "zephyr", "mcuxpresso": "mcux"}[system])
    place, program = {"zephyr": ("samples/selfcheck", "zephyr"), "mcuxpresso": ("example", "selfcheck")}[system]
    options = [
        f"-DSTARTUP={STARTUP}",
        f"-DSdkRootDirPath={stand_in}",
        "-DCMAKE_BUILD_TYPE=Release",
        "-DNEUTRON_CHIP=mcxn",
    ]
    command = ["cmake", "-S", str(folder / place), "-B", str(tmp_path / "build"), *options]
    environment = {**os.environ, "ZEPHYR_BASE": str(stand_in)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    said = " ".join(done.stderr.split())  # CMake breaks lines, where depends on the folder's name
    assert "NEUTRON_SDK is '" in said and done.returncode != 0
    run([*command, f"-DNEUTRON_SDK={board_sdk}"], env=environment)
    run(["cmake", "--build", str(tmp_path / "build")])
    result = execute(tmp_path / "build" / program)
    passed(result.stdout + result.stderr)


@pytest.fixture(scope="module")
def example(source: Path, runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Callable[..., str], Path]:
    """The example for Linux on aarch64, in QEMU beside a library of this computer's making."""
    compiler = required("aarch64-linux-gnu-gcc")
    work = tmp_path_factory.mktemp("linux")
    folder = work / "bundle"
    export_bundle(source / "layer.tflite", folder, form="linux-nxp", reference=source / "stock.tflite")
    options = [
        f"-DNEUTRON_SDK={sdk(work / 'sdk')}",
        "-DCMAKE_TOOLCHAIN_FILE=port/aarch64.cmake",
        "-DCMAKE_C_FLAGS=-Werror",
    ]
    run(["cmake", "-B", "build", *options], cwd=folder)
    run(["cmake", "--build", "build"], cwd=folder)
    objects = library(runtime, work, compiler, "-fPIC")

    def executed(program: Path = folder / "build" / "example", **variables: str) -> str:
        given = [word for name, value in variables.items() for word in ("-E", f"{name}={value}")]
        command = [required("qemu-aarch64"), "-L", "/usr/aarch64-linux-gnu", *given, str(program)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=work)
        return done.stdout + done.stderr

    run([compiler, "-shared", *objects, "-o", work / "stand_in.so"])
    return executed, work


def test_on_linux_the_library_is_opened_at_run_time(example: tuple[Callable[..., str], Path]) -> None:
    executed, work = example
    library = str(work / "stand_in.so")
    passed(executed(OPENNEUTRON_NEUTRON_LIBRARY=library))
    one = executed(OPENNEUTRON_NEUTRON_LIBRARY=library, STAND_IN_WRONG_BY="1")
    assert "bytes as expected\n1 elements are one step apart, 0 further\n" in one and one.endswith("passed\n")
    two = executed(OPENNEUTRON_NEUTRON_LIBRARY=library, STAND_IN_WRONG_BY="2")
    assert "bytes as expected\n0 elements are one step apart, 1 further\n" in two and two.endswith("FAILED\n")
    assert executed() == (
        "init: libNeutronDriver.so is missing or lacks a function; the reason is on the standard error stream\n"
        "NXP's driver: libNeutronDriver.so: cannot open shared object file: No such file or directory. Install NXP's package neutron on "
        "the board, or set OPENNEUTRON_NEUTRON_LIBRARY to the file.\n"
    )


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (
            OTHER,
            "init: NXP's driver refuses the microcode: converter and driver are of different releases. Convert the model with the "
            "release of the converter that belongs to this SDK, or link the SDK of the converter's release\n",
        ),
        (
            CRASHES,
            "init: NXP's driver crashed when it read the microcode: converter and driver are of different releases. Convert the model "
            "with the release of the converter that belongs to the board's image\n",
        ),
    ],
)
def test_microcode_of_another_release(
    version: int, said: str, example: tuple[Callable[..., str], Path], tmp_path: Path
) -> None:
    executed, work = example
    folder = work / "bundle"
    model = next(folder.glob("model/layer_model.c"))
    before = model.read_text()
    assert before.count(f"0x{RELEASE:08X}") == 1
    model.write_text(before.replace(f"0x{RELEASE:08X}", f"0x{version:08X}"))
    try:
        run(["cmake", "--build", "build"], cwd=folder)
        program = shutil.copy(folder / "build" / "example", tmp_path / "example")
    finally:
        model.write_text(before)
    found = executed(Path(program), OPENNEUTRON_NEUTRON_LIBRARY=str(work / "stand_in.so"))
    assert said in found


def refused(kind: type[OpenNeutronError], *arguments: object, **options: str | Path) -> str:
    with pytest.raises(kind) as caught:
        export_bundle(*arguments, **options)  # type: ignore[arg-type]
    return str(caught.value)


def test_a_form_belongs_to_a_driver(source: Path, runtime: Path, tmp_path: Path) -> None:
    ours = runtime.parent / "layer.tflite"
    assert refused(InvalidModelError, ours, tmp_path / "out", form="linux-nxp") == (
        "'layer.tflite' has OpenNeutron's microcode, and NXP's NPU does not run it. Compile the model with converter='eiq' "
        "(`--converter eiq`), which takes NXP's eiq_neutron_sdk, or export it in a form whose core computes the kernels, such as "
        "--for cortex_m33, or --for cmake for Linux, which may have matrix products on the NPU too."
    )
    assert refused(InvalidModelError, source / "layer.tflite", tmp_path / "out", form="zephyr") == (
        "'layer.tflite' has microcode of another compiler, such as NXP's eIQ Neutron converter, and only NXP's firmware runs that. "
        "Export it with --for zephyr-nxp, mcuxpresso-nxp or linux-nxp, which link NXP's driver, or compile the model with OpenNeutron."
    )


def test_what_a_reference_is_not(source: Path, runtime: Path, tmp_path: Path) -> None:
    model, stock = source / "layer.tflite", source / "stock.tflite"
    assert refused(InvalidOptionError, runtime.parent / "layer.tflite", tmp_path / "out", reference=stock) == (
        "reference: it is for one model in a form with NXP's driver (zephyr-nxp, mcuxpresso-nxp, linux-nxp). Leave it out."
    )
    (tmp_path / "add.tflite").write_bytes(int16_file(0.01))
    assert refused(
        InvalidOptionError, model, tmp_path / "out", form="linux-nxp", reference=tmp_path / "add.tflite"
    ) == (
        "reference: 'add.tflite' has 2 inputs; the program has 1. Give the file from which NXP's converter made the program."
    )
    (tmp_path / "wide.tflite").write_bytes(litert.write(random_graphs.single("fully_connected", 5)))
    assert re.fullmatch(
        r"reference: its input '\w+' is \w+\[.*\]; the program takes \d+ bytes\. Give the file from which NXP's converter made the "
        r"program\.",
        refused(InvalidOptionError, model, tmp_path / "out", form="linux-nxp", reference=tmp_path / "wide.tflite"),
    )
    assert not (tmp_path / "out").exists()


def test_without_a_reference_there_are_no_expected_outputs(source: Path, tmp_path: Path) -> None:
    export_bundle(source / "layer.tflite", tmp_path / "out", form="linux-nxp")
    assert "golden_layer_outputs[] = {NULL};" in (tmp_path / "out/example/golden.c").read_text()


def test_files_that_do_not_fit(source: Path, tmp_path: Path) -> None:
    whole, program = (source / "layer.tflite").read_bytes(), layer()[1].microcode
    start = whole.index(program[:4] + struct.pack("<I", RELEASE))
    for place, said in (
        (
            11,
            "'bad.tflite': its microcode has a debug buffer of 80 bytes; a bundle has none. Convert the model without debugging.",
        ),
        (
            13,
            "'bad.tflite': its NeutronGraph has 1 inputs and 1 outputs; its microcode has 80 and 1. The file is corrupt.",
        ),
        (
            7,
            f"'bad.tflite': program: its weights is {len(layer()[1].weights)} bytes; its header says 524288. The file is truncated.",
        ),
    ):
        value = 524288 if place == 7 else 80
        at = start + 4 * place
        (tmp_path / "bad.tflite").write_bytes(whole[:at] + struct.pack("<I", value) + whole[at + 4 :])
        kind = InvalidModelError if place == 11 else InvalidProgramError
        assert refused(kind, tmp_path / "bad.tflite", tmp_path / "out", form="linux-nxp") == said
