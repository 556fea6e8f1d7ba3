# SPDX-License-Identifier: BSD-3-Clause
"""The modelled times of decoders have the fitted constants, and the NPU multiplies where its jobs take less time than the cores."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from bench.decoders import random_decoder
from bench.estimates import FILE
from openneutron import targets
from openneutron.isa import decode
from openneutron.language.program import Plan, compiled
from openneutron.language.times import (
    DEVIATIONS,
    SCATTER,
    WIDTH,
    Speeds,
    chooser,
    on_cpu,
    on_npu,
    phase,
    with_jobs_from,
    work_of,
)

FITTED = {
    "products": "products of a core in a cycle, in a prompt",
    "read": "bytes of weights that the cores read in a second",
    "dispatch": "seconds of a job's dispatch",
    "npu_read": "bytes of weights that the NPU reads in a second",
    "value": "cycles of a core for a value that a job reads or writes",
    "npu_products": "share of the NPU's multipliers that work in a prompt",
}


def test_the_constants_are_those_that_the_estimates_fit() -> None:
    recorded = json.loads(FILE.read_text())
    fitted = recorded["classes"]["matrix products of i.MX 95"]
    speeds = Speeds()
    for name, words in FITTED.items():
        scale = 1024e9 if name == "npu_products" else 1
        assert getattr(speeds, name) == pytest.approx(fitted[words]["value"] * scale), name
        assert DEVIATIONS[name] == fitted[words]["deviation"]
    assert {field.name for field in fields(Speeds)} - set(FITTED) == {"cores", "hertz"}
    assert pytest.approx(recorded["scatter"], rel=1e-3) == SCATTER
    assert pytest.approx(recorded["width"], rel=1e-3) == WIDTH


def test_the_npu_multiplies_from_the_tokens_on_for_which_its_jobs_are_faster() -> None:
    target = targets.host_with_jobs(targets.described("imx95"))
    speeds = Speeds()
    for bits in (4, 8):
        first = chooser(target, 128)(6144, 2048, bits)
        size, products = 6144 * 2048 * bits / 8, 6144.0 * 2048

        def is_faster(tokens: int, size: float = size, products: float = products) -> bool:
            return on_npu(size, products, 6144 + 2048, tokens, speeds) < on_cpu(size, products, tokens, speeds)

        assert 1 < first < 128
        assert is_faster(first) and not is_faster(first - 1)
    assert chooser(targets.described("cortex-a55"), 128)(6144, 2048, 8) == 0


def test_a_token_costs_more_at_a_later_position_and_no_phase_is_below_its_bound() -> None:
    target = targets.host_with_jobs(targets.described("imx95"))
    made = compiled(random_decoder("SmolLM-135M", 8, 32), target, Plan(128, chooser(target, 128)))
    work = work_of(decode(made.program, checksums=False))
    assert len(work) == 30 * 5 + 1
    times = [phase(work, 1, position, 128) for position in (16, 585, 2000)]
    assert times[0].seconds < times[1].seconds < times[2].seconds
    prompts = [phase(each, 128, 0, 128) for each in (work, with_jobs_from(work, 0), with_jobs_from(work, 1))]
    assert prompts[0].seconds < prompts[1].seconds
    assert prompts[0].seconds == pytest.approx(prompts[2].seconds)
    for found in (*times, *prompts):
        assert found.bound <= found.seconds * 1.0001
        assert found.low < found.seconds < found.high
