# SPDX-License-Identifier: BSD-3-Clause
"""Kernel calls and their views refuse invalid values."""

from __future__ import annotations

import pytest

from openneutron.compiler.select.calls import Extents, KernelCall, View
from openneutron.isa import rows

DENSE: Extents = (8, 4, 2, 1)


@pytest.mark.parametrize(
    ("extents", "pitches", "offset"),
    [((1, 2, 2, 2), (8, -4, 2, 1), 4), ((1, 2, 2, 2), DENSE, -1), ((1, 0, 2, 2), DENSE, 0), ((1, 2, -2, 2), DENSE, 0)],
)
def test_views_hold_something_and_ascend(extents: Extents, pitches: Extents, offset: int) -> None:
    View("x", (1, 2, 2, 2), DENSE)
    with pytest.raises(AssertionError):
        View("x", extents, pitches, offset)


def test_bounds_of_a_fused_activation_are_in_order() -> None:
    row = rows.KERNEL_BY_NAME["mean_s8"]
    fields = {field.name for field in row.fields} - {"input", "output"}
    view = View("x", (1, 1, 1, 1), (1, 1, 1, 1))
    for low, high in ((6, 5), (-129, 0), (0, 128)):
        params = dict.fromkeys(fields, 0) | {"clamp_min": low, "clamp_max": high}
        with pytest.raises(AssertionError, match=rf"^mean_s8 'mean': bounds {low} and {high}$"):
            KernelCall("mean_s8", "mean", {"input": view, "output": view}, params).verify()
