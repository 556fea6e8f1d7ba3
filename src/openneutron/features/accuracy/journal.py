# SPDX-License-Identifier: BSD-3-Clause
"""The sets of measures that a search has tried, in a file, so that an interrupted search goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.fx import GraphModule

from openneutron.device import files
from openneutron.features.accuracy.twins import tensor_of
from openneutron.options import QuantizationOptions
from openneutron.pytorch.source.exporting import ModelInputs


def digest(module: GraphModule, calls: Iterable[ModelInputs], settings: str) -> str:
    """Return the hash of a model with its weights, of samples, and of ``settings``."""
    made = hashlib.sha256(settings.encode())
    for node in module.graph.nodes:
        made.update(repr((node.op, str(node.target), node.args, node.kwargs)).encode())
        if node.op == "get_attr":
            _add(made, tensor_of(module, node))
    for call in calls:
        for tensor in call.tensors:
            _add(made, tensor)
    return made.hexdigest()


def _add(made: hashlib._Hash, tensor: torch.Tensor) -> None:
    made.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


@dataclass(slots=True)
class Journal:
    """The ratio of each set of measures, by the text of its quantization file. ``path`` None: in memory alone.

    A file of another model, or one that can't be read, counts as empty.
    """

    path: Path | None
    key: str
    known: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is None:
            return
        try:
            found = json.loads(self.path.read_text())
            if found["key"] == self.key:
                self.known = {str(name): float(value) for name, value in found["known"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self.known = {}

    def get(self, options: QuantizationOptions) -> float | None:
        """Return the ratio of a set of measures; None where it was not tried."""
        return self.known.get(_name(options))

    def put(self, options: QuantizationOptions, value: float) -> None:
        """Note the ratio of a set of measures."""
        self.known[_name(options)] = value
        if self.path is not None:
            files.write({self.path: json.dumps({"key": self.key, "known": self.known}).encode()})

    def remove(self) -> None:
        """Delete the file."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _name(options: QuantizationOptions) -> str:
    return json.dumps(options.to_file(), sort_keys=True)
