# SPDX-License-Identifier: BSD-3-Clause
"""Packing, factors and headers of jobs against check data: what NXP's published packing code gave for random weights."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from openneutron.device import neutron_jobs as jobs
from openneutron.errors import InvalidOptionError

CHECK = json.loads((Path(__file__).parent / "packing.json").read_text())
INT8 = [name for name in CHECK if name.startswith("int8_")]
INT4 = [name for name in CHECK if name.startswith("int4_")]


def digest(array: NDArray[np.generic]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


@pytest.mark.parametrize("name", INT8)
def test_int8_weights_are_packed_as_nxps_code_packs_them(name: str) -> None:
    case = CHECK[name]
    weights = np.random.default_rng(case["seed"]).integers(-127, 128, (case["n"], case["k"]), dtype=np.int8)
    assert digest(weights) == case["weights_sha256"]
    packed = jobs.pack_int8(weights)
    assert list(jobs.tiling(case["k"])) == case["tiling"]
    assert digest(packed) == case["packed_sha256"]
    assert np.array_equal(jobs.unpack_int8(packed, case["n"], case["k"]), weights)


@pytest.mark.parametrize("name", INT4)
def test_int4_weights_are_packed_as_nxps_code_packs_them(name: str) -> None:
    case = CHECK[name]
    rng = np.random.default_rng(case["seed"])
    nibbles = rng.integers(0, 256, (case["n"], case["k"] // 2), dtype=np.uint8)
    scales = (rng.standard_normal((case["n"], case["k"] // case["group"])) * 0.01).astype(np.float32)
    assert (digest(nibbles), digest(scales)) == (case["nibbles_sha256"], case["scales_sha256"])
    arrays = jobs.pack_int4(nibbles, scales, case["group"], interleaved="interleaved" in name)
    assert {array: digest(values) for array, values in arrays.items()} == {
        array: case[f"{array}_sha256"] for array in ("weights", "decode_biases", "decode_scales", "bias", "factors")
    }


def test_factors_and_tilings() -> None:
    assert {value: hex(jobs.factor(float(value))) for value in CHECK["scales"]} == CHECK["scales"]
    assert {k: list(jobs.tiling(int(k))) for k in CHECK["tiling_int8"]} == CHECK["tiling_int8"]
    assert {k: list(jobs.tiling(int(k), 32)) for k in CHECK["tiling_int4_g32"]} == CHECK["tiling_int4_g32"]


@given(st.floats(0, 65535, width=32))
def test_factor_is_the_value_rounded_down_to_16_bits(value: float) -> None:
    code = jobs.factor(value)
    assert code < 1 << 22
    back = (code & 0xFFFF) * 2.0 ** -(code >> 16)
    if value >= 2.0**-48:
        assert back <= value < back * (1 + 2.0**-15)


@settings(max_examples=30)
@given(st.integers(1, 300), st.integers(1, 400), st.integers(0, 2**32 - 1))
def test_unpack_is_the_inverse_of_pack(n: int, k: int, seed: int) -> None:
    weights = np.random.default_rng(seed).integers(-128, 128, (n, k)).astype(np.int8)
    packed = jobs.pack_int8(weights)
    assert packed.size == jobs.padded_n(n, k) * jobs.padded_k(k)
    assert np.array_equal(jobs.unpack_int8(packed, n, k), weights)


def test_zero_and_negative_scales() -> None:
    nibbles = np.full((128, 32), 0x0F, np.uint8)
    scales = np.zeros((128, 2), np.float32)
    scales[1] = (-0.5, 0.0)
    arrays = jobs.pack_int4(nibbles, scales, 32)
    assert arrays["factors"][0] == jobs.ONE
    assert arrays["factors"][1] == jobs.factor(0.5 / 16)
    assert set(arrays["decode_scales"].tolist()) == {32 | 1 << 10, 1 << 10}  # 16.0 and 0.0
    assert arrays["decode_biases"].sum() == 1
    assert arrays["bias"][0] == 0
    assert arrays["bias"][1] == -128 * 16 * (-112 + 127)


@given(st.integers(1, 40000), st.sampled_from((None, 32, 64, 128)))
def test_split_k_covers_k_with_sizes_that_are_not_known_to_be_wrong(k: int, group: int | None) -> None:
    parts = jobs.split_k(k, group=group)
    sizes = jobs.FIRMWARE_3_1_1
    assert sum(parts) == jobs.padded_k(k, group)
    assert all(part in sizes.right or part <= sizes.assumed_up_to for part in parts)
    assert not sizes.wrong.intersection(parts)
    assert all(part % (group or 16) == 0 for part in parts)


def test_split_rows() -> None:
    assert jobs.split_rows(2048) == (2048,)
    assert jobs.split_rows(5000) == (2048, 2048, 904)


def test_headers_of_the_three_releases() -> None:
    int8 = jobs.Job(4, 64, 128, 64, 1024, 2048, 3072, 4096, zero_point=-3, result_bytes=1)
    assert jobs.header(int8).tolist() == [2, 0, 4, 64, 128, 64, 1024, 2048, 3072, 4096, -3, 1, 8, -1, 0, 0]
    plain = jobs.Job(4, 64, 128, 64, 1024, 2048, 3072, 4096, signed=False, packed=False)
    assert jobs.header(plain).tolist()[0] == -1
    assert jobs.header(plain, jobs.release("first")).tolist()[0] == 0
    int4 = jobs.Job(
        4, 64, 128, 64, 1024, 2048, 3072, 4096, signed=False, group=32,
        decode_scales=5, decode_biases=6, ones=7, lengths=8,
    )  # fmt: skip
    assert jobs.header(int4).tolist() == [8, 6, 4, 64, 128 | 1 << 18, 64, 1024, 2048, 3072, 4096, 1, 4, 4, 32, 5, 7]
    assert jobs.header(int4, jobs.release("second")).tolist() == [
        0, 6, 4, 64, 128, 64, 1024, 2048, 3072, 4096, 0, 4, 4, 32, 5, 7,
    ]  # fmt: skip
    assert jobs.release("3.1.1") is jobs.NEWEST


def test_what_cannot_be_expressed_is_refused() -> None:
    good = {"m": 4, "k": 64, "n": 128, "a": 0, "weights": 0, "bias": 0, "factors": 0, "result": 0}
    refused = {
        "job: M is 2049; one job has 1 to 2048 rows. Split the rows.": {"m": 2049},
        "job: K is 40; it must be a multiple of 16. Pad K with zeros.": {"k": 40},
        "job: N is 65536; it must be a multiple of 16 from 16 to 65520. Pad or split the channels.": {"n": 65536},
        "job: a result has 2 bytes; 1 and 4 are possible.": {"result_bytes": 2},
        "job: int4 weights have results of 4 bytes.": {"group": 32, "result_bytes": 1},
        "group: 48 weights; NXP's sources have groups of 32, 64 and 128.": {"group": 48},
    }
    for message, change in refused.items():
        with pytest.raises(InvalidOptionError) as caught:
            jobs.header(jobs.Job(**(good | change)))
        assert str(caught.value) == message
    with pytest.raises(InvalidOptionError) as caught:
        jobs.header(jobs.Job(**good), jobs.release("second"))
    assert str(caught.value) == "job: the second release has int8 weights row by row, not packed."
    with pytest.raises(InvalidOptionError) as caught:
        jobs.header(jobs.Job(**good, packed=False), jobs.release("first"))
    assert str(caught.value) == "job: the first release has no word for a signed A; give A as uint8."
    with pytest.raises(InvalidOptionError) as caught:
        jobs.release("9.9")
    assert str(caught.value) == (
        "release: no published source has the form of jobs of version '9.9'; known are first, second, third, 3.1.1. Run "
        "`openneutron board make imx95` and try its program on the board: it tells which release's form works."
    )
    with pytest.raises(InvalidOptionError) as caught:
        jobs.factor(-1.0)
    assert str(caught.value) == "factor: -1 has no form; a job's factor is from 0 to below 65536."
    with pytest.raises(InvalidOptionError) as caught:
        jobs.pack_int4(np.zeros((16, 32), np.uint8), np.zeros((16, 3), np.float32), 32)
    assert str(caught.value) == "scales: shape [16, 3]; 16 rows of 64 int4 weights in groups of 32 have [16, 2]."
