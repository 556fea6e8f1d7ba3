# SPDX-License-Identifier: BSD-3-Clause
"""On the Cortex-M33 the driver refuses the host's table of changed programs, and misuse of the API. Nothing faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from openneutron.isa import Program
from tests.cortex_m33.cases import Case, Misuse, run
from tests.cortex_m33.firmware import image, library
from tests.cortex_m33.misuse import CHECK_AND_PREPARE, RUN
from tests.cortex_m33.models import model, on_the_host, random_inputs
from tests.support.altered_programs import CODES
from tests.support.refusals import REFUSALS, code


@pytest.fixture(scope="module")
def program(shared_models: Path) -> Program:
    return model("ResNet-8", prefetch_constants=True).program


def test_changed_programs_and_misuse_are_refused_and_the_next_program_runs(program: Program) -> None:
    """All in one session of the driver, with a sound run of the program at its end."""
    inputs = random_inputs(program, 1)
    changed = [Case(refusal.change(program)) for refusal in REFUSALS]
    prepared = [Case(program, misuse=misuse) for misuse in CHECK_AND_PREPARE]
    ran = [Case(program, inputs, misuse=misuse) for misuse in RUN]
    *results, last = run(image(library()), [*changed, *prepared, *ran, Case(program, inputs)])

    for refusal, done in zip(REFUSALS, results, strict=False):
        assert (done.check, done.prepare) == refusal.codes, refusal.name
    results = results[len(REFUSALS) :]
    for (misuse, names), done in zip(CHECK_AND_PREPARE.items(), results, strict=False):
        assert (done.check, done.prepare) == tuple(map(code, names)), misuse.name
    results = results[len(CHECK_AND_PREPARE) :]
    for (misuse, name), done in zip(RUN.items(), results, strict=True):
        assert (done.check, done.prepare, done.runs[0].error) == (0, 0, CODES[name]), misuse.name
    assert [once.outputs for once in last.runs] == on_the_host(program, inputs)


def test_a_kernel_that_is_not_linked_is_named(program: Program) -> None:
    """Keyword spotting's table has all that ResNet-8 calls but for its sums, which have id 4."""
    selected = image(library(), selection=model("keyword spotting").selection)
    (done,) = run(selected, [Case(program)])
    assert done.check == done.prepare == CODES["KERNEL"] | 4 << 16
    assert done.detail == 4


def test_every_misuse_has_its_error() -> None:
    assert {Misuse.NONE, *CHECK_AND_PREPARE, *RUN} == set(Misuse)
