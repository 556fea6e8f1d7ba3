# SPDX-License-Identifier: BSD-3-Clause
"""ExecuTorch's unmodified NXP delegate on our driver, with our payload. Left out where its source is not (see stock.py)."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower

from openneutron.device import pte
from openneutron.device.simulator import LIBRARY
from openneutron.isa import payload, with_checksum
from openneutron.isa.kernel_selection import KernelSelection, called_kernels
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import generate_neutron_compile_spec
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.quantizer.utils import calibrate_and_quantize
from openneutron.pytorch.run import delegate
from openneutron.pytorch.run.runner import Runner
from openneutron.pytorch.source import models
from tests.support import stock
from tests.support.runtime_builds import INCLUDES, driver_sources, kernel_sources

ROOT = Path(__file__).parents[2]
SWITCHES = ("EXTERNAL_MEM", "NEUTRON_NPU_POWER_GATING", "NEUTRON_PROFILE", "ET_EVENT_TRACER_ENABLED")
"""All of the delegate's, over its history; NO_HEAP_USAGE takes a driver that was built alike."""

INVALID_PROGRAM = "error: 0x:23"


@dataclass(frozen=True)
class Made:
    """CifarNet as a ``.pte``, inputs for it, and what our own delegate gives for them."""

    pte: bytes
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]

    @property
    def program(self) -> payload.Payload:
        (found,) = pte.delegates(self.pte)
        return payload.parse(found.payload)


@functools.cache
def cifarnet(*, rich: bool = False, fetched: bool = False) -> Made:
    """``rich`` has channels-last borders, which the delegate transposes, and a profile; ``fetched`` constants come to SRAM."""
    network, inputs = models.get("cifarnet")
    target = NeutronTargetSpec("imxrt700")
    spec = generate_neutron_compile_spec(
        "imxrt700",
        use_neutron_for_format_conversion=not rich,
        fetch_constants_to_sram=fetched,
        use_profiling=rich,
    )
    exported = torch.export.export(network.eval(), inputs)
    quantized = calibrate_and_quantize(exported, models.samples("cifarnet", 4), NeutronQuantizer(target))
    edge = to_edge_transform_and_lower(
        torch.export.export(quantized, inputs), partitioner=[NeutronPartitioner(spec, target)]
    )
    buffer = bytes(edge.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False)).buffer)
    given = models.samples("cifarnet", 1, seed=7)[0]
    return Made(buffer, given, Runner("cifarnet", buffer).run(given))


