# SPDX-License-Identifier: BSD-3-Clause
"""A file that ``openneutron run`` runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class InputTensor:
    """An input of a file; no scale where it is not quantized."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    scale: float | None = None
    zero_point: int = 0
    below: int | None = None
    """What integers must be less than, where they are places in a table."""


class Runnable(Protocol):
    """A file that is ready to run."""

    @property
    def inputs(self) -> Sequence[InputTensor]: ...

    @property
    def where(self) -> str:
        """What runs on the NPU, in words."""

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]: ...
