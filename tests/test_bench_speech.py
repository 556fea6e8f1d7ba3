# SPDX-License-Identifier: BSD-3-Clause
"""The stages of speech networks, with one layer and few positions: they compile whole, and their results are near those of float."""

from __future__ import annotations

import pytest

from bench import speech, speech_stages
from bench.speech_stages import INT8_ON_I_MX_95, WITHIN_512_KIB, Stage
from openneutron.options import DRIVER

OPEN_WAY, DRIVER_WAY = INT8_ON_I_MX_95

STAGES = {
    "decoder": (speech_stages.whisper_decoder(32, tokens=4, layers=1, vocabulary=100), 25.0),
    "frames": (speech_stages.fastspeech_frames(layers=1), 20.0),
    "text": (speech_stages.vits_text(layers=1), 20.0),
}


@pytest.fixture(autouse=True)
def _transformers() -> None:
    pytest.importorskip("transformers")


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_is_one_program(name: str) -> None:
    stage, least = STAGES[name]
    found = speech.figures(stage, OPEN_WAY)
    assert (found["on_cpu"], found["programs"], found["reasons"]) == (0, 1, {})
    assert min(found["sqnr_db"]) >= least


def test_a_vocoder_is_one_program_within_its_budget() -> None:
    stage: Stage = speech_stages.vocoder(32, 4, (WITHIN_512_KIB,))
    found = speech.figures(stage, WITHIN_512_KIB)
    assert (found["on_cpu"], found["programs"]) == (0, 1)
    assert found["sram_bytes"] <= 512 * 1024
    assert min(found["sqnr_db"]) >= 20
    assert found["real_time_factor"] == pytest.approx(1e3 * 4 * 256 / 22050 / found["milliseconds"])
    heads, (line,) = speech.rows({stage.title: [{"way": WITHIN_512_KIB, **found}]})
    assert len(line) == len(heads)
    assert line[:3] == ("HiFi-GAN, 32 channels, 4 frames", "imxrt700, 512 KiB", "int8")


def test_the_products_of_a_stage_are_jobs_of_the_driver() -> None:
    stage, _ = STAGES["text"]
    found = speech.figures(stage, DRIVER_WAY)
    assert DRIVER in DRIVER_WAY and found["on_cpu"] == 0
    assert 0 < found["macs_of_jobs"] <= found["macs"]
