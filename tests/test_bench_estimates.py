# SPDX-License-Identifier: BSD-3-Clause
"""The estimates of latencies are those that ``python -m bench.estimates`` fits, and their ranges hold what they promise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import estimates
from bench.published import IMX95, LATENCIES, MCXN, RT700, Use
from openneutron import targets
from openneutron.compiler.cost.estimate import calibration


def _recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(estimates.FILE.read_text())
    return found


def test_each_published_latency_has_a_source_and_a_use() -> None:
    """The table has at least 40 latencies of NPUs. Nothing is fitted to a figure with a reason, and only to those with none."""
    assert sum(figure.target in (RT700, MCXN, IMX95) for figure in LATENCIES) >= 40
    for figure in LATENCIES:
        assert figure.source and figure.contents and figure.family and figure.microseconds > 0
        assert bool(figure.reason) == (figure.use is Use.BOUND)
    assert len(set(LATENCIES)) == len(LATENCIES) == len(_recorded()["figures"])


def test_ranges_hold_left_out_figures() -> None:
    """Half of the left out figures are within 12%, and the ranges hold 75% to 85% of them."""
    tested = _recorded()["left_out"]
    for scheme in ("figure", "family"):
        assert tested[scheme]["median"] <= 0.12
    assert all(0.75 <= each["held"] <= 0.85 for each in tested.values())


def test_ranges_hold_the_figures_of_language_models_and_of_an_old_release() -> None:
    wanted = {("Qwen3-1.7B prefill", IMX95), ("Qwen3-1.7B decode", IMX95), ("MobileNetV2 1.0 224", IMX95)}
    found = {(each["network"], each["target"]): each for each in _recorded()["figures"]}
    for key in wanted:
        _, least, most = found[key]["estimate"]
        assert least <= found[key]["published"] <= most


def test_no_fit_has_seen_the_predictions() -> None:
    made = estimates.classes()
    fitted = {figure.network for of in made for figure in of.figures}
    predicted = {each["network"] for each in _recorded()["predictions"]}
    assert len(predicted) == 9 and not predicted & fitted


@pytest.mark.skipif(
    not (Path(__file__).parents[2] / "shared" / "models").is_dir(), reason="the folder of trained models is absent"
)
def test_recorded_estimates_are_those_of_the_recorded_factors() -> None:
    """Two figures of small networks are estimated again with the factors that summaries use."""
    recorded = {(each["network"], each["published"]): each["estimate"] for each in _recorded()["figures"]}
    factors = calibration(targets.get(MCXN)).factors
    for figure in LATENCIES:
        if figure.target == MCXN and figure.network in ("autoencoder", "DS-CNN") and not figure.is_old:
            spent = estimates.spent(figure)
            time = float(np.dot(spent.work, factors)) / spent.clock
            assert time == pytest.approx(recorded[figure.network, figure.microseconds][0], rel=1e-3)
