# SPDX-License-Identifier: BSD-3-Clause
"""Two of the architectures run whole and near float; ``make soak`` runs all of them."""

from __future__ import annotations

import pytest

from tests.suites.architectures.measured import measured

LEAST_DB = 20
"""The least SQNR of int8 on these networks, with a margin."""


@pytest.mark.parametrize("name", ["resnet18", "distilbert"])
def test_it_runs_whole_in_one_delegate_call(name: str) -> None:
    figures = measured(name)
    assert (figures["on_cpu"], figures["calls"], figures["reasons"]) == (0, 1, {})
    assert figures["sqnr_float_db"] > LEAST_DB
    assert figures["sqnr_quantized_db"] > LEAST_DB
