# SPDX-License-Identifier: BSD-3-Clause
"""A slice of ``tests.fuzz.two_flows``."""

from __future__ import annotations

import pytest

from tests import architectures
from tests.fuzz import two_flows


@pytest.mark.parametrize("seed", range(3))
def test_random_modules_have_the_same_payloads_by_both_flows(seed: int) -> None:
    model = two_flows.Drawn(seed).eval()
    direct = two_flows.check(model, model.inputs)
    assert direct.partitions


def test_a_network_has_the_same_payload_by_both_flows() -> None:
    direct = two_flows.check(*architectures.get("ds_cnn"))
    assert len(direct.partitions) == 1
