# SPDX-License-Identifier: BSD-3-Clause
"""Programs are byte for byte those on record: a change that is meant to alter programs writes the records anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.replay.graphs import GROUPS, chips
from tests.replay.networks import pytorch, schedules
from tests.replay.records import differences, read
from tests.support.made_networks import TRAINED_MODELS

RECORDED = read(Path(__file__).with_name("programs.txt"))


def is_trained_too(name: str) -> bool:
    """Return whether a case is a made network in another setting than the default one, and the trained network of its shapes, which has
    the same schedules, is there to be compared in that setting."""
    group, network, setting = name.split("/")
    return group == "made" and setting != "default" and (TRAINED_MODELS / f"{network}.tflite").is_file()


@pytest.mark.parametrize("group", GROUPS)
def test_programs_are_those_on_record(group: str) -> None:
    if group == "trained" and not TRAINED_MODELS.is_dir():
        pytest.skip(f"{TRAINED_MODELS} is absent: it holds the trained models; the made networks are compared instead")
    cases = [case for case in GROUPS[group]() if not is_trained_too(case.name)]
    assert cases
    found = differences(cases, RECORDED)
    assert found == [], "see what differs; if it is right, run python -m tests.replay --write"


SOON = ("mlperf_tiny_kws_int8", "encoder", "lstm", "gru", "state")
"""Networks that compile in less than a second for each chip."""


def test_programs_for_every_class_of_chip_are_those_on_record() -> None:
    """Every case has a record, and the programs of small networks in the whole memory are those on record."""
    recorded = read(Path(__file__).with_name("chips.txt"))
    cases = {case.name: case for case in chips()}
    advice = "see what differs; if it is right, run python -m tests.replay --all --write"
    assert cases.keys() == recorded.keys(), advice
    quick = [case for name, case in cases.items() if name.split("/")[1] in SOON and name.endswith("/default")]
    assert differences(quick, recorded) == [], advice


QUICK = ("cifarnet", "ds_cnn", "tcn", "transformer_encoder")
"""Networks that compile in a second each."""


def test_networks_from_pytorch_are_those_on_record() -> None:
    """Every network has a record, and those of quick networks have today's schedule, which no machine's floats change."""
    pytest.importorskip("executorch")
    recorded = read(Path(__file__).with_name("pytorch.txt"))
    cases = {case.name: case for case in pytorch()}
    advice = "if it is right, run python -m tests.replay --all --write"
    assert cases.keys() == recorded.keys(), advice
    for name in (f"pytorch/{quick}/default" for quick in QUICK):
        found = schedules(cases[name].record())
        assert found == schedules(recorded[name]) and all(found), f"{name}: {advice}"


def test_every_record_has_its_case() -> None:
    named = {case.name for make in GROUPS.values() for case in make()}
    assert {name for name in RECORDED if not name.startswith("trained/")} <= named
