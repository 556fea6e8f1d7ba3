# SPDX-License-Identifier: BSD-3-Clause
"""Random example inputs of files that have none: their shapes are in the file, or the user gives them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from openneutron.errors import InvalidModelError, InvalidOptionError

SEED = 0
"""The seed of the values."""

MOST_ELEMENTS = 1 << 28
"""The most elements of an input, so that a damaged shape takes no memory."""


def check_names(shapes: Mapping[str, Sequence[int]], names: Sequence[str], model: str) -> None:
    """Raise InvalidOptionError where shapes are given for an input that the model does not have."""
    if unknown := [name for name in shapes if name not in names]:
        raise InvalidOptionError(
            f"input_shapes: '{model}' has no input '{unknown[0]}'; its inputs are {', '.join(map(repr, names))}."
        )


def example_input(
    name: str,
    model: str,
    sizes: Sequence[int | str | None],
    given: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return a random tensor for an input. Integers and booleans are 0 or 1.

    Args:
        name: The input's name.
        model: The model's name in messages.
        sizes: The size of each axis; a name or None where the file leaves it open. An open first axis of several is a batch, of 1.
        given: The shape that the user gives.
        dtype: The type.

    Raises InvalidOptionError where the user's shape does not fit, InvalidModelError where a size is missing or there are too many elements.
    """
    if given is not None and len(given) != len(sizes):
        raise InvalidOptionError(
            f"input_shapes: '{name}' of '{model}' has {len(sizes)} axes; {len(given)} sizes are given."
        )
    for axis, size in enumerate(sizes):
        if given is not None and isinstance(size, int) and size != given[axis]:
            raise InvalidOptionError(
                f"input_shapes: '{name}' of '{model}' has the size {size} on axis {axis}; {given[axis]} is given."
            )
    shape = list(sizes if given is None else given)
    if len(shape) > 1 and not isinstance(shape[0], int):
        shape[0] = 1
    known = [size for size in shape if isinstance(size, int)]
    if len(known) < len(shape):
        spoken = "x".join(str(size or "?") for size in sizes)
        wanted = "x".join(str(size if isinstance(size, int) else 1) for size in shape)
        raise InvalidModelError(
            f"'{model}': the shape {spoken} of the input '{name}' is not fixed. Give it: --input-shape {name}={wanted}, with your "
            "sizes."
        )
    if (count := math.prod(known)) > MOST_ELEMENTS:
        raise InvalidModelError(
            f"'{model}': the input '{name}' has {count} elements; at most {MOST_ELEMENTS} are taken."
        )
    generator = torch.Generator().manual_seed(SEED)
    if dtype.is_floating_point:
        return torch.randn(known, generator=generator).to(dtype)
    return torch.randint(0, 2, known, generator=generator).to(dtype)
