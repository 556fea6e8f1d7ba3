# SPDX-License-Identifier: BSD-3-Clause
"""Items of users' loaders, datasets and preprocessing functions as samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openneutron.device.data.arrays import fitted, label_of, split
from openneutron.device.data.python_function import PythonFunction
from openneutron.device.data.samples import Label, ModelInput, Sample
from openneutron.device.data.unusable import UnusableError
from openneutron.errors import InvalidOptionError

PROCESSED = ("pixel_values", "input_values", "input_features")
"""The names under which processors of Hugging Face's transformers return a model's input."""


def as_array(value: Any) -> np.ndarray:
    """Return a tensor, an array or a number as an array, or what a processor has returned: a dict with one of PROCESSED
    or a single entry, or a list of one item.

    Raises UnusableError for anything else.
    """
    if isinstance(value, Mapping):
        name = next((name for name in PROCESSED if name in value), next(iter(value), None) if len(value) == 1 else None)
        if name is None:
            raise UnusableError(
                f"it is a dict of {', '.join(map(str, value)) or 'nothing'}; an array or a tensor is needed"
            )
        return as_array(value[name])
    if isinstance(value, (list, tuple)) and len(value) == 1:
        return as_array(value[0])
    detach = getattr(value, "detach", None)
    try:
        found = np.asarray(value if detach is None else detach().cpu().numpy())
    except (TypeError, ValueError) as error:  # a type that NumPy has not, rows of several lengths
        raise UnusableError(f"it is {type(value).__name__}, which is no array: {str(error).splitlines()[0]}") from error
    if found.dtype.kind not in "biuf":
        raise UnusableError(f"it is {type(value).__name__}; an array or a tensor is needed")
    return found


@dataclass(frozen=True, slots=True)
class OwnSteps:
    """A user's preprocessing: a function that takes a picture of Pillow, or a sound's values, and returns the model's input as
    a tensor or an array, with or without its batch axis, or as a processor of transformers does."""

    call: Callable[[Any], Any] = field(repr=False)
    wanted: ModelInput
    named: PythonFunction | None
    option: str

    def __call__(self, value: Any, name: str) -> np.ndarray:
        """Return the model's input for a file's content; ``name`` is the file. Raises UnusableError where the result does not fit the
        model, InvalidOptionError where the function raises."""
        if self.named is None:
            result = self.call(value)
        else:
            try:
                result = self.named.run(lambda: self.call(value), "it must return an array", InvalidOptionError)
            except InvalidOptionError as error:
                raise InvalidOptionError(f"{self.option}: on '{name}': {error}") from error
        samples = split(as_array(result), self.wanted)
        if len(samples) != 1:
            raise UnusableError(f"its preprocessing has returned {len(samples)} samples; it is one")
        return fitted(samples[0], self.wanted)


@dataclass(frozen=True, slots=True)
class Items:
    """The form of a loader's items for a model with these inputs.

    An item is the only input, or a tuple of the inputs; with a label, ``(input, label)``, ``(*inputs, label)`` or
    ``(inputs, label)``. Inputs may have a batch of samples; the label then has one entry for each of them. ``steps`` turns
    a picture of Pillow into an input.
    """

    inputs: tuple[ModelInput, ...]
    steps: Callable[[Any, str], np.ndarray] | None = field(default=None, repr=False)

    def samples(self, item: Any, name: str) -> Iterator[Sample]:
        """Yield the samples of an item. Raises UnusableError where the item does not fit the model."""
        values, label = self._parts(item)
        columns = [self._column(value, wanted, name) for value, wanted in zip(values, self.inputs, strict=True)]
        counts = [len(column) for column in columns]
        if len(set(counts)) > 1:
            raise UnusableError(f"its inputs have {', '.join(map(str, counts))} samples; they must be as many")
        labels = self._labels(label, counts[0])
        for row in range(counts[0]):
            arrays = tuple(fitted(column[row], wanted) for column, wanted in zip(columns, self.inputs, strict=True))
            yield Sample(arrays, labels[row], name if counts[0] == 1 else f"{name}[{row}]")

    def _parts(self, item: Any) -> tuple[Sequence[Any], Any]:
        """Return the inputs of an item, and its label."""
        count = len(self.inputs)
        if not isinstance(item, (tuple, list)):
            parts, label = [item], None
        elif len(item) == 2 and isinstance(item[0], (tuple, list)):
            parts, label = list(item[0]), item[1]
        elif len(item) == count + 1:
            parts, label = list(item[:count]), item[count]
        else:
            parts, label = list(item), None
        if len(parts) != count:
            inputs = "1 input, and a label behind it" if count == 1 else f"{count} inputs, and a label behind them"
            raise UnusableError(f"it has {len(parts)} parts; the model takes {inputs} is optional")
        return parts, label

    def _column(self, value: Any, wanted: ModelInput, name: str) -> np.ndarray:
        """Return the samples of one input along the first axis."""
        if hasattr(value, "convert") and hasattr(value, "mode"):
            if self.steps is None:
                raise UnusableError("it has a picture of Pillow; give its preprocessing, or an array")
            return self.steps(value, name)[np.newaxis]
        return split(as_array(value), wanted)

    def _labels(self, label: Any, count: int) -> list[Label]:
        if label is None:
            return [None] * count
        values = as_array(label)
        if count == 1 and values.size == 1:
            return [label_of(values)]
        if values.shape[:1] == (count,):
            return [label_of(row) for row in values]
        if count == 1:
            return [values]
        raise UnusableError(f"it has {count} samples and labels of shape {list(values.shape)}; they must be as many")
