# SPDX-License-Identifier: BSD-3-Clause
"""The figures of reference networks, and the accuracy of those that are trained here."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from bench import reference_networks, trained_networks
from openneutron.options import INT8


def test_a_network_with_state_has_figures() -> None:
    found = reference_networks.figures("streaming_lstm_kws", INT8, frames=8)
    assert (found.delegate_calls, found.on_cpu, found.kernel_calls) == (1, 0, 2)
    assert found.state_bytes == 64 + 2 * 64
    assert found.sram_bytes > found.state_bytes
    assert 0 < found.milliseconds < 1
    assert found.sqnr_db >= 25
    heads, lines = reference_networks.rows({"streaming_lstm_kws": {INT8: asdict(found)}})
    assert len(lines) == 1 and len(lines[0]) == len(heads)


@pytest.mark.parametrize("name", trained_networks.LAYERS)
def test_a_trained_network_reads_digits_by_rows_as_well_on_the_npu(name: str) -> None:
    found = trained_networks.accuracy(trained_networks.LAYERS[name])
    assert (found.kernel_calls, found.on_cpu) == (2, 0)
    assert found.float_percent >= 90
    assert abs(found.float_percent - found.npu_percent) <= 0.5
    assert abs(found.float_percent - found.int8_percent) <= 0.5
    heads, lines = trained_networks.rows({name: asdict(found)})
    assert len(lines[0]) == len(heads)
