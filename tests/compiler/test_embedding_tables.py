# SPDX-License-Identifier: BSD-3-Clause
"""Tables of an embedding stay where the constants are: a run copies the entries that its indices name, and no others."""

from __future__ import annotations

import ctypes
from ctypes import byref
from pathlib import Path

import numpy as np
import pytest

import openneutron
from openneutron import litert, targets
from openneutron.compiler import Compiled, CompileOptions, compile_graph
from openneutron.device.simulator import Simulator, library
from openneutron.errors import DriverError
from openneutron.features.profile.profile import modelled
from openneutron.ir import DType, Graph
from tests.support import oracle
from tests.support.altered_programs import CODES
from tests.support.c_api import Config, Copy, Wait
from tests.support.embedding_tables import table

CHIPS = ("imxrt700", "mcxn94x", "mcxn54x", "imx95", "imx943", "imx952")


def compiled_for(
    chip: str, graph: Graph, budget: int | None = None, fetch: bool = False, check: bool = True
) -> Compiled:
    options = CompileOptions(target=chip, sram_budget=budget, prefetch_constants=fetch, check=check)
    return compile_graph(graph, targets.get(chip), options)


def assert_bytes_of_litert(made: Compiled) -> None:
    inputs = oracle.random_inputs(made.graph, 1)
    (got,) = oracle.simulated_outputs(made, inputs)
    np.testing.assert_array_equal(got, oracle.reference_outputs(made.graph, inputs)[0])


@pytest.mark.parametrize(("chip", "fetch"), [*((chip, False) for chip in CHIPS), ("imxrt700", True)])
def test_time_and_memory_do_not_grow_with_the_table(chip: str, fetch: bool) -> None:
    small, large = (
        compiled_for(chip, table(entries), fetch=fetch, check=entries == 1000) for entries in (1000, 250_000)
    )
    for name in ("cycles", "overlapped_cycles", "sram_bytes", "fetched_bytes", "moved_bytes", "traffic_bound_bytes"):
        assert getattr(small.report, name) == getattr(large.report, name), name
    assert [each.report.kept_bytes for each in (small, large)] == [64_000, 16_000_000]
    assert_bytes_of_litert(small)


def test_the_latency_of_an_inference_does_not_grow_with_the_table(tmp_path: Path) -> None:
    """The SRAM of i.MX RT700 holds the small table alone. Its other constants are copied from flash beside the large one."""
    found = []
    for entries in (1000, 250_000):
        path = tmp_path / f"{entries}.tflite"
        path.write_bytes(litert.write(table(entries)))
        made = openneutron.compile(path, options=openneutron.CompileOptions(target="imxrt700", profile=True))
        found.append(made.report)
        made.save(path)
        loaded = openneutron.load(path)
        implied = loaded.report.implied_copy_cycles
        profile = modelled(path.name, loaded.programs, made.target, loaded.host, implied)
        wanted = made.report.latency
        for latency in (loaded.report.latency, profile.latency):
            assert (
                latency is not None
                and latency.cycles == wanted.cycles
                and latency.copy_cycles == wanted.copy_cycles == implied
            )
    assert [each.weights_fit for each in found] == [True, False]
    assert found[1].cycles - found[0].cycles == int(256 / 0.749)


@pytest.mark.parametrize("dtype", [DType.INT32, DType.INT64])
@pytest.mark.parametrize(
    ("shape", "width"), [((), (64,)), ((3, 40), (24,)), ((2, 3, 4), (16,)), ((5,), (3, 8)), ((9,), (100,))]
)
@pytest.mark.parametrize("chip", ["imxrt700", "imx95"])
def test_the_bytes_are_those_of_litert(chip: str, shape: tuple[int, ...], width: tuple[int, ...], dtype: DType) -> None:
    made = compiled_for(chip, table(600, shape, width, dtype))
    assert "embedding_lookup_s8" in oracle.kernels_of(made)
    assert_bytes_of_litert(made)


@pytest.mark.parametrize("chip", ["imxrt700", "imx95"])
def test_a_long_sequence_comes_in_stripes(chip: str) -> None:
    """512 entries of 64 bytes are 32 KiB; only the indices and the outputs need be in memory whole, on i.MX RT700."""
    given = 32 * 1024 + 2048 if chip == "imxrt700" else 4096
    made = compiled_for(chip, table(5000, (512,)), given)
    assert made.report.sram_bytes <= given
    assert_bytes_of_litert(made)


def test_a_table_that_is_smaller_than_its_result_is_read_in_place() -> None:
    made = compiled_for("imx95", table(8))
    assert "gather_s8" in oracle.kernels_of(made)
    assert made.report.kept_bytes == 0
    assert_bytes_of_litert(made)


def test_the_port_copies_the_entries_that_are_named() -> None:
    copies: list[tuple[int, int]] = []
    waits: list[int] = []

    def copy(to: int, source: int, size: int, channel: int) -> None:
        copies.append((size, channel))
        ctypes.memmove(to, source, size)

    config = Config()
    config.copy, config.wait = Copy(copy), Wait(waits.append)
    made = compiled_for("imxrt700", table(1000))
    library().neutronSetConfig(byref(config))
    try:
        assert_bytes_of_litert(made)
    finally:
        library().neutronSetConfig(byref(Config()))
    assert copies == [(64, 15)] * 12
    assert waits == [15]


@pytest.mark.parametrize("index", [600, -601])
def test_an_index_outside_the_table_ends_the_run(index: int) -> None:
    made = compiled_for("imx95", table(600, (2,)))
    with Simulator(made.program) as simulator:
        with pytest.raises(DriverError) as refused:
            simulator.run([np.array([1, index], np.int32)])
        assert refused.value.code == CODES["INDEX"]
        (last, first) = simulator.run([np.array([-1, 0], np.int32)])[0].reshape(2, 64)
        assert not np.array_equal(last, first)
