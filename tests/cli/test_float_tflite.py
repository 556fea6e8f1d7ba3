# SPDX-License-Identifier: BSD-3-Clause
"""Float ``.tflite`` files on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.cli.conftest import Command


def test_a_float_file_is_quantized(openneutron: Command, folder: Path) -> None:
    ended = openneutron("compile", "float.tflite", "--io-dtype", "int8")
    assert ended.code == 0
    assert "2 of 2 operators" in ended.out
    assert ended.err == (
        "note: Calibrated on random inputs alone: what runs where, memory and latency are as they will be, but the result's accuracy means "
        "nothing until it is calibrated on typical inputs. Give them with --calibration.\n"
    )
    assert (folder / "float_neutron.tflite").exists()


def test_an_evaluation_has_the_float_side(openneutron: Command, folder: Path) -> None:
    generator = np.random.default_rng(0)
    np.savez(folder / "data.npz", input0=generator.standard_normal((6, 4, 4, 2)).astype(np.float32))
    ended = openneutron(
        "evaluate", "float.tflite", "--calibration", "data.npz", "--data", "data.npz", "--workers", "1", "--json"
    )
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out)
    assert [side["side"] for side in found["sides"]] == ["float", "int8", "npu"]
    sqnr = (
        {(pair["one"], pair["other"]): pair["sqnr_db"] for pair in found["pairs"]}
        if "one" in found["pairs"][0]
        else found["pairs"]
    )
    print(sqnr)
    assert found["pairs"]
