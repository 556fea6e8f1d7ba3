# SPDX-License-Identifier: BSD-3-Clause
"""A model's example inputs and calibration samples: tensors, numbers, None and strings, in tuples, lists and dicts as it takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from openneutron.errors import InvalidOptionError

CONSTANTS = (int, float, bool, str, type(None))
"""The types of inputs beside tensors: torch.export builds their values into the program."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelInputs:
    """One call of a model."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def leaves(self) -> list[Any]:
        """Return what is in the arguments, in the order in which a program takes it."""
        return pytree.tree_leaves((self.args, dict(self.kwargs)))

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    @property
    def structure(self) -> pytree.TreeSpec:
        return pytree.tree_structure((self.args, dict(self.kwargs)))

    def rebuilt(self, leaves: Sequence[Any]) -> ModelInputs:
        """Return the call with other leaves in the same structure."""
        args, kwargs = pytree.tree_unflatten(list(leaves), self.structure)
        return ModelInputs(args, kwargs)

    def laid_out(self, channels_last: bool | None) -> ModelInputs:
        """Return the call with its images contiguous or channels-last (None: as they are), and every other tensor
        contiguous."""
        return self.rebuilt([_laid_out(leaf, channels_last) for leaf in self.leaves])


def _laid_out(leaf: Any, channels_last: bool | None) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if leaf.dim() != 4:
        return leaf.contiguous()
    as_it_is = leaf.is_contiguous(memory_format=torch.channels_last) and not leaf.is_contiguous()
    wanted = as_it_is if channels_last is None else channels_last
    return leaf.contiguous(memory_format=torch.channels_last if wanted else torch.contiguous_format)


def example(inputs: Any, keywords: Mapping[str, Any] | None, name: str) -> ModelInputs:
    """Return the example inputs as a call; a tensor alone is a model's only argument.

    Raises InvalidOptionError where one of them is nothing that can be passed to a program.
    """
    args = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs or ())
    found = ModelInputs(args, dict(keywords or {}))
    for place, leaf in enumerate(found.leaves):
        if not isinstance(leaf, (torch.Tensor, *CONSTANTS)):
            raise InvalidOptionError(
                f"'{name}': its example input {place} is a {type(leaf).__name__}; tensors, numbers, strings and None are what "
                "can be passed to a program, alone or in tuples, lists and dicts."
            )
    return found


def samples(calibration: Iterable[Any], wanted: ModelInputs) -> Iterator[ModelInputs]:
    """Yield the calibration samples in the shapes and layouts of the example inputs; larger batches are taken apart.

    Each is a tuple of arguments, a tensor where there is but one argument, a dict where there are keywords alone, or both in
    ``(tuple, dict)``. Raises InvalidOptionError for one that the example inputs don't fit.
    """
    for index, item in enumerate(calibration):
        sample = _call(item, wanted)
        there, here = wanted.leaves, sample.leaves
        if sample.structure != wanted.structure:
            tensors = all(isinstance(leaf, torch.Tensor) for leaf in (*here, *there))
            plain = tensors and not wanted.kwargs and len(here) != len(there)
            raise InvalidOptionError(
                f"calibration: sample {index} has {len(here)} parts; the model has {len(there)} tensor inputs."
                if plain
                else f"calibration: sample {index} is {_outline(sample)}; the example inputs are {_outline(wanted)}."
            )
        for place, (part, model) in enumerate(zip(here, there, strict=True)):
            if _fits(part, model):
                continue
            raise InvalidOptionError(
                f"calibration: sample {index} has {_described(part)} for input {place}; the example input is "
                f"{_described(model)}."
            )
        yield from _batches(index, sample, wanted)


def _call(item: Any, wanted: ModelInputs) -> ModelInputs:
    if isinstance(item, torch.Tensor):
        return ModelInputs((item,), {})
    if wanted.kwargs:
        if isinstance(item, Mapping) and not wanted.args:
            return ModelInputs((), dict(item))
        if isinstance(item, (tuple, list)) and len(item) == 2 and isinstance(item[1], Mapping):
            return ModelInputs(tuple(item[0]), dict(item[1]))
    return ModelInputs(tuple(item), {})


def _outline(call: ModelInputs) -> str:
    words = [type(item).__name__ for item in call.args]
    return f"({', '.join([*words, *(f'{key}={type(item).__name__}' for key, item in call.kwargs.items())])})"


def _fits(part: Any, wanted: Any) -> bool:
    if not isinstance(part, torch.Tensor) or not isinstance(wanted, torch.Tensor):
        return type(part) is type(wanted) and bool(part == wanted)
    return part.shape[1:] == wanted.shape[1:] and part.dim() == wanted.dim() and part.dtype == wanted.dtype


def _described(part: Any) -> str:
    return f"{part.dtype} {list(part.shape)}" if isinstance(part, torch.Tensor) else repr(part)


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
    """Return how many of the model's batches are in the sample's; 0 where it is no whole number."""
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
    """Return the tensor in the example's memory layout: the exported graph has it built in."""
    if not isinstance(part, torch.Tensor):
        return part
    if model.dim() == 4 and model.is_contiguous(memory_format=torch.channels_last):
        return part.contiguous(memory_format=torch.channels_last)
    return part.contiguous()
