# SPDX-License-Identifier: BSD-3-Clause
"""Calibration samples from files, loaders and datasets, as calls of a model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from openneutron.data import ModelInput, Source, source
from openneutron.errors import InvalidModelError
from openneutron.pytorch.source.exporting import ModelInputs


def is_data(calibration: Any) -> bool:
    """Return whether calibration data is a source of samples, not samples in Python's own containers."""
    return isinstance(calibration, (str, os.PathLike, Dataset, DataLoader, Source, CalibrationData))


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationData:
    """The samples of a source, read one after the other, as calls of a model without their labels."""

    source: Source
    call: ModelInputs = field(repr=False)

    @classmethod
    def of(
        cls,
        given: Any,
        call: ModelInputs,
        *,
        preprocess: str | Callable[[Any], Any] | None,
        sample_rate: int | None,
        limit: int | None,
        option: str,
    ) -> CalibrationData:
        """Return the samples of the data for a model with these example inputs. Errors are those of ``data.source``."""
        inputs = inputs_of(call)
        return cls(
            source(given, inputs, preprocess=preprocess, sample_rate=sample_rate, limit=limit, option=option), call
        )

    def __iter__(self) -> Iterator[Any]:
        for sample in self.source:
            rest = iter(sample.arrays)
            leaves = [
                torch.from_numpy(next(rest)) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.call.leaves
            ]
            yield self.call.rebuilt(leaves).as_sample()

    def __length_hint__(self) -> int:
        return self.source.count or 0


def inputs_of(call: ModelInputs) -> list[ModelInput]:
    """Return the tensors of a model's example inputs as inputs of a source. Raises InvalidModelError for a type that NumPy has not."""
    return [ModelInput(tuple(tensor.shape), _numpy_type(tensor)) for tensor in call.tensors]


def _numpy_type(tensor: torch.Tensor) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = torch.empty(0, dtype=tensor.dtype).numpy().dtype
        return found
    except TypeError as error:
        raise InvalidModelError(f"the model takes {tensor.dtype}, which NumPy has no type for; use float32.") from error
