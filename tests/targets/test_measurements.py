# SPDX-License-Identifier: BSD-3-Clause
"""The measurements that would narrow the ranges of estimates."""

from __future__ import annotations

from itertools import pairwise

import pytest

from openneutron import targets
from openneutron.compiler.cost.estimate import what_would_help
from openneutron.errors import InvalidTargetError


@pytest.mark.parametrize("name", targets.KNOWN)
def test_three_measurements_narrow_the_ranges(name: str) -> None:
    found = what_would_help(targets.described(name))
    assert len({item.network for item in found}) == 3
    for item, following in pairwise(found):
        assert item.before > item.after == following.before
    assert found[-1].after > 0


def test_a_chip_without_published_latencies_gains_more() -> None:
    known, other = (what_would_help(targets.get(name)) for name in ("imx95", "imx952"))
    assert other[0].before > known[0].before
    assert other[0].before - other[-1].after > known[0].before - known[-1].after


@pytest.mark.parametrize("name", targets.UNPUBLISHED)
def test_a_chip_of_which_too_little_is_published_is_refused(name: str) -> None:
    with pytest.raises(InvalidTargetError) as caught:
        targets.get(name)
    assert str(caught.value) == (
        f"Target `{name}`: too little is published about its NPU for a model of it. {targets.UNPUBLISHED[name]} Its multipliers, its clock and "
        "its memories are not published. Write what you know of it into a .toml file and give its path."
    )
