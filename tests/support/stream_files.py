# SPDX-License-Identifier: BSD-3-Clause
"""LiteRT files with a variable: a convolution over rows that come one a run."""

from __future__ import annotations

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from openneutron.device.mixed import compile_file
from openneutron.litert import read
from tests.support.litert_files import BUILTIN, FileBuilder


class StreamBuilder(FileBuilder):
    """A file whose ring of frames is a variable, set once to -3 in every byte."""

    def handle(self, name: str, variable: bytes) -> None:
        self.tensor(name, (1,), "resource")
        self.operator(BUILTIN.VAR_HANDLE, [], [name], "VarHandleOptions", sharedName=variable, container=b"")

    def set_once(self, variable: bytes, first: np.ndarray) -> None:
        """Add a subgraph that sets the variable, and the call of it."""
        main, places = self.graph, self.places
        self.graph, self.places = schema.SubGraphT(), {}
        self.graph.name = b"set " + variable
        self.graph.tensors, self.graph.operators = [], []
        self.model.subgraphs.append(self.graph)
        self.handle("handle", variable)
        self.tensor("first", first.shape, "int8", 0.05, -3, first)
        self.operator(BUILTIN.ASSIGN_VARIABLE, ["handle", "first"], [], "AssignVariableOptions")
        self.graph.inputs = self.graph.outputs = np.zeros(0, np.int32)
        self.graph, self.places = main, places
        index = len(self.model.subgraphs) - 1
        self.operator(BUILTIN.CALL_ONCE, [], [], "CallOnceOptions", initSubgraphIndex=index)

    def stream(self, kind: str, first: np.ndarray, held: str = "ring") -> None:
        """Read the variable, put the frame behind it, and write the newest rows back."""
        self.set_once(kind.encode(), first)
        self.handle(f"{kind}/handle", kind.encode())
        self.tensor(held, (1, 2, 4, 2), scale=0.05, zero_point=-3)
        self.operator(BUILTIN.READ_VARIABLE, [f"{kind}/handle"], [held], "ReadVariableOptions")
        self.tensor("rows", (1, 3, 4, 2), scale=0.05, zero_point=-3)
        self.operator(BUILTIN.CONCATENATION, [held, "x"], ["rows"], "ConcatenationOptions", axis=1)
        self.conv("y", "rows", (1, 3, 4, 2), 2, 1)
        self.constant("begin", np.array([0, 1, 0, 0], np.int32))
        self.constant("size", np.array([1, 2, 4, 2], np.int32))
        self.tensor("next", (1, 2, 4, 2), scale=0.05, zero_point=-3)
        self.operator(BUILTIN.SLICE, ["rows", "begin", "size"], ["next"], "SliceOptions")

    def assign(self, kind: str, value: str) -> None:
        self.operator(BUILTIN.ASSIGN_VARIABLE, [f"{kind}/handle", value], [], "AssignVariableOptions")


def streaming_file(first: np.ndarray) -> bytes:
    b = StreamBuilder()
    b.tensor("x", (1, 1, 4, 2), scale=0.05, zero_point=-3)
    b.stream("ring", first)
    b.assign("ring", "next")
    return b.finish(["x"], ["y"])


def compiled_stream() -> bytes:
    """Return the compiled file of a stream: one NeutronGraph."""
    return compile_file(read(streaming_file(np.full((1, 2, 4, 2), -3, np.int8))), "stream").to_bytes()
