# SPDX-License-Identifier: BSD-3-Clause
"""A bundle for the MCX N947 with CMake: it runs in QEMU, and is linked for the memory of the chip."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest

from openneutron import targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.features.export.bundle import export_bundle
from scripts.published_networks import Chain
from tests.export.bundles import built, cifarnet_of, run
from tests.support.litert_files import graph_file
from tests.support.tools import required

PORT = Path(__file__).parents[2] / "runtime" / "ports" / "cortex_m33"
CHIP = targets.get("mcxn94x")


def regions(script: Path) -> dict[str, tuple[int, int]]:
    """The memory regions of a linker script: origin and bytes by name."""
    units = {"K": 1024, "M": 1024 * 1024}
    found = re.findall(r"(\w+) \(\w+\) : ORIGIN = (0x\w+), LENGTH = (\d+)([KM])", script.read_text())
    return {name: (int(origin, 16), int(size) * units[unit]) for name, origin, size, unit in found}


def test_it_runs_in_qemu_and_fits_the_chip(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    export_bundle(cifarnet_of(CHIP.name, tmp_path), folder, form="mcxn947")
    said = built(folder, "-DOPENNEUTRON_WERROR=ON", "-DOPENNEUTRON_TIMEOUT_SECONDS=5")
    assert "warning" not in said
    done = run(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ": 10 of 10 bytes as expected" in done.stdout + done.stderr

    memory = regions(folder / "port" / "mcxn947.ld")
    sizes = {item.name: int(item.size.value * 1024) for item in CHIP.memories}
    assert {name.lower(): size for name, (_, size) in memory.items()} == sizes
    firmware = folder / "build" / "firmware.elf"
    listed = subprocess.run(
        [required("arm-none-eabi-readelf"), "-lAW", firmware], capture_output=True, text=True, check=True
    ).stdout
    loads = [(int(found[0], 16), int(found[1], 16)) for found in re.findall(r"LOAD +\w+ (\w+) \w+ \w+ (\w+)", listed)]
    assert len(loads) >= 2
    for address, size in loads:
        assert any(origin <= address and address + size <= origin + length for origin, length in memory.values())
    assert "Tag_FP_arch: FPv5/FP-D16 for ARMv8" in listed and "Tag_ABI_VFP_args: VFP registers" in listed
    assert (
        "smlad"
        in subprocess.run(
            [required("arm-none-eabi-objdump"), "-d", firmware], capture_output=True, text=True, check=True
        ).stdout
    ), "the variants for the DSP extension are linked"


def test_a_model_beyond_the_chips_memory_does_not_link(tmp_path: Path) -> None:
    """Whole tensors of 640 KiB, which the larger chip has."""
    required("arm-none-eabi-gcc")
    graph = Chain("large", (1, 100, 100, 32)).conv(32, 1).graph()
    program = compile_graph(graph, targets.get("imxrt700"), CompileOptions()).program
    assert program.header["scratch_size"] > CHIP.sram.value * 1024
    model = tmp_path / "large.tflite"
    model.write_bytes(graph_file(graph, program))
    export_bundle(model, tmp_path / "bundle", form="mcxn947")
    subprocess.run(["cmake", "-B", "build"], cwd=tmp_path / "bundle", capture_output=True, check=True)
    command = ["cmake", "--build", "build", "--target", "firmware"]
    done = subprocess.run(command, cwd=tmp_path / "bundle", capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "region `SRAM' overflowed" in done.stdout + done.stderr


STUB = """
#include "cortex_m33_port.h"
uint32_t cycles;
bool has_counter = true;
static uint32_t now_cycles(void) { return cycles; }
const NeutronPort *neutron_cortex_m33_port(void) {
    static const NeutronPort counted = {.now_cycles = now_cycles}, modelled = {0};
    return has_counter ? &counted : &modelled;
}
uint32_t seconds(const NeutronPort *port) { return port->now_seconds(); }
bool has_clock(const NeutronPort *port) { return port->now_seconds != NULL; }
"""
"""The port with a counter that the test turns."""


@pytest.fixture
def clock(tmp_path: Path) -> ctypes.CDLL:
    (tmp_path / "stub.c").write_text(STUB)
    flags = ("-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-shared", "-fPIC")
    includes = (f"-I{PORT}", f"-I{PORT.parents[1] / 'include'}")
    sources = (str(PORT / "cortex_m33_clock.c"), str(tmp_path / "stub.c"))
    library = tmp_path / "clock.so"
    subprocess.run([required("cc", "gcc"), *flags, *includes, *sources, "-o", library], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.neutron_cortex_m33_clocked_port.restype = ctypes.c_void_p
    loaded.neutron_cortex_m33_clocked_port.argtypes = [ctypes.c_uint32]
    loaded.seconds.argtypes = loaded.has_clock.argtypes = [ctypes.c_void_p]
    loaded.seconds.restype, loaded.has_clock.restype = ctypes.c_uint32, ctypes.c_bool
    return loaded


def test_the_clock_counts_seconds_across_wraps_of_the_counter(clock: ctypes.CDLL) -> None:
    hertz = 150_000_000
    counter = ctypes.c_uint32.in_dll(clock, "cycles")
    total = 0xFFFFFF00
    counter.value = total
    port = clock.neutron_cortex_m33_clocked_port(hertz)
    for step in (1, hertz - 2, 1, 2**32 - 1, 7 * hertz + hertz - 1, 1, 0, 20 * hertz + 5):
        total += step
        counter.value = total & 0xFFFFFFFF
        assert clock.seconds(port) == (total - 0xFFFFFF00) // hertz


def test_a_core_without_a_counter_has_no_clock(clock: ctypes.CDLL) -> None:
    assert clock.has_clock(clock.neutron_cortex_m33_clocked_port(150_000_000))
    assert not clock.has_clock(clock.neutron_cortex_m33_clocked_port(0))
    ctypes.c_bool.in_dll(clock, "has_counter").value = False
    assert not clock.has_clock(clock.neutron_cortex_m33_clocked_port(150_000_000))
