# SPDX-License-Identifier: BSD-3-Clause
"""Programs for a Cortex-A55 with matrix products on the NPU beside it: bytes, memory, what becomes a job, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openneutron import litert, targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.rewrite.jobs import JOB, MATMUL_JOB, RECURRENT
from openneutron.compiler.rewrite.passes import explained
from openneutron.device.device_model import DeviceModel
from openneutron.device.simulator import Simulator
from openneutron.errors import DriverError, InvalidOptionError, InvalidTargetError
from openneutron.ir import Graph
from openneutron.options import DRIVER
from tests.fuzz import driver
from tests.jobs.graphs import convolution
from tests.support import attention_graphs, oracle, random_graphs


@pytest.mark.parametrize("io", ["arena", "caller"])
@pytest.mark.parametrize(("name", "count"), [("ad01", 10), ("kws", 6), ("resnet8", 10), ("vww96", 15)])
def test_shared_networks_are_exact(shared_models: Path, name: str, count: int, io: str) -> None:
    """Every product is a job."""
    graph = litert.read((shared_models / f"mlperf_tiny_{name}_int8.tflite").read_bytes()).graph
    compiled, counts = driver.checked(graph, driver.with_release(), CompileOptions(io_place=io))
    assert oracle.kernels_of(compiled).count(JOB) == count
    assert (counts.jobs >= count, counts.refused) == (True, 0)


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_random_graphs_are_exact(seed: int) -> None:
    driver.check(seed)


@pytest.mark.parametrize("release", targets.target.RELEASES)
@pytest.mark.parametrize(
    ("graph", "copied", "job_count"),
    [
        pytest.param(convolution(64, 48), False, 1, id="in place"),
        pytest.param(convolution(20, 48), True, 1, id="inputs padded"),
        pytest.param(convolution(16, 200, 3, stride=2), True, 1, id="windows"),
        pytest.param(convolution(128, 48, 3), True, 2, id="1152 inputs in two parts"),
        pytest.param(convolution(16, 16, 1, 46), False, 2, id="more than 2048 pixels"),
    ],
)
def test_every_release_computes_every_form(graph: Graph, copied: bool, job_count: int, release: str) -> None:
    compiled, counts = driver.checked(graph, driver.with_release(release), CompileOptions(io_place="arena"))
    (call,) = compiled.schedule.calls
    assert call.kernel == JOB
    # The operand of the older releases is uint8.
    assert call.params["copied"] == int(copied or release != "third")
    assert counts.jobs == job_count


@pytest.mark.parametrize("release", targets.target.RELEASES)
@pytest.mark.parametrize(
    ("sizes", "copied", "job_count"),
    [
        pytest.param((5, 32, 48), (False, False), 2, id="in place"),
        pytest.param((5, 32, 20), (False, True), 2, id="columns padded"),
        pytest.param((1, 64, 16, 1), (False, False), 1, id="one row"),
        pytest.param((7, 40, 16, 1), (True, True), 1, id="depth padded"),
        pytest.param((3, 1152, 32, 3, (0, 0)), (True, True), 6, id="1152 in two parts, no zero points"),
        pytest.param((2100, 16, 16, 1, (-128, 127)), (False, False), 2, id="more than 2048 rows"),
    ],
)
def test_products_of_activations_are_exact(
    sizes: tuple[int, ...], copied: tuple[bool, bool], job_count: int, release: str
) -> None:
    compiled, counts = driver.checked(
        driver.matrices(*sizes), driver.with_release(release), CompileOptions(io_place="arena")
    )
    (call,) = (call for call in compiled.schedule.calls if call.kernel == MATMUL_JOB)
    # The operand of the older releases is uint8.
    assert (call.params["a_copied"], call.params["b_copied"]) == (copied[0] or release != "third", copied[1])
    assert counts.jobs == job_count


@pytest.mark.parametrize("release", ["third", "first"])
@pytest.mark.parametrize("op", ["unidirectional_sequence_lstm", "bidirectional_sequence_lstm", "gru", "rnn"])
def test_products_of_all_steps_are_those_step_by_step(op: str, release: str) -> None:
    """LiteRT lacks kernels for most of these layers, so the results are compared with those of the CPU alone."""
    for seed in range(3):
        graph = random_graphs.single(op, seed)
        inputs = oracle.random_inputs(graph, seed)
        alone = oracle.simulated_outputs(compile_graph(graph, targets.get("imx95-cpu")), inputs)
        with driver.every_product():
            compiled = compile_graph(graph, driver.with_release(release))
        with DeviceModel(release=release) as model:
            beside = oracle.simulated_outputs(compiled, inputs)
            counts = model.counts()
        assert set(RECURRENT.values()).intersection(oracle.kernels_of(compiled))
        assert [each.tobytes() for each in beside] == [each.tobytes() for each in alone]
        assert counts.jobs > 0
        assert counts.violations == 0


def test_attention_is_divided_where_its_products_pay_as_jobs() -> None:
    target, kernels = targets.get("imx95-driver"), {"attention_s8", "softmax_s8", MATMUL_JOB}
    for sizes, wanted in {(1, 8, 2, 16): {"attention_s8"}, (1, 64, 2, 64): {"softmax_s8", MATMUL_JOB}}.items():
        compiled = compile_graph(attention_graphs.block(0, *sizes), target, CompileOptions(check=False))
        assert kernels.intersection(oracle.kernels_of(compiled)) == wanted, sizes


def test_a_job_is_made_where_it_pays() -> None:
    """A job of one row takes longer than the CPU, one of 400 rows does not."""
    target = targets.get("imx95-driver")
    large, small = convolution(512, 512, 1, 20), convolution(512, 512, 1, 1)
    assert oracle.kernels_of(compile_graph(large, target)) == [JOB]
    assert oracle.kernels_of(compile_graph(small, target)) == ["conv_2d_1x1_s8"]
    (words,) = [str(each) for each in explained(small, target, CompileOptions()) if each.row.name == "jobs"]
    assert words == "the calls would take no fewer cycles (y: 7.43 times as many)"
    off = CompileOptions(without_passes=("jobs",))
    assert oracle.kernels_of(compile_graph(large, target, off)) == ["conv_2d_1x1_s8"]


def test_the_option_names_the_target() -> None:
    assert CompileOptions(target="imx95", converter=DRIVER).target == "imx95-driver"
    assert CompileOptions(target="imx95-driver").target == "imx95-driver"
    with pytest.raises(InvalidTargetError) as caught:
        CompileOptions(target="imxrt700", converter=DRIVER)
    assert str(caught.value) == (
        "Target `imxrt700` has no published matrix products for converter='driver'. Choose one of `['imx95']`."
    )


def test_the_option_names_the_release() -> None:
    options = CompileOptions(target="imx95", converter=DRIVER, converter_release="second")
    assert options.target == "imx95-driver-second"
    assert CompileOptions.from_dict(options.to_dict()) == options
    target = targets.get(options.target)
    assert target.jobs is not None
    assert target.jobs.release.value == ("second",)
    assert targets.with_checksum(targets.checksum(target.name)) == target
    firmware = CompileOptions(target="imx95-driver", converter_release="3.1.1")
    assert firmware.target == "imx95-driver-third"
    with pytest.raises(InvalidOptionError) as caught:
        CompileOptions(target="imx95", converter=DRIVER, converter_release="3.2")
    assert str(caught.value) == (
        "release: no published source has the form of jobs of version '3.2'; known are first, second, third, 3.1.1. Run `openneutron board "
        "make imx95` and try its program on the board: it tells which release's form works."
    )
    with driver.every_product():
        compiled = compile_graph(convolution(64, 48), target)
    inputs = oracle.random_inputs(compiled.graph, 0)
    with DeviceModel(release="second") as model:
        oracle.simulated_outputs(compiled, inputs)
        assert model.counts().jobs == 1


def test_another_release_refuses_the_job() -> None:
    with driver.every_product():
        compiled = compile_graph(convolution(64, 48), driver.with_release("third"))
    with DeviceModel(release="first"), Simulator(compiled.program) as simulator, pytest.raises(DriverError) as caught:
        simulator.run(oracle.random_inputs(compiled.graph, 0))
    assert str(caught.value) == (
        "run: the driver says that the NPU's own driver refused a matrix product; its version may not be the release that the program "
        "was compiled for; error 0x1a3b."
    )


@pytest.mark.parametrize(
    ("graph", "largest"),
    [
        pytest.param(convolution(64, 48), 1, id="in place"),
        pytest.param(convolution(16, 200, 3, stride=2), 1, id="windows"),
        pytest.param(convolution(128, 48, 3), 0, id="results of two parts are added by the CPU"),
    ],
)
def test_the_npu_rescales_where_the_option_asks_for_it(graph: Graph, largest: int) -> None:
    """Truncated results are at most a step off; rounded ones of these layers are LiteRT's. Word 10 does not matter."""
    target = driver.with_release()
    options = CompileOptions(target=target.name, rescale="npu")
    with driver.every_product():
        compiled, exact = (compile_graph(graph, target, each) for each in (options, CompileOptions()))
    assert [item.is_exact for item in compiled.report.jobs] == [not largest]
    assert largest == int(compiled.report.cycles < exact.report.cycles)
    inputs = oracle.random_inputs(graph, 0)
    (wanted,) = oracle.reference_outputs(graph, inputs)
    for rounding, bound in {"half_up": 0, "half_even": 0, "half_away": 0, "truncate": largest}.items():
        with DeviceModel(rounding=rounding, zero_point="added") as model:
            (found,) = oracle.simulated_outputs(compiled, inputs)
            assert model.counts().violations == 0
        assert np.abs(found.astype(int) - wanted).max() == bound


def test_only_jobs_are_rescaled_by_the_npu() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        CompileOptions(target="imxrt700", rescale="npu")
    assert str(caught.value) == (
        "rescale: it is 'npu'; only converter='driver' gives matrix products to the NPU's driver. Leave it out, or set converter='driver'."
    )
    graph = convolution(64, 48)
    for release in ("first", "second"):  # A is uint8 there, and so would be the results.
        with driver.every_product():
            options = CompileOptions(target="imx95-driver", rescale="npu")
            compiled = compile_graph(graph, driver.with_release(release), options)
        assert [item.is_exact for item in compiled.report.jobs] == [True]
