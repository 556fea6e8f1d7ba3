# SPDX-License-Identifier: BSD-3-Clause
"""Hashes of what a result depends on: code, versions, graphs with their constants."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from openneutron.ir import Graph, Tensor

PACKAGE = Path(__file__).parents[2]

LIBRARIES = ("numpy", "ortools")
"""The packages of others whose results a compiled program depends on."""


class Digest:
    """A SHA-256 of a sequence of parts. Each part goes in with its length, so that no two sequences are the same bytes."""

    def __init__(self, *parts: str) -> None:
        import hashlib  # here, since it loads OpenSSL, which most compiles do without

        self._hash = hashlib.sha256()
        for part in parts:
            self.add(part.encode())

    def add(self, part: bytes) -> None:
        self._hash.update(len(part).to_bytes(8, "little"))
        self._hash.update(part)

    def hex(self) -> str:
        """Return the hash in hexadecimal digits."""
        return self._hash.hexdigest()


@cache
def code(*libraries: str) -> str:
    """Return a text that is another one where this package's code, Python or one of these packages is another."""
    import platform

    digest = Digest(platform.python_version(), platform.machine())
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.add(path.relative_to(PACKAGE).as_posix().encode())
        digest.add(path.read_bytes())
    return json.dumps([digest.hex(), *versions(libraries)])


def versions(libraries: Iterable[str]) -> list[str]:
    """Return the installed versions; an empty text for a package that is not installed."""
    # Imported here: most compiles have no cache, and the import takes as long as the compile of a small model.
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for name in libraries:
        try:
            found.append(version(name))
        except PackageNotFoundError:
            found.append("")
    return found


def add_graph(digest: Digest, graph: Graph) -> None:
    """Add all of a graph that a program depends on. The name of the graph, and the sources of its nodes, are for messages
    alone."""
    digest.add(repr((graph.inputs, graph.outputs)).encode())
    for state in graph.states:
        initial = None if state.initial is None else state.initial.tobytes()
        digest.add(repr((state.tensor, state.update, initial)).encode())
    for node in graph.nodes:
        digest.add(repr((node.op, node.inputs, node.outputs, sorted(node.attrs.items()))).encode())
    for name in sorted(graph.tensors):
        _add_tensor(digest, graph.tensors[name])


def _add_tensor(digest: Digest, tensor: Tensor) -> None:
    digest.add(repr((tensor.name, tensor.shape, tensor.dtype.value, _quantization(tensor))).encode())
    digest.add(b"" if tensor.data is None else tensor.data.tobytes())


def _quantization(tensor: Tensor) -> object:
    return None if tensor.quant is None else (tensor.quant.scales, tensor.quant.zero_points, tensor.quant.axis)
