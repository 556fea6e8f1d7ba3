# SPDX-License-Identifier: BSD-3-Clause
"""The device model: its arithmetic and variants, what it refuses, and its two views of memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from openneutron.device import neutron_jobs as jobs
from openneutron.device.device_model import Buffer, DeviceModel
from openneutron.errors import DriverError, InvalidOptionError
from tests.support.device_jobs import LINE, int4_product, product, variant

PLACES = {"a": 64, "weights": 16384, "bias": 32768, "factors": 49152, "result": 65536}
JOB = jobs.Job(m=4, k=64, n=128, **PLACES)


@pytest.fixture
def model() -> Iterator[DeviceModel]:
    with DeviceModel() as device:
        yield device


@pytest.fixture
def buffer(model: DeviceModel) -> Buffer:
    """A buffer with the operands of JOB: A and weights of ones, factors of 1.0."""
    made = model.allocate(1 << 20)
    made.bytes[64 : 64 + 256] = 1
    made.bytes[16384 : 16384 + 8192] = 1
    made.bytes[49152 : 49152 + 512].view(np.uint32)[:] = jobs.ONE
    model.clean(made)
    return made


def refusal(model: DeviceModel, buffer: Buffer, words: np.ndarray, header: int = 0) -> str:
    with pytest.raises(DriverError) as caught:
        model.matmul(buffer, header, words)
    return str(caught.value).removeprefix("device model: matmul: ").removesuffix(".")


def test_a_job_runs(model: DeviceModel, buffer: Buffer) -> None:
    model.matmul(buffer, 0, jobs.header(JOB))
    assert (buffer.bytes[65536 : 65536 + 2048].view(np.int32) == 64).all()
    counts = model.counts()
    assert (counts.jobs, counts.multiplications, counts.violations) == (1, 4 * 64 * 128, 0)


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [
        ("half_up", [-2, -1, 0, 1, 2, 3]),
        ("half_even", [-2, -2, 0, 0, 2, 2]),
        ("half_away", [-3, -2, -1, 1, 2, 3]),
        ("truncate", [-3, -2, -1, 0, 1, 2]),
        ("toward_zero", [-2, -1, 0, 0, 1, 2]),
    ],
)
def test_rounding_of_halves(model: DeviceModel, rounding: str, expected: list[int]) -> None:
    model.set("rounding", rounding)
    a, weights = np.zeros((1, 16), np.int8), np.zeros((6, 16), np.int8)
    bias = np.array([-5, -3, -1, 1, 3, 5], np.int32)
    factors = np.full(6, jobs.factor(0.5), np.uint32)
    for result_bytes in (1, 4):
        found = product(model, a, weights, bias, variant(result_bytes=result_bytes), factors)
        assert found.tolist() == [expected]


def test_saturation_and_zero_point(model: DeviceModel) -> None:
    weights, bias = np.zeros((4, 16), np.int8), np.array([-300, -128, 127, 300], np.int32)
    form = variant(result_bytes=1, zero_point=3)
    signed, unsigned = np.zeros((1, 16), np.int8), np.zeros((1, 16), np.uint8)
    assert product(model, signed, weights, bias, form).tolist() == [[-128, -128, 127, 127]]
    assert product(model, unsigned, weights, bias, form).tolist() == [[0, 0, 127, 255]]
    model.set("zero_point", "added")
    assert product(model, signed, weights, bias, form).tolist() == [[-128, -125, 127, 127]]
    model.set("saturation", "wrap")
    assert product(model, signed, weights, bias, form).tolist() == [[-41, -125, -126, 47]]


def test_faults_of_firmware_3_1_1(model: DeviceModel) -> None:
    random = np.random.default_rng(0)
    model.set("firmware", "3.1.1")
    for k, is_right in ((1024, True), (1152, False), (5632, False), (8192, True)):
        a, weights = random.integers(-128, 128, (2, k), np.int8), random.integers(-127, 128, (16, k), np.int8)
        bias = np.zeros(16, np.int32)
        wanted = a.astype(np.int64) @ weights.T.astype(np.int64)
        whole = product(model, a, weights, bias, variant(result_bytes=4))
        assert np.array_equal(whole, wanted), k  # split into sizes that work
        channels = jobs.padded_n(16, k)
        buffer = model.allocate(4 << 20)
        buffer.bytes[64 : 64 + 2 * k] = a.reshape(-1).view(np.uint8)
        buffer.bytes[1 << 16 : (1 << 16) + channels * k] = jobs.pack_int8(weights).view(np.uint8)
        buffer.bytes[2 << 20 : (2 << 20) + 4 * channels].view(np.uint32)[:] = jobs.ONE
        model.clean(buffer)
        job = jobs.Job(2, k, channels, 64, 1 << 16, 3 << 20, 2 << 20, (3 << 20) + (1 << 16))
        model.matmul(buffer, 0, jobs.header(job))
        found = buffer.bytes[job.result : job.result + 8 * channels].view(np.int32).reshape(2, -1)[:, :16]
        assert np.array_equal(found, wanted) == is_right, k
        model.release(buffer)


@pytest.mark.parametrize(
    ("release", "k", "group"), [("third", 256, 32), ("third", 4096, 128), ("second", 64, 64), ("first", 128, 32), ("first", 4096, 64)]
)  # fmt: skip
def test_int4_weights_are_decoded(model: DeviceModel, release: str, k: int, group: int) -> None:
    random = np.random.default_rng(k)
    form = jobs.release(release)
    model.set("release", release)
    n = 256 if k < 1000 else 128
    a = random.integers(0, 256, (3, k), np.uint8)
    nibbles = random.integers(0, 256, (n, k // 2), np.uint8)
    scales = (random.standard_normal((n, k // group)) * 0.01).astype(np.float32)
    found, arrays = int4_product(model, a, nibbles, scales, group, form)
    weights = np.empty((n, k), np.float64)
    weights[:, 0::2], weights[:, 1::2] = (nibbles & 15) - 8.0, (nibbles >> 4) - 8.0
    exact = weights * np.repeat(scales, group, axis=1)
    factors = (arrays["factors"] & 0xFFFF).astype(np.float64) * 2.0 ** -(arrays["factors"] >> 16).astype(np.float64)
    decoded = (a.astype(np.float64) - 128) @ exact.T
    error = np.abs(found[:, :n] * factors[:n] - decoded) / np.abs(a - 128.0).sum(1)[:, None] / factors[:n]
    assert error.max() < 0.6  # half a step of an int8 weight, and what the mantissas cut off


@pytest.mark.parametrize("release", ["first", "second", "third"])
def test_each_int4_weight_is_decoded_as_it_was_packed(model: DeviceModel, release: str) -> None:
    """A row of A with one value beside its zero point makes the results the weights of a column."""
    random = np.random.default_rng(7)
    model.set("release", release)
    n, k, group = 128, 256, 64
    a = np.full((k + 1, k), 128, np.uint8)
    a[np.arange(k), np.arange(k)] = 129
    nibbles = random.integers(0, 256, (n, k // 2), np.uint8)
    scales = (random.standard_normal((n, k // group)) * 10.0 ** random.uniform(-4, 0, (n, k // group))).astype(
        np.float32
    )
    scales[3, 1] = scales[5, :] = 0
    found, arrays = int4_product(model, a, nibbles, scales, group, jobs.release(release))
    assert (found[k] == 0).all()
    assert np.array_equal(-128 * found[:k].sum(0), arrays["bias"])
    ratios = np.divide(scales, np.abs(scales).max(1, keepdims=True) / 16, out=np.zeros_like(scales), where=scales != 0)
    weights = np.empty((n, k))
    weights[:, 0::2], weights[:, 1::2] = (nibbles & 15) - 8.0, (nibbles >> 4) - 8.0
    near = weights * np.repeat(ratios, group, axis=1)
    assert np.abs(found[:k].T - near).max() <= 0.5 + 8 * 16 / 2**6
    assert np.abs(found[:k].T - near).mean() < 0.3


def test_what_the_sources_refuse(model: DeviceModel, buffer: Buffer) -> None:
    good = jobs.header(JOB)
    wrong = {
        "the kind is none of 2, 1, -2, -1": {0: 0},
        "M is not from 1 to 2048": {2: 2049},
        "K is no multiple of 16": {3: 40},
        "N is no multiple of 16 with N * 16 below 1 MiB": {4: 65536},
        "N is no whole number of blocks of packed weights": {4: 112},
        "a result has neither 1 nor 4 bytes": {11: 2},
        "words 12 and 13 are not 8 and -1": {13: 32},
        "A is not aligned to 16 bytes inside the buffer": {5: 72},
        "the weights are not aligned to 16 bytes inside the buffer": {6: (1 << 20) - 16},
        "the bias is not aligned to 16 bytes inside the buffer": {7: -16},
    }
    for reason, changes in wrong.items():
        words = good.copy()
        for place, value in changes.items():
            words[place] = value
        if "A is" in reason:
            assert refusal(model, buffer, words) == reason
        elif reason.startswith(("M is", "N is no multiple")):
            small = words.copy()
            assert refusal(model, buffer, small) in (reason, "A or the result is not in the header's buffer")
        else:
            assert refusal(model, buffer, words) == reason
    assert refusal(model, buffer, good, header=8) == "the header is not aligned to 16 bytes"
    assert model.counts().jobs == 0


def test_releases_refuse_each_others_forms(model: DeviceModel, buffer: Buffer) -> None:
    model.set("release", "second")
    assert refusal(model, buffer, jobs.header(JOB)) == "word 0 is not 0, as this release has it"
    plain = jobs.header(replace(JOB, packed=False, signed=False), jobs.release("second"))
    model.matmul(buffer, 0, plain)
    model.set("release", "third")
    assert refusal(model, buffer, plain) == "the kind is none of 2, 1, -2, -1"


def test_a_missing_clean_is_seen(model: DeviceModel, buffer: Buffer) -> None:
    buffer.bytes[64 + 3] = 5
    model.matmul(buffer, 0, jobs.header(JOB))
    assert buffer.bytes[65536:65540].view(np.int32)[0] == 64  # the NPU read the old byte
    assert model.counts().not_cleaned == 1
    assert model.violation() == "job 0: A was written and not cleaned"
    model.clean(buffer, 64, 16)
    model.matmul(buffer, 0, jobs.header(JOB))
    assert buffer.bytes[65536:65540].view(np.int32)[0] == 68
    assert model.counts().violations == 1
    model.set("clean_input", "by_call")
    buffer.bytes[64 + 3] = 1
    model.matmul(buffer, 0, jobs.header(JOB))
    assert buffer.bytes[65536:65540].view(np.int32)[0] == 64
    assert model.counts().violations == 1


def test_a_result_outside_of_the_calls_range_stays_hidden_until_cleaned(model: DeviceModel, buffer: Buffer) -> None:
    words = jobs.header(JOB)
    buffer.bytes[:64].view(np.int32)[:] = words
    at = buffer.address
    call = model._library.matmul
    assert call(at, 64, at + 64, 256, at + 65536, 1024, 0) == 0
    result = buffer.bytes[65536 : 65536 + 2048].view(np.int32)
    assert (result[:256] == 64).all()
    assert (result[256:] == 0).all()
    assert model.counts().wrong_ranges == 1
    model.clean(buffer, 65536, 2048)
    assert (result == 64).all()


def test_bytes_beside_a_result_are_seen(model: DeviceModel, buffer: Buffer) -> None:
    buffer.bytes[65536 + 2048] = 1  # the next line
    model.matmul(buffer, 0, jobs.header(JOB))
    assert model.counts().shared_lines == 0
    buffer.bytes[65536 + 2048 + LINE - 1] = 1
    moved = replace(JOB, result=65536 + LINE // 2)
    model.matmul(buffer, 0, jobs.header(moved))
    assert model.counts().shared_lines == 1


def test_memory_and_options() -> None:
    with DeviceModel(memory_mib=1) as model:
        with pytest.raises(DriverError) as caught:
            model.allocate((1 << 20) + 1)
        assert str(caught.value) == "device model: allocateBuffer: so much contiguous memory is not to be had."
        model.allocate(1 << 20)
        with pytest.raises(InvalidOptionError) as wrong:
            model.set("rounding", "up")
        assert str(wrong.value) == (
            "device model: rounding can't be 'up'; half_up, half_even, half_away, truncate, toward_zero."
        )
