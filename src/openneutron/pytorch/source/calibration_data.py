# SPDX-License-Identifier: BSD-3-Clause
"""Convert calibration samples to calls of a model. Samples are in memory, in files, or come from loaders and datasets."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import length_hint
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from openneutron.device.data import ModelInput, Source, source
from openneutron.device.pte import PREPROCESSING
from openneutron.errors import InvalidModelError, InvalidOptionError, warn
from openneutron.options import DataOptions, changed
from openneutron.pytorch.source.exporting import ModelInputs


@dataclass(frozen=True, slots=True, eq=False)
class Calibrated:
    """The facts about the calibration that a compiled model keeps.

    ``preprocessing`` states the steps from a file to an input; it is empty if the samples were not preprocessed.
    ``sample`` has the model's arguments in the first sample, in their order; it is empty before the first sample was
    read. An argument is None if it is no tensor, or if NumPy does not have its type.
    """

    preprocessing: str = ""
    sample: tuple[np.ndarray | None, ...] = field(default=(), repr=False)

    @property
    def facts(self) -> dict[str, str]:
        """Return the texts that a compiled file stores, by the names of the methods that return them."""
        return {PREPROCESSING: self.preprocessing} if self.preprocessing else {}


class ExampleInputs(list[Any]):
    """Example inputs that are used as calibration data. Nothing warns where their ranges are not typical."""


@dataclass(slots=True, eq=False)
class Calibration:
    """The calibration samples of a compile, as calls of the model. ``calibrated`` keeps the first sample when it is read."""

    given: Iterable[Any]
    call: ModelInputs
    calibrated: Calibrated

    @classmethod
    def of(cls, given: Any, call: ModelInputs, options: DataOptions) -> Calibration | None:
        """Return the samples of the data ``given``; None where ``given`` is None.

        Raises InvalidOptionError where the data can't be used, and for data options without data.
        """
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
    """The samples of a source as calls of a model, without their labels. They are read one after the other."""

    source: Source
    call: ModelInputs = field(repr=False)

    @classmethod
    def of(cls, given: Any, call: ModelInputs, options: DataOptions, option: str) -> CalibrationData:
        """Return the samples in the data ``given`` for a model with the example inputs ``call``.

        ``option`` names the data in messages. Raises as ``device.data.source`` does.
        """
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
    """Return the shapes and types of the tensors in a model's example inputs.

    Raises InvalidModelError for a type that NumPy does not have.
    """
    return [ModelInput(tuple(tensor.shape), _numpy_type(tensor)) for tensor in call.tensors]


def _numpy_type(tensor: torch.Tensor) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = torch.empty(0, dtype=tensor.dtype).numpy().dtype
        return found
    except TypeError as error:
        raise InvalidModelError(f"the model takes {tensor.dtype}, which NumPy has no type for; use float32.") from error


ARRAYS = (torch.Tensor, np.ndarray, np.generic)
FORMS = "Pass a list of samples, each a tuple of the model's arguments"


def samples(calibration: Any, wanted: ModelInputs, is_typical: bool = True) -> Iterator[ModelInputs]:
    """Yield the calibration samples in the shapes and layouts of the example inputs ``wanted``. Larger batches are
    split.

    A sample is a tuple of arguments, a tensor for a single argument, a dict of keywords, or ``(tuple, dict)`` for
    both. NumPy arrays are converted to tensors. The batch axis may be absent if the model's batch is one, and a label
    may follow the arguments. ``calibration`` may also be one array of all samples, or a tuple or list with one such
    array for each of several inputs. Such arrays are split.

    Raises InvalidOptionError for a sample that does not fit the example inputs, or that has NaN or infinite values. A
    mask that has only 0 and minus infinity is accepted. With ``is_typical``, warnings after the last sample name each
    input that has the same value everywhere, or has one sample far outside the range of all others.
    """
    ranges = _Ranges(wanted)
    for index, item in enumerate(_items(calibration, wanted)):
        call = _call(item, wanted)
        if len(call.args) == len(wanted.args) + 1 and not call.kwargs and not wanted.kwargs:
            call = _without_label(call, wanted)
        sample = _fitted(index, call, wanted)
        ranges.add(index, sample)
        yield from _batches(index, sample, wanted)
    if is_typical:
        ranges.warn()


def _items(calibration: Any, wanted: ModelInputs) -> Iterable[Any]:
    """Return the samples in the calibration data. Raises InvalidOptionError where the data has no samples to iterate over."""
    if isinstance(calibration, ARRAYS):
        array: Any = calibration
        tensors = wanted.tensors
        # An additional first axis counts the samples.
        return array if len(tensors) == 1 and array.ndim > tensors[0].ndim else [array]
    if isinstance(calibration, Mapping):
        if wanted.kwargs and not wanted.args:
            return [calibration]
        raise InvalidOptionError(f"calibration: it is a {type(calibration).__name__}, one sample by names. {FORMS}.")
    if len(wanted.leaves) > 1 and _are_inputs(calibration, wanted):
        return [wanted.rebuilt(calibration).as_sample()]
    if not isinstance(calibration, Iterable):
        kind = "a function; pass what it returns" if callable(calibration) else "no iterable"
        raise InvalidOptionError(f"calibration: a {type(calibration).__name__} is {kind}. {FORMS}.")
    return calibration


def _are_inputs(given: Any, wanted: ModelInputs) -> bool:
    """Return whether ``given`` is a sequence of one array for each input, with the values of all samples."""
    if (
        not isinstance(given, (tuple, list))
        or len(given) != len(wanted.leaves)
        or not all(isinstance(item, ARRAYS) for item in given)
    ):
        return False
    return all(_fits(_as_tensor(part, model), model) for part, model in zip(given, wanted.leaves, strict=True))


def _call(item: Any, wanted: ModelInputs) -> ModelInputs:
    if wanted.kwargs:
        if isinstance(item, Mapping) and not wanted.args:
            return ModelInputs((), dict(item))
        if isinstance(item, (tuple, list)) and len(item) == 2 and isinstance(item[1], Mapping):
            return ModelInputs(tuple(item[0]), dict(item[1]))
    return ModelInputs(tuple(item) if isinstance(item, (tuple, list)) else (item,), {})


def _without_label(sample: ModelInputs, wanted: ModelInputs) -> ModelInputs:
    """Return the sample without the label after its arguments; the sample itself where the arguments do not fit."""
    short = ModelInputs(sample.args[:-1], {})
    if short.structure != wanted.structure:
        return sample
    pairs = zip(short.leaves, wanted.leaves, strict=True)
    return short if all(_fits(_as_tensor(part, model), model) for part, model in pairs) else sample


def _fitted(index: int, sample: ModelInputs, wanted: ModelInputs) -> ModelInputs:
    """Return the sample with tensors that have the types and ranks of the example inputs.

    Raises InvalidOptionError for a sample that does not fit. ``index`` is the sample's number in the message.
    """
    there, here = wanted.leaves, sample.leaves
    if sample.structure != wanted.structure:
        arrays = all(isinstance(leaf, ARRAYS) for leaf in here) and all(
            isinstance(leaf, torch.Tensor) for leaf in there
        )
        plain = arrays and not wanted.kwargs and len(here) != len(there)
        raise InvalidOptionError(
            f"calibration: sample {index} has {len(here)} parts; the model has {len(there)} tensor inputs."
            if plain
            else f"calibration: sample {index} is {_outline(sample)}; the example inputs are {_outline(wanted)}."
        )
    parts = [part if _fits(part, model) else _as_tensor(part, model) for part, model in zip(here, there, strict=True)]
    for place, (part, model) in enumerate(zip(parts, there, strict=True)):
        if _fits(part, model):
            continue
        raise InvalidOptionError(
            f"calibration: sample {index} has {_described(part)} for input {place}; the example input is "
            f"{_described(model)}."
        )
    return wanted.rebuilt(parts)


def _as_tensor(part: Any, model: Any) -> Any:
    """Return a part of a sample as a tensor with the type of the example input ``model``, and with its batch axis.

    Any float type is converted to the float type of ``model``, and NumPy's int64 to its integer type if that holds
    the values. Other parts keep their type.
    """
    if not isinstance(model, torch.Tensor):
        return part
    if isinstance(part, (np.ndarray, np.generic)):
        try:
            part = torch.from_numpy(np.array(part))
        except TypeError:  # texts and objects
            return part
        if part.dtype == torch.int64 and not model.is_floating_point():
            cast = part.to(model.dtype)
            part = cast if torch.equal(cast.to(part.dtype), part) else part
    if isinstance(part, torch.Tensor) and part.is_floating_point() and model.is_floating_point():
        part = part.to(model.dtype)
    if isinstance(part, torch.Tensor) and model.dim() == part.dim() + 1 and part.shape == model.shape[1:]:
        return part[None] if len(model) == 1 else part
    return part


def _outline(call: ModelInputs) -> str:
    words = [type(item).__name__ for item in call.args]
    return f"({', '.join([*words, *(f'{key}={type(item).__name__}' for key, item in call.kwargs.items())])})"


def _fits(part: Any, wanted: Any) -> bool:
    if isinstance(part, torch.Tensor) and isinstance(wanted, torch.Tensor):
        return part.shape[1:] == wanted.shape[1:] and part.dim() == wanted.dim() and part.dtype == wanted.dtype
    return not isinstance(part, ARRAYS) and type(part) is type(wanted) and bool(part == wanted)


def _described(part: Any) -> str:
    if isinstance(part, np.ndarray):
        return f"an array of {part.dtype} {list(part.shape)}"
    return f"{part.dtype} {list(part.shape)}" if isinstance(part, torch.Tensor) else reprlib.repr(part)


def _batches(index: int, sample: ModelInputs, wanted: ModelInputs) -> Iterator[ModelInputs]:
    pairs = [
        (part, model)
        for part, model in zip(sample.leaves, wanted.leaves, strict=True)
        if isinstance(model, torch.Tensor)
    ]
    if all(part.shape == model.shape for part, model in pairs):
        yield sample.rebuilt([_like(part, model) for part, model in zip(sample.leaves, wanted.leaves, strict=True)])
        return
    counts = {_times(part, model) for part, model in pairs}
    if len(counts) != 1 or 0 in counts:
        raise InvalidOptionError(
            f"calibration: sample {index} has batches of {[_batch(part) for part, _ in pairs]}; the model takes "
            f"{[_batch(model) for _, model in pairs]}. Pass whole multiples."
        )
    for number in range(counts.pop()):
        yield sample.rebuilt(
            [
                _like(_piece(part, model, number), model)
                for part, model in zip(sample.leaves, wanted.leaves, strict=True)
            ]
        )


def _times(part: torch.Tensor, model: torch.Tensor) -> int:
    """Return the number of the model's batches in the batch of a sample; 0 where that is no whole number."""
    if part.shape == model.shape:
        return 1
    extent = _batch(model)
    return _batch(part) // extent if extent and _batch(part) % extent == 0 else 0


