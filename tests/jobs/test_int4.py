# SPDX-License-Identifier: BSD-3-Clause
"""Products with weights of 4 bits: LiteRT's int4 constants, jobs with int4 weights, and their bytes in a program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

import openneutron
from openneutron import litert
from openneutron.compiler import CompileOptions
from openneutron.device import neutron_jobs as jobs
from openneutron.errors import InvalidModelError
from openneutron.ir import Graph
from openneutron.litert.read import unpack
from openneutron.litert.write import pack
from tests.fuzz import driver
from tests.jobs.graphs import convolution, linear
from tests.support import oracle


def with_int4(graph: Graph, cut: int = 0) -> bytes:
    """Return the graph's file with its weights as an int4 constant, without the last ``cut`` bytes of it."""
    model = unpack(litert.write(graph), "model")
    (tensor,) = [each for each in model.subgraphs[0].tensors if each.name == b"w"]
    values = np.append(graph["w"].data.reshape(-1), np.zeros(graph["w"].elements % 2, np.int8))
    stored = (values[0::2] & 15 | values[1::2] << 4).astype(np.uint8)
    model.buffers[tensor.buffer].data = stored[: stored.size - cut]
    tensor.type = schema.TensorType.INT4
    return pack(model)


@pytest.mark.parametrize("graph", [linear(3, 64, 33), linear(2, 7, 5), convolution(16, 24, 3, bits=4)])
def test_int4_constants_are_read_as_litert_computes_with_them(graph: Graph) -> None:
    content = with_int4(graph)
    assert np.array_equal(litert.read(content).graph["w"].data, graph["w"].data)
    inputs = oracle.random_inputs(graph, 0)
    for of_int4, of_int8 in zip(
        oracle.reference_outputs(content, inputs), oracle.reference_outputs(graph, inputs), strict=True
    ):
        assert np.array_equal(of_int4, of_int8)


def test_a_short_int4_constant_is_refused() -> None:
    with pytest.raises(InvalidModelError) as caught:
        litert.read(with_int4(linear(2, 7, 5), cut=1))
    assert str(caught.value) == (
        "'model' is damaged: tensor 1 has shape [5, 7], which takes 18 bytes; its buffer has 17. Convert the model again."
    )


def test_a_file_with_int4_weights_runs_by_jobs(tmp_path: Path) -> None:
    """The file goes the whole way, and its program has the weights once, in 4 bits."""
    graph = linear(400, 1024, 512)
    path = tmp_path / "linear.tflite"
    path.write_bytes(with_int4(graph))
    compiled = openneutron.compile(path, options=CompileOptions(target="imx95-driver"))
    (program,) = compiled.programs
    # Nibbles, 3 bytes for each group of 128, bias, zeros and factors, and the multipliers of the rescaling.
    stored = 512 * 1024 // 2 + 3 * 512 * 1024 // 128 + 3 * 4 * 512 + 3 * 4 * 512
    assert stored <= len(program.weights) < stored + 300
    (call,) = driver.checked(graph, driver.with_release(), CompileOptions(io_place="arena"))[0].schedule.calls
    assert call.params["job_group"] == 128
    assert call.params["copied"] == 0


@pytest.mark.parametrize(
    ("release", "groups"), [("third", (64, 32, 128)), ("second", (-1, 32, 128)), ("first", (-1, 32, 128))]
)
def test_every_release_computes_int4_weights(release: str, groups: tuple[int, ...]) -> None:
    """int8 stays where N is too far from whole blocks of packed weights."""
    graphs = convolution(64, 48, bits=4), convolution(16, 200, 3, stride=2, bits=4), convolution(640, 136, 3, 3, bits=4)
    for graph, group in zip(graphs, groups, strict=True):
        compiled, counts = driver.checked(graph, driver.with_release(release), CompileOptions(io_place="arena"))
        (call,) = compiled.schedule.calls
        assert call.params["job_group"] == group
        # The longest part of an int4 product has 5,120 inputs.
        assert counts.jobs == (2 if graph["w"].data[0].size > 5120 else 1)


def grouped(rng: np.random.Generator, n: int, k: int, group: int) -> jobs.Int4Weights:
    """Return random 4-bit weights with a random scale for each group, also negative ones and zeros."""
    scales = rng.standard_normal((n, k // group)) * 10.0 ** rng.uniform(-3, 0, (n, 1))
    scales[0, 0] = scales[-1, :] = 0
    return jobs.int4_weights(rng.integers(0, 256, (n, k // 2), np.uint8), scales.astype(np.float32), group)[0]


@pytest.mark.parametrize("seed", range(20))
def test_decoded_groups_are_found_again(seed: int) -> None:
    rng = np.random.default_rng(seed)
    group = int(rng.choice(jobs.GROUPS))
    values = grouped(rng, 12, 256, group).values
    found = jobs.int4_of(values, group)
    assert found is not None
    assert np.array_equal(found.values, values)
    assert (found.codes.min() >= -8, found.codes.max() <= 7) == (True, True)
    values[3, 5] ^= 1 + values[3, 5] % 2 * 64
    other = jobs.int4_of(values, group)
    assert other is None or np.array_equal(other.values, values)


def test_int8_weights_have_no_groups() -> None:
    values = np.random.default_rng(0).integers(-127, 128, (64, 256)).astype(np.int8)
    assert [jobs.int4_of(values, group) for group in jobs.GROUPS] == [None] * 3


@pytest.mark.parametrize("release", ["third", "second", "first"])
@pytest.mark.parametrize(("inputs", "group"), [(256, 32), (5248, 128)])
def test_weights_in_groups_become_int4_jobs(inputs: int, group: int, release: str) -> None:
    """The model of the NPU decodes them as NXP's packing code does; LiteRT multiplies the decoded weights."""
    values = grouped(np.random.default_rng(inputs), 248, inputs, group).values
    graph = linear(40, inputs, 248, values=values)
    compiled, counts = driver.checked(graph, driver.with_release(release), CompileOptions(io_place="arena"))
    (call,) = compiled.schedule.calls
    assert (call.params["job_group"], counts.jobs) == (group, 1 + (inputs > 5120))
