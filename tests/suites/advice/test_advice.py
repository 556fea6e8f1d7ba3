# SPDX-License-Identifier: BSD-3-Clause
"""A slice of the suite: the advice about two networks, and the lines of memory against latency, are what compiles have."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from openneutron import litert
from scripts.published_networks import cifarnet
from tests.suites.advice.__main__ import rows
from tests.suites.advice.followed import Followed, followed


def test_a_file_on_each_class_of_chip(tmp_path: Path) -> None:
    (tmp_path / "cifarnet.tflite").write_bytes(litert.write(cifarnet()))
    for target, budget in (("imxrt700", "24"), ("mcxn94x", "24"), ("imx95", "40")):
        options = ("--sram-budget", budget)
        found = list(followed(str(tmp_path / "cifarnet.tflite"), target, options, tmp_path / "cache"))
        assert [item for item in found if not item.is_true] == []
        assert any(item.is_advice for item in found)


def test_a_pytorch_model(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    found: list[Followed] = list(followed("unet", "imxrt700", ("--sram-budget", "28"), tmp_path / "cache"))
    assert [item for item in found if not item.is_true] == []
    assert found[0].options == "--io-dtype int8" and found[0].said[0] < 0.65 * found[0].before[0]


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    kept = Followed("net", "imxrt700", "the chip's", "--io-dtype int8", True, (2.0, 8), (1.0, 8), (1.005, 8))
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "net-imxrt700.json").write_text(json.dumps([[asdict(kept)]] * 2))
    assert list(rows("net", "imxrt700", tmp_path)) == [[kept], [kept]]
    assert kept.is_true and round(kept.deviation, 6) == 0.005
