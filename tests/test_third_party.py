# SPDX-License-Identifier: BSD-3-Clause
"""Objects that are exempt from garbage collection for a time."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from openneutron.third_party import older_objects_kept


@pytest.fixture(autouse=True)
def nothing_exempt() -> Iterator[None]:
    """Whatever the test run itself has exempted is not, for a time."""
    count = gc.get_freeze_count()
    gc.unfreeze()
    yield
    if count:
        gc.freeze()


def test_older_objects_are_exempt_for_the_block_alone() -> None:
    assert gc.get_freeze_count() == 0
    with pytest.raises(KeyError), older_objects_kept():
        assert gc.get_freeze_count() > 0
        with older_objects_kept():
            pass
        assert gc.get_freeze_count() > 0
        raise KeyError
    assert gc.get_freeze_count() == 0


def test_the_exemptions_of_a_process_stay() -> None:
    gc.freeze()
    try:
        count = gc.get_freeze_count()
        with older_objects_kept():
            pass
        assert gc.get_freeze_count() == count
    finally:
        gc.unfreeze()
