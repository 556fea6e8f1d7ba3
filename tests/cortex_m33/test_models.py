# SPDX-License-Identifier: BSD-3-Clause
"""Whole models on the Cortex-M33: the host's bytes, with any table of kernels, from flash, and on little stack."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from openneutron.isa import decode
from tests.cortex_m33.cases import FAULT, MOST_STACK, Case, Flag, Run, run
from tests.cortex_m33.firmware import Image, execute, image, library
from tests.cortex_m33.models import CIFARNET, NAMES, Model, model, on_the_host, random_inputs

RUNS = 3
CHANNELS = 16


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run_like_the_host(firmware: Image, given: Model, flags: Flag = Flag.PLAIN, runs: int = RUNS) -> list[Run]:
    """The runs on random inputs, once their outputs are the host's."""
    inputs = random_inputs(given.program, runs)
    (done,) = run(firmware, [Case(given.program, inputs, flags)])
    assert done.check == done.prepare == 0
    assert [item.error for item in done.runs] == [0] * runs
    for item, want in zip(done.runs, on_the_host(given.program, inputs), strict=True):
        assert item.outputs == want
    return list(done.runs)


def test_the_hosts_bytes_with_all_kernels(name: str) -> None:
    run_like_the_host(image(library()), model(name))


def test_the_hosts_bytes_with_the_programs_own_kernels(name: str) -> None:
    archive = library()  # first: skips where the compiler is absent
    given = model(name)
    run_like_the_host(image(archive, selection=given.selection), given)


@pytest.mark.parametrize("engine", [Flag.FLASH, Flag.FLASH | Flag.ASYNCHRONOUS], ids=["at once", "when waited for"])
def test_constants_in_flash_are_fetched_whole_and_once(name: str, engine: Flag) -> None:
    """The weights fault when a kernel reads them: the copy engine alone gets at them."""
    archive = library()
    given = model(name, prefetch_constants=True)
    fetches = [item for item in decode(given.program).code if item.row.name == "FETCH"]
    stated = tuple(sum(item["size"] for item in fetches if item["channel"] == number) for number in range(CHANNELS))
    assert sum(stated) == given.report.fetched_bytes > 0
    for done in run_like_the_host(image(archive), given, engine):
        assert done.fetched == stated


def test_stripes_with_a_small_ring_of_constants_from_flash(shared_models: Path) -> None:
    """MobileNetV1 0.25 in 60 KiB, where whole tensors take 81 and its constants 238."""
    archive = library()  # first: skips where the compiler is absent
    given = model("MobileNetV1 0.25", prefetch_constants=True, sram_budget=60 * 1024)
    assert {item.row.name for item in decode(given.program).code} >= {"ROWS", "LOOP", "FETCH", "WAIT"}
    for done in run_like_the_host(image(archive), given, Flag.FLASH | Flag.ASYNCHRONOUS):
        assert sum(done.fetched) == given.report.fetched_bytes


def test_a_kernel_that_reads_flash_faults() -> None:
    """The condition that the test above relies on."""
    archive = library()
    given = model(CIFARNET)
    done = execute(
        image(archive), {"cases": Case(given.program, random_inputs(given.program, 1), Flag.FLASH).encoded()}
    )
    assert done.exit_code == FAULT
    # DACCVIOL and MMARVALID; the flash is at 0x10200000.
    assert re.fullmatch(r"fault: CFSR 00000082, MMFAR 102[0-9a-f]{5}, BFAR .*, PC .*, LR .*\n", done.console)


def test_the_stack_of_prepare_and_run(name: str) -> None:
    archive = library()  # first: skips where the compiler is absent
    given = model(name)
    (done,) = run(image(archive), [Case(given.program, random_inputs(given.program, 1), Flag.STACK)])
    (once,) = done.runs
    print(f"{name}: {done.prepare_stack} bytes of stack in prepare, {once.stack} in run")
    assert 0 < done.prepare_stack <= MOST_STACK
    assert 0 < once.stack <= MOST_STACK
