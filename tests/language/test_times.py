# SPDX-License-Identifier: BSD-3-Clause
"""The modelled times of decoders have the fitted constants, and the NPU multiplies where its jobs take less time than the cores."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import numpy as np
import pytest

from bench.decoders import random_decoder, random_matrix
from bench.estimates import FILE
from openneutron import targets
from openneutron.isa import decode
from openneutron.language.program import Plan, compiled
from openneutron.language.times import (
    ALONE,
    DEVIATIONS,
    SCATTER,
    WIDTH,
    Product,
    Speeds,
    chooser,
    phase,
    seconds_of,
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
    assert {field.name for field in fields(Speeds)} - set(FITTED) == {"cores", "hertz", "memory"}
    assert pytest.approx(recorded["scatter"], rel=1e-3) == SCATTER
    assert pytest.approx(recorded["width"], rel=1e-3) == WIDTH


def test_cores_and_npu_share_a_matrix_where_that_is_faster() -> None:
    """The shares are the fastest whole numbers of blocks for a prompt and for a token, and the first applies from where it is faster on."""
    target, rows, block, most = targets.host_with_jobs(targets.described("imx95")), 128, 128, 2048
    for group in (32, 0):
        product = Product("up", most, 1024, 4 if group else 8, group)
        matrix = random_matrix(np.random.default_rng(0), most, 1024, product.bits, group)
        found = chooser(target, rows)(matrix, block, most, False)
        for tokens in (1, found.job_from - 1, found.job_from, rows):
            chosen = seconds_of(product, found.channels(tokens), tokens)
            other = found.few_channels if tokens >= found.job_from else found.job_channels
            assert chosen <= seconds_of(product, other, tokens)
        for tokens, channels in ((rows, found.job_channels), (1, found.few_channels)):
            assert channels % block == 0
            chosen = seconds_of(product, channels, tokens)
            others = (0, channels - block, channels + block, most)
            assert all(chosen < seconds_of(product, each, tokens) for each in others if each != channels)
        assert chooser(targets.described("cortex-a55"), rows)(matrix, block, most, False) == ALONE


def test_the_time_of_a_shared_product() -> None:
    """One core waits while the NPU multiplies, and joins the others afterwards. The memory bounds what both read."""
    speeds, product = Speeds(), Product("up", 12288, 2048, 8, 0)
    alone = seconds_of(product, 0, 128)
    assert alone == pytest.approx(128 * 12288 * 2048 / (6 * 1.8e9 * 3.556))
    values = 128 * 27.45 / (6 * 1.8e9)
    npu = 1.189e-4 + 128 * 2048 * 2048 / speeds.npu_products
    expected = 2048 * values + npu + (alone * 5 / 6 - npu * 5 / 6) + 2048 * values
    assert seconds_of(product, 2048, 128) == pytest.approx(expected)
    assert seconds_of(product, 6144, 1, replace(speeds, memory=1e9)) > 12288 * 2048 / 1e9


def test_a_token_costs_more_at_a_later_position_and_no_phase_is_below_its_bound() -> None:
    target = targets.host_with_jobs(targets.described("imx95"))
    made = compiled(random_decoder("SmolLM-135M", 8, 32), target, Plan(128, chooser(target, 128)))
    work = work_of(decode(made.program, checksums=False))
    assert len(work) == 30 * 5 + 1
    times = [phase(work, 1, position, 128) for position in (16, 585, 2000)]
    assert times[0].seconds < times[1].seconds < times[2].seconds
    prompts = [phase(each, 128, 0, 128) for each in (work, with_jobs_from(work, 0), with_jobs_from(work, 1))]
    assert prompts[0].seconds < prompts[2].seconds < prompts[1].seconds
    for found in (*times, *prompts):
        assert found.bound <= found.seconds * 1.0001
        assert found.low < found.seconds < found.high
