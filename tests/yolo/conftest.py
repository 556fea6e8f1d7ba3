# SPDX-License-Identifier: BSD-3-Clause
"""Ultralytics for the tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.support import ultralytics_alone


@pytest.fixture(scope="package", autouse=True)
def _ultralytics() -> Iterator[None]:
    with ultralytics_alone.usable():
        yield
