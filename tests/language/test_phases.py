# SPDX-License-Identifier: BSD-3-Clause
"""The modelled time of a decoder on a core whose instructions are counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openneutron import targets
from openneutron.compiler.cost import language
from openneutron.isa import decode
from openneutron.isa.microcode import Microcode
from openneutron.language import program
from openneutron.language.program import Plan, compiled, never
from openneutron.language.times import calls_of, modelled, on_core
from openneutron.targets import Target
from tests.language.random_decoders import random_decoder

ROWS = 8
SEEDS = {4: 0, 8: 2}
"""A decoder by the bits of most of its weights."""


def on(target: Target, bits: int) -> Microcode:
    return decode(compiled(random_decoder(SEEDS[bits]), target, Plan(ROWS, never)).program)


@pytest.mark.parametrize("chip", ["imxrt700", "mcxn94x"])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_token_costs_more_at_a_later_position_and_less_in_a_prompt(chip: str, bits: int) -> None:
    target = targets.host_alone(targets.described(chip))
    microcode = on(target, bits)
    times = [on_core(microcode, target, 1, position, ROWS) for position in (0, 8, 24)]
    assert times[0].seconds < times[1].seconds < times[2].seconds
    prompt = on_core(microcode, target, 16, 0, ROWS)
    assert prompt.seconds < 16 * times[1].seconds
    for each in (*times, prompt):
        assert each.bound < each.low < each.seconds < each.high
        assert each.seconds == pytest.approx(sum(part.seconds for part in each.parts))
    assert {part.name for part in prompt.parts} == {part.name for part in times[0].parts}


def test_slow_flash_bounds_a_token() -> None:
    """With flash of a thousandth of the speed, a token takes the time of reading its weights, and so do 8 tokens but for their embeddings."""
    target = targets.host_alone(targets.described("imxrt700"))
    microcode = on(target, 8)
    flash = target.constants_home
    slow = replace(flash, bandwidth=replace(flash.bandwidth, value=flash.bandwidth.value / 1000))
    slowed = replace(target, memories=tuple(slow if each is flash else each for each in target.memories))
    weights = sum(call.weight_bytes(1) for _, call in calls_of(microcode))
    one, eight = (on_core(microcode, slowed, tokens, 0, ROWS) for tokens in (1, 8))
    assert one.bound == pytest.approx(weights / (1e6 * slow.bandwidth.value * target.clock.value))
    assert one.bound < one.seconds < 1.02 * one.bound and eight.seconds < 1.05 * one.seconds


def test_the_chip_is_that_of_the_program() -> None:
    described = targets.described
    found = modelled(on(targets.host_alone(described("imxrt700")), 8), 1, 16, ROWS)
    assert found is not None and found[0] == "i.MX RT700, Cortex-M33 at 324 MHz"
    found = modelled(on(described("cortex-a55"), 8), 1, 16, ROWS)
    assert found is not None and found[0] == "i.MX 95 with six cores"
    assert modelled(on(described("cortex-m55"), 8), 1, 16, ROWS) is None


def test_the_costs_of_a_compile_are_those_of_a_run_of_all_rows() -> None:
    target = targets.host_alone(targets.described("imxrt700"))
    made = compiled(random_decoder(SEEDS[8]), target, Plan(ROWS, never))
    run = on_core(decode(made.program), target, ROWS, 0, ROWS)
    assert made.report.cycles == pytest.approx(run.seconds * 1e6 * target.clock.value, rel=0.01)


def test_weights_are_read_once_for_the_tokens_of_the_kernel() -> None:
    assert language.TOGETHER == program.TOGETHER