def compiled(source: Path, folder: Path, driver: Path, *switches: str) -> Path:
    """The delegate's source as it is, as a library for the installed ExecuTorch and this driver."""
    package = delegate.executorch_package()
    include = package / "include"
    library = folder / "stock.so"
    command = [
        *(delegate.compiler(), "-std=c++17", "-O1", "-fPIC", "-shared", "-Wl,-z,defs"),
        "-DC10_USING_CUSTOM_GENERATED_MACROS",
        *(f"-D{switch}" for switch in switches),
        *(f"-I{path}" for path in (ROOT / "runtime/include", include)),
        f"-I{include / 'executorch/runtime/core/portable_type/c10'}",
        *(str(source), "-o", str(library), f"-L{package / 'lib'}", "-lexecutorch", str(driver)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return library


def without_heap(folder: Path, program: payload.Payload) -> Path:
    """The driver built with NO_HEAP_USAGE, and with the kernels of this program alone."""
    selection = folder / "stock_kernel_selection.c"
    selection.write_text(KernelSelection("tests", called_kernels([program.program])).text())
    library = folder / "libneutron_no_heap.so"
    kernels = [path for path in kernel_sources() if not path.endswith("/table.c")]
    command = ["cc", "-std=c11", "-O1", "-fPIC", "-shared", *INCLUDES, "-DNO_HEAP_USAGE=1"]
    command += ["-ffunction-sections", "-Wl,--gc-sections", *driver_sources(), *kernels, str(selection)]
    subprocess.run([*command, "-o", str(library)], check=True)
    return library


def ran(folder: Path, driver: Path, library: Path, buffer: bytes, inputs: tuple[torch.Tensor, ...]) -> dict[str, Any]:
    """See run_with.py; ``log`` is what ExecuTorch said."""
    (folder / "model.pte").write_bytes(buffer)
    torch.save(inputs, folder / "inputs.pt")
    paths = [driver, library, *(folder / name for name in ("model.pte", "inputs.pt", "result.pt"))]
    command = [sys.executable, str(Path(__file__).with_name("run_with.py")), *map(str, paths)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = torch.load(folder / "result.pt")
    return {**result, "log": done.stderr}


@pytest.fixture(params=stock.sources(), ids=str)
def source(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def same(result: dict[str, Any], made: Made) -> bool:
    return len(result["outputs"]) == 2 and all(
        torch.equal(got, wanted) for run in result["outputs"] for got, wanted in zip(run, made.outputs, strict=True)
    )


def test_as_it_is(source: Path, tmp_path: Path) -> None:
    """CifarNet. The NPU is suspended at first, and this delegate does not switch it on: that run is refused."""
    made = cifarnet()
    result = ran(tmp_path, LIBRARY, compiled(source, tmp_path, LIBRARY), made.pte, made.inputs)
    assert "Neutron model evaluation failed with error code 3595" in result["log"]  # ENEUTRON_STATE
    assert result["refused"]
    assert same(result, made)
    assert result["events"] == []


def test_with_every_switch(source: Path, tmp_path: Path) -> None:
    """Prefetched constants, power around each run, and a profile; a switch that this version does not have changes nothing.

    Without EXTERNAL_MEM a delegate leaves ``scratchWeights`` undefined, which no driver can notice.
    """
    text = source.read_text()
    made = cifarnet(rich=True, fetched="EXTERNAL_MEM" in text)
    header = made.program.program.header
    assert (header["prefetch_size"] > 0) == ("EXTERNAL_MEM" in text)
    assert header["profile_size"] > 0
    assert max(made.program.input_formats) == 1
    result = ran(tmp_path, LIBRARY, compiled(source, tmp_path, LIBRARY, *SWITCHES), made.pte, made.inputs)
    assert same(result, made)
    gated = "NEUTRON_NPU_POWER_GATING" in text
    assert (result["switched"], result["refused"]) == (([True, False] * 2, "") if gated else ([], result["refused"]))
    if "ET_EVENT_TRACER_ENABLED" in text:
        calls = header["profile_size"] // 16
        runs = 3 if gated else 2
        wanted = {bytes([operator]) for operator in range(calls)}
        assert {metadata for metadata, _ in result["events"]} == wanted
        assert len(result["events"]) == runs * (calls + 1)  # and its own one for the time that the dump takes


def test_without_a_heap(source: Path, tmp_path: Path) -> None:
    """The context lies in memory of ExecuTorch's allocator."""
    made = cifarnet()
    driver = without_heap(tmp_path, made.program)
    symbols = subprocess.run(["nm", "-D", driver], capture_output=True, text=True, check=True).stdout
    assert not re.search(r"\b(malloc|free)\b", symbols)
    result = ran(tmp_path, driver, compiled(source, tmp_path, driver, "NO_HEAP_USAGE=1"), made.pte, made.inputs)
    assert same(result, made)


def test_microcode_that_is_not_ours(source: Path, tmp_path: Path) -> None:
    """The same file, but for the version word: the driver refuses it with a code of its own, and the delegate says so."""
    made = cifarnet()
    program = made.program.program
    microcode = bytearray(program.microcode)
    microcode[4:8] = (3).to_bytes(4, "little")
    other = with_checksum(dataclasses.replace(program, microcode=bytes(microcode)))
    buffer = made.pte.replace(program.microcode, other.microcode)
    result = ran(tmp_path, LIBRARY, compiled(source, tmp_path, LIBRARY), buffer, made.inputs)
    assert "Neutron model preparation failed with error code 4627" in result["log"]  # ENEUTRON_FOREIGN
    assert INVALID_PROGRAM in result["refused"]
