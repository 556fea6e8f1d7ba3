# SPDX-License-Identifier: BSD-3-Clause
"""A converted partition's file: one NeutronGraph and nothing else, whoever's microcode is in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openneutron.errors import InvalidProgramError
from openneutron.isa import Program
from openneutron.litert.neutron_graph import BLOBS, OPERATOR_NAME, WORK
from openneutron.litert.read import operator_name, unpack


@dataclass(frozen=True, slots=True)
class ConvertedGraph:
    """The NeutronGraph's blobs, unread, and the file's inputs and outputs in the NeutronGraph's order, by name.

    ``payload_version`` is 1 where profile and debug buffers follow the scratch buffer, 0 where nothing does.
    """

    program: Program = field(repr=False)
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    payload_version: int


def only_graph(data: bytes) -> ConvertedGraph:
    """The one NeutronGraph of a file. Raises InvalidProgramError where it is not alone there, not there at all, or not
    wired to the file's inputs and outputs, InvalidModelError where the file is damaged."""
    model = unpack(data, "the converted model")
    graphs = model.subgraphs or []
    if len(graphs) != 1:
        raise InvalidProgramError(f"it has {len(graphs)} graphs; a converted partition has one")
    operators = graphs[0].operators or []
    names = [operator_name(model, operator) for operator in operators]
    if names != [OPERATOR_NAME]:
        inside = ", ".join(names) if names else "none"
        raise InvalidProgramError(
            f"it has {names.count(OPERATOR_NAME)} NeutronGraphs among {len(names)} operators ({inside}); "
            "a converted partition is exactly one NeutronGraph"
        )
    of_file = {"input": _places(graphs[0].inputs), "output": _places(graphs[0].outputs)}
    inputs, outputs = _places(operators[0].inputs), _places(operators[0].outputs)
    extra = len(outputs) - len(of_file["output"])
    if len(inputs) < len(BLOBS) or extra not in (1, len(WORK)):
        raise InvalidProgramError(
            f"its NeutronGraph has {len(inputs)} inputs and {len(outputs)} outputs; the file has {len(of_file['input'])} and "
            f"{len(of_file['output'])}, and besides there are {len(BLOBS)} constants, and 1 or {len(WORK)} buffers"
        )
    tensors = graphs[0].tensors or []
    if not all(0 <= place < len(tensors) for place in (*inputs, *outputs)):
        raise InvalidProgramError("its NeutronGraph names tensors that the file does not have")

    def borders(kind: str, places: Sequence[int]) -> tuple[str, ...]:
        strangers = [place for place in places if place not in of_file[kind]]
        if strangers:
            name = _name(tensors[strangers[0]])
            raise InvalidProgramError(f"its NeutronGraph has an {kind} '{name}' that is no {kind} of the file")
        return tuple(_name(tensors[place]) for place in places)

    return ConvertedGraph(
        Program(*(_blob(model, tensors[place]) for place in inputs[-len(BLOBS) :])),
        borders("input", inputs[: -len(BLOBS)]),
        borders("output", outputs[:-extra]),
        1 if extra == len(WORK) else 0,
    )


def _places(given: Any) -> list[int]:
    return [] if given is None else [int(place) for place in given]


def _name(tensor: Any) -> str:
    return (tensor.name or b"").decode("utf-8", "replace")


def _blob(model: Any, tensor: Any) -> bytes:
    data = model.buffers[tensor.buffer].data
    return b"" if data is None else np.asarray(data, np.uint8).tobytes()
