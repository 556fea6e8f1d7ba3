# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron compile --converter``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from openneutron.device.converter import eiq
from openneutron.litert import write
from scripts.published_networks import cifarnet
from tests.cli.conftest import Command
from tests.support import fake_sdk


def test_nxps_where_it_is_not_installed(refused: Callable[..., str]) -> None:
    assert refused("compile", "autoencoder", "--converter", "eiq") == (
        f"eiq: NXP's package eiq_neutron_sdk is not installed for {sys.executable}. "
        "Install it as NXP's eIQ documentation says. "
        "Or compile with converter='open', this project's own compiler."
    )


def test_nxps_where_a_stand_in_is(openneutron: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sdk.write(folder / "sdk", fake_sdk.OURS)
    monkeypatch.syspath_prepend(str(folder / "sdk"))
    ended = openneutron("compile", "autoencoder", "--converter", "eiq", "-o", "a.pte", "--intermediates", "parts")
    assert ended.code == 0, ended.err
    assert "By NXP's SDK  1 partition, for the chip alone; costs are not known here." in ended.out
    assert sorted(path.name for path in (folder / "parts").iterdir()) == [
        "tag0_neutron.et.tflite",
        "tag0_pure.et.tflite",
    ]
    assert (folder / "a.pte").stat().st_size > 100_000


def test_a_file(openneutron: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sdk.write(folder / "sdk", fake_sdk.OURS)
    monkeypatch.syspath_prepend(str(folder / "sdk"))
    monkeypatch.setattr(eiq, "_run", fake_sdk.forked)
    ended = openneutron("compile", "mixed.tflite", "--converter", "eiq", "-o", "a.tflite", "--intermediates", "parts")
    assert ended.code == 0, ended.err
    assert "By NXP's SDK  2 partitions, for the chip alone; costs are not known here." in ended.out
    assert "SCATTER_ND" in ended.out
    assert sorted(path.name for path in (folder / "parts").iterdir()) == [
        f"neutron_graph_{index}{end}.tflite" for index in (0, 1) for end in ("", "_neutron")
    ]


def test_explain_as_nxp(openneutron: Command, folder: Path) -> None:
    (folder / "net.tflite").write_bytes(write(cifarnet()))
    ended = openneutron("explain", "net.tflite", "--as-nxp", "3.0")
    assert ended.code == 0, ended.err
    assert (
        "As NXP's release 3.0.1 would\n8 of 9 operators on the NPU in 1 NeutronGraph; by this compiler 9.\n"
        in ended.out
    )
    assert "SOFTMAX   softmax_8  NPU   CPU  channels multiple of 8; it is 10" in ended.out
    ended = openneutron("explain", "mixed.tflite", "--as-nxp", "3.2.0", "--target", "imx95")
    assert "NXP publishes these limits for imxrt700, and none for imx95." in ended.out
    assert "SCATTER_ND  r     CPU   CPU  not among the operators that NXP publishes" in ended.out
