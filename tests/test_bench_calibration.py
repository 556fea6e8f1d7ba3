# SPDX-License-Identifier: BSD-3-Clause
"""The benchmark of observers."""

from __future__ import annotations

import numpy as np

from bench import calibration
from openneutron.pytorch.quantizer.observers import _divergence


def test_a_line_for_each_model() -> None:
    cell = {"seconds": 0.5, "sqnr_db": 20.04}
    heads, lines = calibration.rows({"ds_cnn": {"none": cell, **dict.fromkeys(calibration.OBSERVERS, cell)}})
    assert lines == [("ds_cnn", "0.50", *["0.50 s 20.0 dB"] * len(calibration.OBSERVERS))]
    assert len(heads) == len(lines[0])


def test_what_loses_less_diverges_less() -> None:
    """An even distribution loses nothing by its reduction and everything by half its range."""
    even = np.ones(2048)
    assert _divergence(even, 2048) < 1e-9 < _divergence(even, 1024)
