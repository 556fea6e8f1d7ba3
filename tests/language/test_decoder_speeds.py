# SPDX-License-Identifier: BSD-3-Clause
"""The speeds beside the published ones are those of a whole program, though a single layer is compiled."""

from __future__ import annotations

from bench.decoder_speeds import HEADINGS, PAGE, PUBLISHED, work_of_shape
from bench.decoders import Shape, random_decoder
from openneutron import targets
from openneutron.isa import decode
from openneutron.language.program import Plan, compiled
from openneutron.language.times import chooser, work_of


def test_the_work_of_one_layer_gives_that_of_the_program() -> None:
    shape, context = Shape(3, 256, 4, 2, 64, 512, 512), 32
    target = targets.host_with_jobs(targets.described("imx95"))
    decoder = random_decoder("small", 4, 32, context=context, head_bits=8, shape=shape)
    program = compiled(decoder, target, Plan(context, chooser(target, context))).program
    assert work_of_shape("small", shape, 4, 8, context=context) == work_of(decode(program))


def test_the_page_has_a_row_for_each_model_head_and_phase() -> None:
    text = PAGE.read_text()
    assert f"| {' | '.join(HEADINGS)} |\n" in text
    assert all(text.count(f"| {name} | {kind} | int") == 2 for name in PUBLISHED for kind in ("prefill", "decode"))
