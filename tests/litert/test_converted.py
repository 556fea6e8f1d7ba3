# SPDX-License-Identifier: BSD-3-Clause
"""Converted partitions' files: both public forms of a NeutronGraph, and files that are no partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from openneutron.compiler import compile_graph
from openneutron.errors import InvalidProgramError
from openneutron.litert import read
from openneutron.litert.neutron_graph import only_graph
from openneutron.litert.write import pack
from scripts.published_networks import cifarnet
from tests.support.litert_files import graph_file
from tests.support.oracle import TARGET

GRAPH = cifarnet()
PROGRAM = compile_graph(GRAPH, TARGET).program
FILE = graph_file(GRAPH, PROGRAM)


def changed(change: Callable[[Any, Any], None]) -> bytes:
    model = read(FILE).model
    change(model.subgraphs[0], model.subgraphs[0].operators[0])
    return pack(model)


@pytest.mark.parametrize("version", [0, 1])
def test_both_forms(version: int) -> None:
    def without_profile_and_debug(_graph: Any, operator: Any) -> None:
        operator.outputs = operator.outputs[:-2]

    found = only_graph(FILE if version else changed(without_profile_and_debug))
    assert (found.program, found.inputs, found.outputs) == (PROGRAM, GRAPH.inputs, GRAPH.outputs)
    assert found.payload_version == version


def test_microcode_of_others_is_not_read() -> None:
    def theirs(graph: Any, operator: Any) -> None:
        blob = graph.tensors[operator.inputs[-3]]
        blob.shape = np.array([40], np.int32)
        model.buffers[blob.buffer].data = np.arange(40, dtype=np.uint8)

    model = read(FILE).model
    theirs(model.subgraphs[0], model.subgraphs[0].operators[0])
    assert only_graph(pack(model)).program.microcode == bytes(range(40))


def _extra_output(graph: Any, operator: Any) -> None:
    operator.outputs = operator.outputs[:-1]


def _stranger(graph: Any, operator: Any) -> None:
    operator.inputs = np.array([operator.inputs[-1], *operator.inputs[1:]], np.int32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            _extra_output,
            "its NeutronGraph has 4 inputs and 3 outputs; the file has 1 and 1, and besides there are 3 constants, and 1 or "
            "3 buffers",
        ),
        (
            _stranger,
            "its NeutronGraph has an input 'cifarnet/kernels' that is no input of the file",
        ),
    ],
)
def test_wiring_that_does_not_fit(change: Callable[[Any, Any], None], message: str) -> None:
    with pytest.raises(InvalidProgramError) as caught:
        only_graph(changed(change))
    assert str(caught.value) == message
