# SPDX-License-Identifier: BSD-3-Clause
"""The cost model of the chips' files is the one that ``python -m bench fit_cost`` fits, within its band."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import fit_cost
from bench.published import FIGURES, networks
from openneutron import targets

pytest.importorskip("scipy")
pytestmark = pytest.mark.skipif(
    not (Path(__file__).parents[2] / "shared" / "models").is_dir(), reason="the folder of trained models is absent"
)

IMXRT700 = targets.get("imxrt700")


def test_the_files_have_the_fitted_constants() -> None:
    found = fit_cost.constants_of(fit_cost.fitted(2))
    costs, host = IMXRT700.costs, IMXRT700.host
    assert costs.issue_cycles.value == round(found[fit_cost.DISPATCH.name])
    assert costs.fill_cycles.value == found["cycles of fill at a tap"]
    assert host.conversion_cycles.value == round(found[fit_cost.CONVERSION.name])
    assert IMXRT700.copy_engine.rate.value == round(1 / found[fit_cost.COPY.name], 3)
    for name in ("mcxn94x", "mcxn54x"):
        other = targets.get(name)
        assert [other.costs.issue_cycles, other.costs.fill_cycles] == [costs.issue_cycles, costs.fill_cycles]
        assert other.host.conversion_cycles == host.conversion_cycles


def test_every_published_figure_is_within_a_tenth_and_the_band_holds_what_a_fit_has_not_seen() -> None:
    depthwise = int(IMXRT700.costs.depthwise_macs.value)
    best = fit_cost.fitted(depthwise)
    assert max(abs(best.relative(figure)) for figure in FIGURES) < 0.1
    assert max(map(abs, fit_cost.left_out(depthwise))) <= IMXRT700.costs.error.value / 100 < 0.2


def test_an_older_release_has_its_own_dispatch() -> None:
    """The dispatch of the release of January 2024 is a constant of its own."""
    old = [figure for figure in FIGURES if figure.is_old]
    assert [figure.network for figure in old] == ["DS-CNN", "autoencoder"]
    values = fit_cost.constants_of(fit_cost.fitted(2))
    assert values[fit_cost.OLD_DISPATCH.name] > 10 * values[fit_cost.DISPATCH.name]
    assert {figure.network for figure in FIGURES} <= networks().keys()
