# SPDX-License-Identifier: BSD-3-Clause
"""The cost model of the chips' files is the one that ``python -m bench fit_cost`` fits, within its band."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import fit_cost, fit_subsystem
from bench.published import FIGURES, SUBSYSTEM_FIGURES, networks, subsystem_networks
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


def test_the_band_holds_each_figure_that_a_fit_has_not_seen() -> None:
    """All but one of the figures are within a tenth in the fit, and within 15% in a fit that has not seen them."""
    depthwise = int(IMXRT700.costs.depthwise_macs.value)
    best = fit_cost.fitted(depthwise)
    assert sorted(abs(best.relative(figure)) for figure in FIGURES)[-2] < 0.1
    *others, largest = sorted(map(abs, fit_cost.left_out(depthwise)))
    assert others[-1] < 0.15 and largest <= IMXRT700.costs.error.value / 100 <= 0.2


def _recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(fit_cost.FILE.read_text())
    return found


def test_the_file_of_imx95_has_the_fitted_port_and_its_band() -> None:
    found, target = _recorded()["subsystem"], targets.get("imx95")
    ports = found["constants"]["bytes in a cycle of the port of the memory of the NPU"]
    assert target.arena_memory.bandwidth.value == ports["value"]
    assert f"{ports['least']} to {ports['most']} fit" in target.arena_memory.bandwidth.source
    assert found["band"] <= target.costs.error.value / 100 < found["band"] + 0.01


def test_recorded_figures_of_imx95_are_those_of_the_model() -> None:
    """Two figures of the NPU alone or nearly so are modelled again; those of the larger networks take minutes."""
    recorded = {each["network"]: each["modelled"] for each in _recorded()["subsystem"]["figures"]}
    chosen = [figure for figure in SUBSYSTEM_FIGURES if figure.network in ("MobileNetV1 1.0 224", "SCRFD-500M 640")]
    shape = fit_subsystem.constants_in_file()
    for figure in chosen:
        modelled = figure.microseconds * (1 + fit_subsystem.Fit(shape, 0.0, 0.0).relative(figure))
        assert round(modelled) == recorded[figure.network]


def test_published_detectors_have_the_published_products() -> None:
    """YOLOv8 at 640 x 640 has 8.7, 28.6, 78.9, 165.2 and 257.8 billion operations (Ultralytics), about two for each product."""
    billions = {"n": 8.7, "s": 28.6, "m": 78.9, "l": 165.2, "x": 257.8}
    for size, published in billions.items():
        made = subsystem_networks()[f"YOLOv8{size} 640"]
        products = 0
        for node in made.nodes:
            if node.op == "conv_2d":
                _, height, width, _ = made[node.outputs[0]].shape
                products += height * width * made[node.inputs[1]].elements
        assert abs(2e-9 * products / published - 1) < 0.01


def test_dispatch_by_operand_is_not_told_apart() -> None:
    """A dispatch of each operand fits about as well from 0 on, and lowers the largest error left out by less than 1%."""
    without, *others = _recorded()["alternatives"]["operand"]
    assert without["value"] == 0
    good = [each for each in others if each["error"] <= without["error"] + fit_cost.EQUAL]
    assert good and min(each["left_out"] for each in good) > without["left_out"] - 0.01


def test_an_older_release_has_its_own_dispatch() -> None:
    """The dispatch of the release of January 2024 is a constant of its own."""
    old = [figure for figure in FIGURES if figure.is_old]
    assert [figure.network for figure in old] == ["DS-CNN", "autoencoder"]
    values = fit_cost.constants_of(fit_cost.fitted(2))
    assert values[fit_cost.OLD_DISPATCH.name] > 10 * values[fit_cost.DISPATCH.name]
    assert {figure.network for figure in FIGURES} <= networks().keys()
