# SPDX-License-Identifier: BSD-3-Clause
"""Orders of axes: what a view makes of a stored order is what NumPy makes of the elements."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from openneutron.pytorch.operators.rules.context import (
    Value,
    groups_of,
    lies_as,
    order_after_view,
    order_for_view,
    permuted,
)

Views = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@st.composite
def views(draw: st.DrawFn) -> Views:
    """A shape, an order to store it in, and another shape of as many elements."""
    base = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 4)), min_size=1, max_size=4)))
    order = tuple(draw(st.permutations(range(len(base)))))
    factors = [factor for extent in base for factor in {1: (), 2: (2,), 3: (3,), 4: (2, 2)}[extent]]
    factors += [1] * draw(st.integers(0, 2))
    cuts = sorted(draw(st.lists(st.integers(0, len(factors)), max_size=3)))
    shape = tuple(math.prod(factors[start:end]) for start, end in zip([0, *cuts], [*cuts, len(factors)], strict=True))
    return base, order, shape


def stored(value: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    return value.transpose(order).reshape(-1)


@given(views())
def test_groups_have_equal_products(view: Views) -> None:
    base, _, shape = view
    groups = groups_of(base, shape)
    for old, new in groups:
        assert math.prod(base[axis] for axis in old) == math.prod(shape[axis] for axis in new)
    assert [axis for old, _ in groups for axis in old] == [axis for axis, extent in enumerate(base) if extent != 1]


@given(views())
def test_a_view_of_a_stored_order_is_the_same_bytes(view: Views) -> None:
    base, order, shape = view
    after = order_after_view(base, order, shape)
    value = np.arange(math.prod(base)).reshape(base)
    if after is not None:
        assert sorted(after) == list(range(len(shape)))
        np.testing.assert_array_equal(stored(value, order), stored(value.reshape(shape), after))
    else:
        # No order of the new axes gives these bytes: the least that can be asked is that the plain one does not.
        assert not np.array_equal(stored(value, order), value.reshape(-1))


@given(views())
def test_the_nearest_order_can_be_read_in_the_new_shape(view: Views) -> None:
    base, order, shape = view
    nearest = order_for_view(base, order, shape)
    assert sorted(nearest) == list(range(len(base)))
    assert order_after_view(base, nearest, shape) is not None
    if order_after_view(base, order, shape) is not None:
        assert lies_as(base, order, nearest)


@given(views(), st.randoms(use_true_random=False))
def test_a_permute_moves_nothing(view: Views, random: object) -> None:
    base, order, _ = view
    dims = list(range(len(base)))
    random.shuffle(dims)  # type: ignore[attr-defined]
    data = np.arange(math.prod(base)).reshape(base)
    value = permuted(Value("x", base, order, base), tuple(dims))
    value.verify()
    np.testing.assert_array_equal(stored(data, order), stored(data.transpose(dims), value.order))
