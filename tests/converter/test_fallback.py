# SPDX-License-Identifier: BSD-3-Clause
"""Partitions that NXP's converter refuses, crashes on, hangs on or leaves in part: the operators at fault go to the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import openneutron
from openneutron.compiler.legalize.partition import extract, partition
from openneutron.device.converter import eiq, owner_of, refusals
from openneutron.device.converter.eiq import EiqConverter
from openneutron.device.mixed import FileSimulator
from openneutron.errors import ConverterError, Failure, InvalidModelError
from openneutron.ir import DType, Graph, Node, QuantParams, Tensor
from openneutron.litert import read, write
from openneutron.litert.read import operator_name
from openneutron.options import CompileOptions
from tests.support import fake_sdk
from tests.support.oracle import random_inputs, reference_outputs

EIQ = CompileOptions(converter="eiq", converter_timeout=5)
WORDS = "NXP's converter 3.1.2"


def chain(length: int, other: int | None = None) -> Graph:
    """A chain of ABS, with a RELU at one place."""
    quant = QuantParams((0.05,), (0,), None)
    tensors = {name: Tensor(name, (1, 4), DType.INT8, quant) for name in ["x", *(f"r{i}" for i in range(length))]}
    nodes = [
        Node("relu" if place == other else "abs", (f"r{place - 1}" if place else "x",), (f"r{place}",))
        for place in range(length)
    ]
    return Graph("chain", tensors, tuple(nodes), ("x",), (f"r{length - 1}",))


class Calls:
    """A converter that refuses graphs with a RELU, and counts its calls. A graph that it was given before costs nothing."""

    def __init__(self, output: str = "") -> None:
        self.count, self.output, self.known = 0, output, {}

    def __call__(self, graph: Graph) -> Failure | None:
        key = tuple(node.name for node in graph.nodes)
        if key not in self.known:
            self.count += 1
            bad = [node.name for node in graph.nodes if node.op == "relu"]
            said = self.output.format(*bad) if bad else ""
            self.known[key] = Failure(f"refuses it: {said or 'no'}", said) if bad else None
        return self.known[key]


def converted(graph: Graph, calls: Calls) -> set[str]:
    """The results that stay on the CPU, as a compile finds them: partition, try, and again."""
    refused: dict[str, str] = {}
    while True:
        before = len(refused)
        for part in partition(graph, refused=refused).partitions:
            refused |= {item.result: item.reason for item in refusals(part.graph, calls, WORDS)}
        if len(refused) == before:
            return set(refused)


@pytest.mark.parametrize(
    "output", ["", "no kernel takes {0}", "no kernel takes {0}/wide", "no kernel for RELU", "r5 and r6 are beside it"]
)
def test_one_of_a_hundred_takes_at_most_12_calls(output: str) -> None:
    most = 0
    for place in (0, 1, 37, 50, 98, 99):
        calls = Calls(output)
        assert converted(chain(100, place), calls) == {f"r{place}"}
        most = max(most, calls.count)
    assert most == (4 if output.startswith("no kernel") else 9)


def test_three_of_forty() -> None:
    graph, calls = chain(40), Calls()
    graph = graph.rebuilt(
        [Node("relu", node.inputs, node.outputs) if i in (3, 20, 21) else node for i, node in enumerate(graph.nodes)]
    )
    assert converted(graph, calls) == {"r3", "r20", "r21"}
    assert calls.count <= 3 * 8


def test_a_converter_that_refuses_everything_is_not_asked_for_each_operator() -> None:
    calls: list[int] = []

    def never(graph: Graph) -> Failure:
        calls.append(len(graph.nodes))
        return Failure("refuses it: it was ended by signal 11 (SIGSEGV)", "")

    found = refusals(chain(100), never, WORDS)
    assert len(found) == 100 and len(calls) == 1 + 6 + 1
    assert found[0].reason == "NXP's converter 3.1.2 refuses it: it was ended by signal 11 (SIGSEGV)"


def test_nodes_that_only_convert_belong_to_a_node_of_the_model() -> None:
    graph = extract(chain(4), range(4))
    assert owner_of(graph.nodes, "r2", {"r2"}) == "r2"
    assert owner_of(graph.nodes, "r0", {"r2"}) == "r2"
    assert owner_of(graph.nodes, "r3", {"r1"}) == "r1"
    assert owner_of(graph.nodes, "r3", {"y"}) is None


def file_of(tmp_path: Path) -> Path:
    path = tmp_path / "net.tflite"
    path.write_bytes(write(chain(5, 2)))
    return path


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder on sys.path where a test writes its SDK. It states the release 3.1.2."""
    folder = tmp_path / "sdk"
    fake_sdk.write_facts(folder, "3.1.2")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(eiq, "_run", fake_sdk.forked)
    return folder