def _batch(tensor: torch.Tensor) -> int:
    return int(tensor.shape[0]) if tensor.dim() else 1


def _piece(part: Any, model: Any, number: int) -> Any:
    if not isinstance(part, torch.Tensor) or not part.dim():
        return part
    return part[number * len(model) : (number + 1) * len(model)]


def _like(part: Any, model: Any) -> Any:
    """Return the tensor in the memory layout of the example input. The exported graph is only right for this layout."""
    if not isinstance(part, torch.Tensor):
        return part
    if model.dim() == 4 and model.is_contiguous(memory_format=torch.channels_last):
        return part.contiguous(memory_format=torch.channels_last)
    return part.contiguous()


FAR = 1000.0
"""A warning names a sample whose largest magnitude is at least this multiple of that of all other samples."""


@dataclass(slots=True, eq=False)
class _Ranges:
    """The ranges of the float inputs in all samples, by which samples that spoil a calibration are found."""

    wanted: ModelInputs
    _largest: dict[int, list[tuple[float, int]]] = field(default_factory=dict)
    """The two largest magnitudes of each input, each with the sample's number, the larger one first."""
    _ends: dict[int, tuple[float, float]] = field(default_factory=dict)
    _elements: dict[int, int] = field(default_factory=dict)

    def add(self, index: int, sample: ModelInputs) -> None:
        """Add a sample. Raises InvalidOptionError for one with NaN or infinite values. An input that has only 0 and
        minus infinity is a mask, and is left out."""
        for place, value in enumerate(sample.leaves):
            if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
                continue
            low, high = (float(end) for end in value.detach().aminmax())
            if not low > -np.inf or not high < np.inf:
                if _is_mask(value):
                    continue
                kind = "NaN" if bool(value.isnan().any()) else "an infinite value"
                raise InvalidOptionError(
                    f"calibration: sample {index} has {kind} in {self._name(place)}; int8 scales come from finite "
                    "values. Repair the sample, or leave it out."
                )
            magnitudes = [*self._largest.get(place, []), (max(-low, high), index)]
            self._largest[place] = sorted(magnitudes, key=lambda each: -each[0])[:2]
            before = self._ends.get(place, (low, high))
            self._ends[place] = min(low, before[0]), max(high, before[1])
            self._elements[place] = self._elements.get(place, 0) + value.numel()

    def warn(self) -> None:
        """Warn of inputs that have the same value everywhere, and of samples far outside the range of all others."""
        for place, (low, high) in self._ends.items():
            if low == high and self._elements[place] > 1:
                warn(
                    f"calibration: every value of {self._name(place)} is {low:g} in all samples, so that its int8 range is that of "
                    f"{low:g}. Pass typical inputs."
                )
            if len(self._largest[place]) == 2:
                (largest, index), (second, _) = self._largest[place]
                if 0 < FAR * second <= largest:
                    warn(
                        f"calibration: {self._name(place)} reaches {largest:g} in sample {index} and at most {second:g} in all others, "
                        "which leaves them few of the 256 steps of int8. Leave the sample out if it is not typical."
                    )

    def _name(self, place: int) -> str:
        name = self.wanted.names[place] if place < len(self.wanted.names) else ""
        return f"input {place} ('{name}')" if name else f"input {place}"


def _is_mask(value: torch.Tensor) -> bool:
    """Return whether a tensor is an additive mask of attention: each value is 0 or minus infinity."""
    return bool(((value == 0) | (value == -np.inf)).all())
