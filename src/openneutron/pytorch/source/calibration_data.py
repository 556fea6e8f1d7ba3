# SPDX-License-Identifier: BSD-3-Clause
"""Calibration samples from files, loaders and datasets, as calls of a model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from operator import length_hint
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from openneutron.data import ModelInput, Source, source
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.options import DataOptions, changed
from openneutron.pte import PREPROCESSING
from openneutron.pytorch.source.exporting import ModelInputs
from openneutron.pytorch.source.samples import samples


@dataclass(frozen=True, slots=True, eq=False)
class Calibrated:
    """The facts of the calibration that a compiled model keeps.

    ``preprocessing`` states the steps from a file to an input as text; empty where the samples had none. ``sample`` is the first
    sample: the model's arguments in their order, None for those that are no tensors of NumPy's types; empty without a calibration.
    """

    preprocessing: str = ""
    sample: tuple[np.ndarray | None, ...] = field(default=(), repr=False)

    @property
    def facts(self) -> dict[str, str]:
        """Return the texts that a compiled file has, by the names of their methods."""
        return {PREPROCESSING: self.preprocessing} if self.preprocessing else {}


class ExampleInputs(list[Any]):
    """The example inputs in the place of calibration data, whose ranges nobody expects to be typical."""


@dataclass(slots=True, eq=False)
class Calibration:
    """The calibration samples of a compile, as calls of the model. The first one that is read stays in ``calibrated``."""

    given: Iterable[Any]
    call: ModelInputs
    calibrated: Calibrated

    @classmethod
    def of(cls, given: Any, call: ModelInputs, options: DataOptions) -> Calibration | None:
        """Return the samples; None without any. Raises InvalidOptionError where the data can't be used, or options are given that it has
        no use for."""
        if given is None:
            for name in changed(options):
                raise InvalidOptionError(
                    f"{name}: there is no calibration data that it is about. Pass calibration too."
                )
            return None
        if isinstance(given, (str, os.PathLike, Dataset, DataLoader)) or changed(options):
            given = CalibrationData.of(given, call, options, "calibration")
        preprocessing = given.source.preprocessing if isinstance(given, CalibrationData) else ""
        return cls(given, call, Calibrated(preprocessing))

    def __iter__(self) -> Iterator[ModelInputs]:
        for sample in samples(self.given, self.call, is_typical=not isinstance(self.given, ExampleInputs)):
            if not self.calibrated.sample:
                self.calibrated = replace(self.calibrated, sample=tuple(map(_copied, sample.leaves)))
            yield sample

    def __length_hint__(self) -> int:
        return length_hint(self.given)


def _copied(leaf: Any) -> np.ndarray | None:
    if not isinstance(leaf, torch.Tensor) or leaf.dtype is torch.bfloat16:  # NumPy has no such type
        return None
    copied: np.ndarray = leaf.detach().cpu().numpy().copy()
    return copied


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationData:
    """The samples of a source, read one after the other, as calls of a model without their labels."""

    source: Source
    call: ModelInputs = field(repr=False)

    @classmethod
    def of(cls, given: Any, call: ModelInputs, options: DataOptions, option: str) -> CalibrationData:
        """Return the samples of the data for a model with these example inputs. Errors are those of ``data.source``."""
        found = source(
            given,
            inputs_of(call),
            preprocess=options.preprocess,
            sample_rate=options.sample_rate,
            limit=options.calibration_samples,
            option=option,
        )
        return cls(found, call)

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
