# SPDX-License-Identifier: BSD-3-Clause
"""The points of a sweep from texts."""

from __future__ import annotations

import json

import pytest

from openneutron.errors import InvalidOptionError
from openneutron.features.sweep import grid
from openneutron.features.sweep.grid import flags, values_of
from openneutron.options import CompileOptions, QuantizationOptions


def kib(text: str) -> list[int]:
    return [size // 1024 for size in values_of(flags()["sram_budget"], text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100", [100]),
        ("100,1MiB", [100, 1024]),
        ("100..400..100", [100, 200, 300, 400]),
        ("100..250..100", [100, 200, 250]),
        ("100..1500", [100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1100, 1200, 1300, 1400, 1500]),
        ("7..7,9", [7, 9]),
        ("100,100..300..100", [100, 200, 300]),
    ],
)
def test_sizes_are_lists_and_ranges(text: str, expected: list[int]) -> None:
    assert kib(text) == expected


def test_every_declared_option_can_vary() -> None:
    for name, flag in flags().items():
        values = "yes,no" if flag.is_switch else ",".join(flag.declared.choices) or None
        if values is not None:
            assert len(values_of(flag, values)) == len(values.split(",")), name
    assert {"sram_budget", "target", "effort", "prefetch_constants", "observer", "io_dtype"} <= set(flags())


def test_points_of_one_quantization_are_neighbours_and_the_largest_budget_is_first() -> None:
    points = grid({"sram_budget": "64,default,128", "effort": "default,high", "observer": "minmax,histogram"})
    assert [point.quantization["observer"] for point in points] == ["minmax"] * 6 + ["histogram"] * 6
    assert [point.options["sram_budget"] for point in points[:6:2]] == [None, 128 * 1024, 64 * 1024]
    for point in points:
        CompileOptions(**point.options)
        QuantizationOptions(**point.quantization)


def test_a_point_has_the_same_key_whether_defaults_are_given_or_not() -> None:
    (bare,), (given,) = grid({"sram_budget": "64"}), grid({"sram_budget": "64", "effort": "default"})
    assert bare.key == given.key
    assert json.loads(bare.key)["observer"] == "histogram"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"sram_budget": "9..3"}, "--sram-budget: '9..3' ends below its beginning. Write the smaller size first."),
        ({"sram_budget": "1..2..3..4"}, "--sram-budget: '1..2..3..4' is no range. Write 100..1500 or 100..1500..50."),
        (
            {"sram_budget": "x"},
            "--sram-budget: 'x' is no size above 0 and up to 4194303 in whole KiB. Write 287, 287KiB or 1.5MiB.",
        ),
        ({"sram_budget": ","}, "--sram-budget: there is no value in ','. Write --sram-budget=KIB."),
        ({"check": "on"}, "--check: 'on' is unknown; a switch is yes, no or yes,no."),
        (
            {"observer": "min"},
            "observer: 'min' is unknown; there are histogram, minmax, percentile, entropy. Did you mean 'minmax'?",
        ),
        (
            {"sram_budget": "1..200000..1"},
            "sweep: there are 200,000 points; at most 100,000 are computed. Give fewer values.",
        ),
    ],
)
def test_unusable_values_are_refused(texts: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        grid(texts)
    assert str(caught.value) == message
