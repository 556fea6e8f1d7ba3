# SPDX-License-Identifier: BSD-3-Clause
"""A short run of random graphs under sanitizers; ``python -m tests.fuzz.sanitized`` runs long ones, with more builds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.fuzz import sanitized

SEEDS = range(4)


@pytest.fixture(scope="module")
def runs() -> Sequence[sanitized.Run]:
    return [run for seed in SEEDS for run in sanitized.runs_of(seed)]


@pytest.mark.parametrize("build", ["host", "portable"])
def test_programs_keep_to_their_memory(build: str, runs: Sequence[sanitized.Run]) -> None:
    assert len(runs) >= 2 * len(SEEDS)
    assert sanitized.check(runs, build) == []


def test_a_difference_is_found(runs: Sequence[sanitized.Run]) -> None:
    run = runs[0]
    other = sanitized.Run(run.name, run.program, run.inputs, bytes([run.outputs[0] ^ 1]) + run.outputs[1:])
    assert sanitized.check([run, other], "host") == [f"host: {run.name}: case 0: differs in output 0\n"]