@pytest.mark.parametrize(
    ("body", "calls", "words"),
    [
        (fake_sdk.REFUSES_BY_NAME, 4, "ValueError: no kernel takes r2"),
        (fake_sdk.REFUSES, 4, "ValueError: tile size 3 is odd"),
        (fake_sdk.DIES, 4, "it was ended by signal 11 (SIGSEGV)"),
        (fake_sdk.LEAVES, 3, "it leaves the operator outside of the NeutronGraph"),
    ],
)
def test_a_file_of_which_it_takes_all_but_one_operator(
    body: str, calls: int, words: str, sdk: Path, tmp_path: Path
) -> None:
    fake_sdk.write(sdk, body)
    made = openneutron.compile(file_of(tmp_path), options=EIQ)
    (left,) = made.compiled.partitioning.on_cpu
    assert str(left) == f"RELU 'r2' stays on the CPU: NXP's converter 3.1.2 refuses it: {words}."
    assert fake_sdk.calls(sdk) == calls
    main = read(made.buffer).model
    assert [operator_name(main, item) for item in main.subgraphs[0].operators] == [
        *("CUSTOM NeutronGraph", "RELU", "CUSTOM NeutronGraph")
    ]
    graph = chain(5, 2)
    inputs = random_inputs(graph, 1)
    for result, reference in zip(FileSimulator(made.buffer).run(inputs), reference_outputs(graph, inputs), strict=True):
        np.testing.assert_array_equal(result, reference)
    assert "2 partitions, for the chip alone" in made.summary()


def test_what_it_hangs_on(sdk: Path, tmp_path: Path) -> None:
    fake_sdk.write(sdk, fake_sdk.HANGS)
    path = tmp_path / "net.tflite"
    path.write_bytes(write(chain(2, 1)))
    made = openneutron.compile(path, options=EIQ)
    (left,) = made.compiled.partitioning.on_cpu
    assert left.reason == "NXP's converter 3.1.2 refuses it: it did not end within 5 s"
    assert fake_sdk.calls(sdk) == 2


def test_a_process_that_hangs_is_ended(sdk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(sdk))
    fake_sdk.write(sdk, "import time\ntime.sleep(60)")
    with pytest.raises(ConverterError) as caught:
        EiqConverter().convert(chain(1), replace(EIQ, converter_timeout=1))
    assert str(caught.value).startswith(
        "eiq: eiq_neutron_sdk was stopped after 1 s (converter_timeout) and returned no model for 'chain'. It printed nothing. "
    )


def test_a_stopped_call_is_no_answer_for_a_longer_one(sdk: Path) -> None:
    fake_sdk.write(sdk, "import time\ntime.sleep(1.5)")
    for seconds, words in ((1, "was stopped after 1 s"), (30, "returned no model")):
        with pytest.raises(ConverterError, match=words) as caught:
            EiqConverter().convert(chain(1), replace(EIQ, converter_timeout=seconds))
    assert "was stopped" not in str(caught.value)


def test_microcode_of_another_version(sdk: Path, tmp_path: Path) -> None:
    fake_sdk.write(sdk, fake_sdk.OTHER_VERSION)
    with pytest.raises(ConverterError) as caught:
        openneutron.compile(file_of(tmp_path), options=EIQ)
    assert str(caught.value) == (
        "eiq: eiq_neutron_sdk made microcode of 'chain' that no published driver reads: its header has the form of version 0, and its "
        "operator that of version 1. Install the release of the SDK that the board's driver is from. Or compile with "
        "converter='open', this project's own compiler."
    )
    assert fake_sdk.calls(sdk) == 1


def test_what_was_learnt_is_kept(sdk: Path, tmp_path: Path) -> None:
    fake_sdk.write(sdk, fake_sdk.REFUSES)
    first = openneutron.compile(file_of(tmp_path), options=EIQ, cache=tmp_path / "cache")
    eiq._answer.cache_clear()
    again = openneutron.compile(file_of(tmp_path), options=EIQ, cache=tmp_path / "cache")
    assert (again.buffer, fake_sdk.calls(sdk)) == (first.buffer, 4)


def test_nothing_is_left(sdk: Path, tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(write(chain(1, 0)))
    fake_sdk.write(sdk, fake_sdk.REFUSES)
    with pytest.raises(InvalidModelError) as caught:
        openneutron.compile(path, options=EIQ)
    assert str(caught.value) == (
        "'net.tflite': its one operator does not run on the NPU; RELU 'r0': NXP's converter 3.1.2 refuses it: ValueError: tile size 3 is "
        "odd. `openneutron explain` gives the reason for each."
    )
