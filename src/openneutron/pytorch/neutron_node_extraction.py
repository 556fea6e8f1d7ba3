# SPDX-License-Identifier: BSD-3-Clause
"""The parts of a converted partition, under the names of ExecuTorch's NXP backend."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openneutron import litert
from openneutron.device.files import existing
from openneutron.litert.neutron_graph import only_graph


@dataclass(frozen=True, slots=True, eq=False)
class NeutronNodeArtifacts:
    """The NeutronGraph of a file. ``microcode``, ``weights`` and ``kernels`` are arrays of bytes.

    Names and indices of inputs and outputs are in the order of the NeutronGraph. The indices tell which inputs and
    outputs of the file these are. ``payload_version`` is 1 where the NeutronGraph has outputs for a profile and for
    debugging, else 0.
    """

    input_names: list[str]
    input_indices: list[int]
    output_names: list[str]
    output_indices: list[int]
    microcode: NDArray[np.uint8] = field(repr=False)
    weights: NDArray[np.uint8] = field(repr=False)
    kernels: NDArray[np.uint8] = field(repr=False)
    payload_version: int


def extract_artifacts_from_neutron_node(tflite_flatbuffer_or_path: bytes | str) -> NeutronNodeArtifacts:
    """Return the parts of the only NeutronGraph of a ``.tflite``, which is given as its bytes or its path.

    Raises InvalidProgramError where the file is not exactly one NeutronGraph that is connected to the file's inputs and outputs, and
    InvalidModelError where it is damaged.
    """
    given = tflite_flatbuffer_or_path
    data = existing(given).read_bytes() if isinstance(given, str | Path) else bytes(given)
    found, graph = only_graph(data), litert.read(data).graph
    microcode, weights, kernels = (
        np.frombuffer(blob, np.uint8)
        for blob in (found.program.microcode, found.program.weights, found.program.kernels)
    )
    return NeutronNodeArtifacts(
        list(found.inputs),
        [graph.inputs.index(name) for name in found.inputs],
        list(found.outputs),
        [graph.outputs.index(name) for name in found.outputs],
        microcode,
        weights,
        kernels,
        found.payload_version,
    )
