# SPDX-License-Identifier: BSD-3-Clause
"""torch lists its operators once for the lowering of a program, and as often as it asks outside of it."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest

pytest.importorskip("torch")

from torch._export import utils

from openneutron.device.third_party import OPERATORS_LISTED_ONCE

LISTING = OPERATORS_LISTED_ONCE.name


def test_operators_are_listed_once_in_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[int] = []
    monkeypatch.setattr(utils, LISTING, lambda: listed.append(1))
    before, both = getattr(utils, LISTING), Barrier(2)

    def lower() -> None:
        with OPERATORS_LISTED_ONCE:
            both.wait()
            getattr(utils, LISTING)()
            both.wait()

    threads = [Thread(target=lower) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(listed) == 1 and getattr(utils, LISTING) is before
    with pytest.raises(ValueError, match="in the block"), OPERATORS_LISTED_ONCE:
        raise ValueError("in the block")
    assert len(listed) == 2 and getattr(utils, LISTING) is before


def test_a_torch_without_the_listing_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(utils, LISTING)
    with OPERATORS_LISTED_ONCE:
        assert not hasattr(utils, LISTING)
    assert not hasattr(utils, LISTING)
