# SPDX-License-Identifier: BSD-3-Clause
"""Where the tensors of a language model come from: a state dict, a folder of safetensors, or random numbers.

Each source reads one tensor at a time, so that a model's float weights are never in memory together unless they are already.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

import numpy as np
import torch

from openneutron.errors import InvalidModelError, MissingToolError
from openneutron.language.decoder import Floats
from openneutron.language.quantization import GroupedWeights

Shape = tuple[int, ...]
Weights = Floats | GroupedWeights

INDEX = "model.safetensors.index.json"


def missing_package(what: str, error: ImportError) -> MissingToolError:
    return MissingToolError(f"{what} takes {error.name}, which is not installed: pip install 'openneutron[language]'.")


class Tensors(Protocol):
    """The named tensors of a model."""

    def shapes(self) -> Mapping[str, Shape] | None:
        """Return the shape of each tensor; None: every tensor that is asked for is there."""

    def read(self, name: str, shape: Shape) -> Weights:
        """Return a tensor as float32, or int4 weights as a file has them."""

    def kind(self, name: str) -> str:
        """Return the form in which a tensor is quantized already; empty for floats."""


@dataclass(frozen=True, slots=True, eq=False)
class StateDict:
    """The tensors of a state dict of PyTorch."""

    tensors: Mapping[str, torch.Tensor] = field(repr=False)

    def shapes(self) -> dict[str, Shape]:
        return {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}

    def read(self, name: str, shape: Shape) -> Floats:
        return _floats(self.tensors[name])

    def kind(self, name: str) -> str:
        return ""


@dataclass(frozen=True, slots=True, eq=False)
class Folder:
    """The tensors of a folder's safetensors files. ``files`` is the open file of each tensor."""

    files: Mapping[str, Any] = field(repr=False)

    @classmethod
    def opened(cls, folder: Path, stack: ExitStack) -> Folder:
        """Open the safetensors files of a folder until ``stack`` closes.

        Raises InvalidModelError if the folder has no such file, or if the index or a file is damaged or missing.
        Raises MissingToolError without the package safetensors.
        """
        try:
            from safetensors import SafetensorError, safe_open
        except ImportError as error:
            raise missing_package("A folder of a language model", error) from None
        files: dict[str, Any] = {}
        for path in _files(folder):
            try:
                file = stack.enter_context(safe_open(path, framework="pt"))
            except (OSError, SafetensorError) as error:
                raise InvalidModelError(f"{path}: it can't be read as safetensors: {error}.") from None
            files |= dict.fromkeys(file.keys(), file)
        return cls(files)

    def shapes(self) -> dict[str, Shape]:
        return {name: tuple(file.get_slice(name).get_shape()) for name, file in self.files.items()}

    def read(self, name: str, shape: Shape) -> Floats:
        return _floats(self.files[name].get_tensor(name))

    def kind(self, name: str) -> str:
        return ""


def _files(folder: Path) -> list[Path]:
    index = folder / INDEX
    if index.is_file():
        try:
            return [folder / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
        except (ValueError, KeyError, AttributeError, TypeError):
            raise InvalidModelError(f"{index}: it is no index of safetensors files.") from None
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        raise InvalidModelError(
            f"{folder}: it has no .safetensors file; a folder of a language model has its weights in them. A model in another form "
            "can be given as a module."
        )
    return found


@dataclass(frozen=True, slots=True)
class RandomTensors:
    """Random weights from a normal distribution with the standard deviation ``deviation``. Biases are 0. Weights of
    norms are chosen so that norms multiply by 1: they are 1, or 0 with ``from_one``, where the model adds 1 to them.

    A tensor depends only on ``seed``, its name and its shape, not on the order in which tensors are read.
    """

    seed: int
    deviation: float
    from_one: bool = False

    def shapes(self) -> None:
        return None

    def read(self, name: str, shape: Shape) -> Floats:
        if name.endswith(".bias"):
            return np.zeros(shape, np.float32)
        if len(shape) == 1:
            return np.full(shape, 0 if self.from_one else 1, np.float32)
        generator = np.random.default_rng([self.seed, crc32(name.encode())])
        return generator.standard_normal(shape, np.float32) * np.float32(self.deviation)

    def kind(self, name: str) -> str:
        return ""


def _floats(tensor: torch.Tensor) -> Floats:
    result: Floats = np.ascontiguousarray(tensor.detach().to("cpu", torch.float32).numpy())
    return result
