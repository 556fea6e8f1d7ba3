# SPDX-License-Identifier: BSD-3-Clause
"""The kernels of language models give the bits of the stated arithmetic, for each form of weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openneutron import targets
from openneutron.compiler.select.calls import JobWeights
from openneutron.device import neutron_jobs as jobs
from openneutron.device.device_model import DeviceModel
from openneutron.device.simulator import Simulator
from openneutron.errors import DriverError
from openneutron.language.decoder import Matrix, rotary_angles
from openneutron.language.program import job_tables
from tests.language import arithmetic
from tests.language.arithmetic import Floats
from tests.language.kernel_calls import (
    ONE_PART,
    PARTS,
    Single,
    attention_call,
    bits,
    floats_of,
    linear_call,
    parameters,
    random_floats,
    random_matrix,
    span,
)
from tests.support.divided import Divided

FORMS = [
    (release.name, sizes, group)
    for release in jobs.RELEASES
    for sizes in (ONE_PART, PARTS)
    for group in (0, *jobs.GROUPS)
]
EVERY_FORM = pytest.mark.parametrize(
    ("release", "sizes", "group"), FORMS, ids=lambda each: "" if isinstance(each, jobs.KnownSizes) else str(each)
)


def equal(found: Floats, expected: Floats) -> None:
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


def as_jobs(
    matrix: Matrix,
    release: str,
    sizes: jobs.KnownSizes,
    rows: int,
    first: int,
    job_rows: int,
    left: int = 0,
    few: int = 0,
) -> Single:
    """Return a linear layer whose runs of ``first`` tokens or more are jobs of at most ``job_rows`` rows, of all blocks of channels but the
    last ``left``. Shorter runs have jobs of the first ``few`` blocks."""
    form, packed = jobs.release(release), JobWeights(matrix.values, release, sizes, matrix.int4)
    kind = jobs.kind(True, packed.group is not None or form.int8_packed) if form.kind_in_header else 0
    given = {
        "job_from": first,
        "job_channels": packed.channels - left * packed.block,
        "few_channels": few * packed.block,
        "job_rows": job_rows,
        "job_kind": kind,
        "flipped": 0 if form.kind_in_header else 128,
    }
    call = linear_call(matrix, release, sizes, rows, 0, **given)
    call.constants = {**call.constants, "job": job_tables(packed, form)}
    return call


@EVERY_FORM
def test_the_npu_gives_the_same_bits(release: str, sizes: jobs.KnownSizes, group: int) -> None:
    rows, columns, matrix = 19, 329, random_matrix(1, 71, 329, group)
    x, residual, bias = random_floats(2, rows, columns), random_floats(3, rows, 71), random_floats(5, 71)
    call = as_jobs(matrix, release, sizes, rows, 4, 7)
    expected = np.stack([arithmetic.linear(row, matrix.values, matrix.scales, bias) for row in x])
    target = targets.host_with_jobs(targets.described("imx95"))
    with DeviceModel(release=release) as model, Simulator(call.program(target)) as simulator:
        for count, multiplied in ((18, 3), (4, 4), (3, 4)):
            found = floats_of(simulator.run([x, residual, span(0, count)]), rows)
            equal(found[:count], expected[:count])
            assert model.counts().jobs == multiplied * (1 if sizes is ONE_PART else 3)
        assert not model.counts().violations, model.violation()


@EVERY_FORM
def test_the_npu_and_the_cores_share_a_layer(release: str, sizes: jobs.KnownSizes, group: int) -> None:
    """The bits are those of either alone, whichever thread ends first."""
    rows, columns, matrix = 9, 329, random_matrix(1, 391, 329, group)
    x, residual, bias = random_floats(2, rows, columns), random_floats(3, rows, 391), random_floats(5, 391)
    call = as_jobs(matrix, release, sizes, rows, 4, 5, left=1, few=2)
    expected = np.stack([arithmetic.linear(row, matrix.values, matrix.scales, bias) for row in x])
    program = call.program(targets.host_with_jobs(targets.described("imx95")))
    with DeviceModel(release=release) as model:
        for threads in (1, 3):
            with Simulator(program) if threads == 1 else Divided(program, threads) as simulator:
                for count in (9, 4, 3, 1):
                    found = floats_of(simulator.run([x, residual, span(0, count)]), rows)
                    equal(found[:count], expected[:count])
        assert model.counts().jobs == 2 * 5 * (1 if sizes is ONE_PART else 3)
        assert not model.counts().violations, model.violation()


@EVERY_FORM
def test_linear_layers(release: str, sizes: jobs.KnownSizes, group: int) -> None:
    rows, columns = 11, 329
    matrix = random_matrix(1, 71, columns, group)
    x, residual, bias = random_floats(2, rows, columns), random_floats(3, rows, 71), random_floats(5, 71)
    x[3], x[4, 7] = 0, 40
    call = linear_call(matrix, release, sizes, rows, 3, add=1)
    with Simulator(call.program()) as simulator:
        found = floats_of(simulator.run([x, residual, span(6, 10)]), rows)
    expected = [residual[i] + arithmetic.linear(x[i], matrix.values, matrix.scales, bias) for i in range(10)]
    equal(found[:10], np.stack(expected))
    assert not found[10].any()


def test_the_head_computes_the_last_row_alone() -> None:
    rows, matrix = 5, random_matrix(8, 200, 100, 32)
    x, residual, bias = random_floats(2, rows, 100), np.zeros((rows, 200), np.float32), random_floats(5, 200)
    call = linear_call(matrix, "first", ONE_PART, rows, 1, last=1, cap_bits=bits(2.5))
    with Simulator(call.program()) as simulator:
        for count in (1, 3, 5):
            found = floats_of(simulator.run([x, residual, span(0, count)]), 1)
            equal(found[0], arithmetic.linear(x[count - 1], matrix.values, matrix.scales, bias, 2.5))


def test_a_run_of_wrong_bounds_stays_inside_its_rows() -> None:
    matrix = random_matrix(8, 20, 30)
    x, residual, bias = random_floats(2, 3, 30), np.zeros((3, 20), np.float32), random_floats(5, 20)
    expected = np.stack([arithmetic.linear(row, matrix.values, matrix.scales, bias) for row in x])
    with Simulator(linear_call(matrix, "third", ONE_PART, 3, 8).program()) as simulator:
        for count, rows in ((-(2**63), 0), (0, 0), (4, 3), (2**63 - 1, 3)):
            found = floats_of(simulator.run([x, residual, span(-1, count)]), 3)
            equal(found[:rows], expected[:rows])
            assert not found[rows:].any()


@EVERY_FORM
def test_embeddings(release: str, sizes: jobs.KnownSizes, group: int) -> None:
    matrix, learned = random_matrix(3, 150, 328, group), random_floats(4, 20, 328)
    words, constants = parameters(matrix, release, sizes)
    params = {"vocabulary": 150, "positions": 20, "learned": 1, "multiplier_bits": bits(1.7)}
    call = Single("token_embedding_f32", {**params, **words}, {**constants, "learned_positions": learned})
    call.integers("tokens", 6)
    call.integers("span", 2)
    call.floats("output", 6, 328)
    tokens = np.array([0, 149, 17, 64, 33, 5], np.int64)
    with Simulator(call.program()) as simulator:
        found = floats_of(simulator.run([tokens, span(14, 6)]), 6)
        rows = (matrix.values[tokens].astype(np.float32) * matrix.scales[tokens, None]) * np.float32(1.7)
        equal(found, rows + learned[14:20])
        ignored = np.array([3, 150, -1, 0, 0, 0], np.int64)
        assert floats_of(simulator.run([ignored, span(0, 1)]), 6)[0].any()
        for given, at in (
            (tokens, span(15, 6)),
            (tokens, span(-1, 2)),
            (tokens, span(0, 0)),
            (tokens, span(0, 7)),
            (ignored, span(0, 2)),
        ):
            with pytest.raises(DriverError):
                simulator.run([given, at])


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("channels", [1, 15, 64, 333])
def test_norms(centred: int, channels: int) -> None:
    x, residual = random_floats(1, 4, channels) * np.float32(3), random_floats(2, 4, channels)
    x[2] = 0
    scale, bias = random_floats(3, channels), random_floats(4, channels)
    for add in (0, 1):
        params = {"centred": centred, "add": add, "epsilon_bits": bits(1e-5)}
        call = Single("norm_f32", params, {"scale": scale, "bias": bias})
        call.floats("input", 4, channels)
        call.floats("residual", 4, channels)
        call.integers("span", 2)
        call.floats("output", 4, channels)
        with Simulator(call.program()) as simulator:
            found = floats_of(simulator.run([x, residual, span(9, 3)]), 4)
        for i in range(3):
            y = arithmetic.layer_norm(x[i], scale, bias, 1e-5) if centred else arithmetic.rms(x[i], scale, 1e-5)
            equal(found[i], residual[i] + y if add else y)
        assert not found[3].any()


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("gated", [0, 1])
def test_activations(kind: int, gated: int) -> None:
    x = random_floats(1, 3, 2 * 301) * np.float32(4)
    x[0, :8] = 0, -0.0, 100, -100, 1e-30, -1e-30, 88, -88
    if not gated:
        x = np.ascontiguousarray(x[:, :301])
    call = Single("activation_f32", {"kind": kind, "gated": gated}, {})
    call.floats("input", 3, x.shape[1])
    call.integers("span", 2)
    call.floats("output", 3, 301)
    with Simulator(call.program()) as simulator:
        found = floats_of(simulator.run([x, span(0, 2)]), 3)
    expected = arithmetic.ACTIVATIONS[kind](x[:2, :301])
    equal(found[:2], expected * x[:2, 301:] if gated else expected)


PLAIN = arithmetic.Heads(6, 2, 24, 0.2)
TABLE = rotary_angles([1.0, 0.3, 0.1, 0.01], 40)
ATTENTIONS = {
    "plain": PLAIN,
    "one head": arithmetic.Heads(1, 1, 7, 1.0),
    "halves": replace(PLAIN, table=TABLE),
    "neighbours": replace(PLAIN, table=TABLE, interleaved=True),
    "whole": replace(PLAIN, size=8, table=TABLE, window=5),
    "normed": replace(PLAIN, query_norm=random_floats(8, 24), key_norm=random_floats(9, 24), table=TABLE),
    "capped window": replace(PLAIN, size=33, cap=1.5, window=16, groups=3),
    "wide": replace(PLAIN, heads=2, groups=1, size=512, scale=0.04),
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention(name: str) -> None:
    facts, positions, rows = ATTENTIONS[name], 40, 16
    call = attention_call(facts, positions, rows)
    cache = arithmetic.Cache(facts)
    channels = (facts.heads + 2 * facts.groups) * facts.size
    position, before = 0, np.zeros((rows, facts.heads * facts.size), np.float32)
    with Simulator(call.program()) as simulator:
        # Texts go on from run to run, and a run may go back to an earlier position.
        for number, (back, count) in enumerate(((0, 16), (0, 1), (0, 7), (9, 1), (0, 16), (0, 8))):
            position -= back
            x = random_floats(number, rows, channels)
            found = floats_of(simulator.run([x, span(position, count)]), rows)
            equal(found[:count], np.stack([cache.attend(x[i], position + i) for i in range(count)]))
            equal(found[count:], before[count:])
            before, position = found, position + count
        assert position == positions
        # Runs outside the cache stay inside it.
        for wrong in (span(40, 16), span(-5, 16), span(2**62, 2**62), span(-(2**63), 3)):
            simulator.run([x, wrong])


@pytest.mark.parametrize("name", ["plain", "one head", "wide", "normed"])
def test_cross_attention_sees_all_positions_of_a_source(name: str) -> None:
    """The source is read once, in two runs; later runs append nothing. A run has more tokens than the source has positions."""
    facts, positions, rows, source_rows = replace(ATTENTIONS[name], table=None), 21, 30, 16
    cache, made = arithmetic.Cache(facts), random_floats(1, positions, 2 * facts.groups * facts.size)
    for row in made:
        cache.append(row.reshape(-1, facts.size), 0)
    with Simulator(attention_call(facts, positions, rows, source_rows).program()) as simulator:
        for number, (first, appended, count) in enumerate(((0, 16, 1), (16, 5, 30), (0, 0, 2))):
            x, source = (
                random_floats(number + 2, rows, facts.heads * facts.size),
                np.zeros((source_rows, made.shape[1]), np.float32),
            )
            source[:appended] = made[first : first + appended]
            found = floats_of(simulator.run([x, span(number, count), source, span(first, appended)]), rows)
            if number:
                equal(found[:count], np.stack([cache.cross(row) for row in x[:count]]))
        for wrong in (span(21, 16), span(-5, 16), span(2**62, 2**62), span(-(2**63), -3)):
            simulator.run([x, wrong, source, wrong])


def test_values_that_are_no_numbers_leave_no_trace_outside_their_row() -> None:
    matrix, bias = random_matrix(8, 20, 30), random_floats(5, 20)
    x, residual = random_floats(2, 3, 30), np.zeros((3, 20), np.float32)
    x[1, :2] = np.nan, np.inf
    with Simulator(linear_call(matrix, "third", ONE_PART, 3, 8).program()) as simulator:
        found = floats_of(simulator.run([x, residual, span(0, 3)]), 3)
    for i in (0, 2):
        equal(found[i], arithmetic.linear(x[i], matrix.values, matrix.scales, bias))
