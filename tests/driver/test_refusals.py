# SPDX-License-Identifier: BSD-3-Clause
"""The table of refusals on the host."""

from __future__ import annotations

from ctypes import byref, c_uint32, c_void_p
from pathlib import Path

import numpy as np
import pytest

from openneutron import litert
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.device.simulator import ModelConfig, library
from openneutron.isa import Program
from tests.support.altered_programs import CODES
from tests.support.c_api import memory_at
from tests.support.oracle import TARGET
from tests.support.refusals import REFUSALS, Refusal

OF_STATES = {"NO_STATE", "STATE_SIZE", "RUNNING"}
OF_THE_QUEUE = {"QUEUE_FULL", "NO_JOB", "NESTED_WAIT"}
OF_JOBS = {"NO_JOBS", "JOB", "JOB_MEMORY"}
BEYOND_PREPARE = {
    "NULL",
    "ALIGNMENT",
    "HANDLE",
    "MEMORY",
    "STATE",
    "TIMEOUT",
    "INDEX",
    *OF_STATES,
    *OF_THE_QUEUE,
    *OF_JOBS,
}
"""Errors that no change to a program leads to."""


@pytest.fixture(scope="module")
def program(shared_models: Path) -> Program:
    graph = litert.read(shared_models / "mlperf_tiny_resnet8_int8.tflite").graph
    return compile_graph(graph, TARGET, CompileOptions(io_place="caller", prefetch_constants=True)).program


def codes(program: Program) -> tuple[int, int]:
    """Return the results of neutronModelCheck and neutronModelPrepare for a program with free memory behind it."""
    places = [memory_at(0, len(blob) + 256) for blob in (program.microcode, program.weights)]
    for (memory, _), blob in zip(places, (program.microcode, program.weights), strict=True):
        memory[:] = 0xA5
        memory[: len(blob)] = np.frombuffer(blob, np.uint8)
    config = ModelConfig(*(memory.ctypes.data for memory, _ in places), None, 0)
    handle = c_void_p()
    detail = c_uint32()
    check = library().neutronModelCheck(byref(config), len(program.microcode), len(program.weights), byref(detail))
    prepare = library().neutronModelPrepare(byref(config), byref(handle))
    if prepare == 0:
        assert library().neutronModelUnprepare(handle) == 0
    return check, prepare


@pytest.mark.without_tiles("the table changes the first and the last call, which are transfers of tiles")
@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_a_changed_program_is_refused(program: Program, refusal: Refusal) -> None:
    assert codes(program) == (0, 0)
    assert codes(refusal.change(program)) == refusal.codes


def test_every_error_of_a_program_is_in_the_table() -> None:
    assert {refusal.check for refusal in REFUSALS} == CODES.keys() - BEYOND_PREPARE
