# SPDX-License-Identifier: BSD-3-Clause
"""Folders of WAV files: the values of each width, lengths, channels, resampling, and the messages about wrong files."""

from __future__ import annotations

import sys
import wave
from pathlib import Path

import numpy as np
import pytest

from openneutron.device.data import ModelInput, check, source
from openneutron.errors import InvalidOptionError, MissingToolError

FLOAT = np.dtype(np.float32)
FOUR = ModelInput((1, 4), FLOAT)


def write(path: Path, frames: bytes, width: int = 2, channels: int = 1, rate: int = 16000) -> None:
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(frames)


def write16(path: Path, *values: int, channels: int = 1, rate: int = 16000) -> None:
    write(path, np.array(values, "<i2").tobytes(), channels=channels, rate=rate)


def message(folder: Path, wanted: ModelInput = FOUR, preprocess: str | None = None, rate: int | None = None) -> str:
    with pytest.raises(InvalidOptionError) as caught:
        list(source(folder, [wanted], preprocess=preprocess, sample_rate=rate))
    return str(caught.value)


@pytest.mark.parametrize(
    ("width", "frames"),
    [
        (1, bytes([128, 192, 0, 255])),
        (2, np.array([0, 16384, -32768, 32512], "<i2").tobytes()),
        (3, b"".join(value.to_bytes(3, "little", signed=True) for value in (0, 2**22, -(2**23), 127 * 2**16))),
        (4, np.array([0, 2**30, -(2**31), 127 * 2**24], "<i4").tobytes()),
    ],
)
def test_the_values_of_8_16_24_and_32_bits_are_between_minus_1_and_1(width: int, frames: bytes, tmp_path: Path) -> None:
    write(tmp_path / "a.wav", frames, width)
    (sample,) = source(tmp_path, [FOUR])
    expected = [[0, 0.5, -1, 127 / 128]]
    np.testing.assert_array_equal(sample.arrays[0], np.float32(expected))


def test_two_channels_are_averaged_for_a_model_of_one(tmp_path: Path) -> None:
    write16(tmp_path / "a.wav", 0, 16384, 8192, 8192, -16384, 0, 0, 0, channels=2)
    (sample,) = source(tmp_path, [ModelInput((1, 1, 4), FLOAT)])
    assert sample.arrays[0].tolist() == [[[0.25, 0.25, -0.25, 0]]]
    (sample,) = source(tmp_path, [ModelInput((1, 2, 4), FLOAT)])
    assert sample.arrays[0].tolist() == [[[0, 0.25, -0.5, 0], [0.5, 0.25, 0, 0]]]
    assert message(tmp_path, ModelInput((1, 3, 4), FLOAT)) == (
        f"--calibration: '{tmp_path / 'a.wav'}': it has 2 channels; the model takes 3."
    )


def test_a_length_cuts_and_fills(tmp_path: Path) -> None:
    write16(tmp_path / "long.wav", *([16384] * 6))
    write16(tmp_path / "short.wav", -16384, 16384)
    found = source(tmp_path, [FOUR], preprocess="length=4,scale=2,mean=0.5,std=2")
    assert [sample.arrays[0].tolist() for sample in found] == [[[0.25] * 4], [[-0.75, 0.25, -0.25, -0.25]]]
    assert found.preprocessing == "length=4,scale=2,mean=0.5,std=2"
    listed = "; ".join(
        f"'{tmp_path / name}.wav': it has {count} values; the model takes 4"
        for name, count in (("long", 6), ("short", 2))
    )
    assert message(tmp_path) == (
        f"--calibration: 2 of the 2 files of '{tmp_path}' can't be used: {listed}. --preprocess length=4 cuts longer files and fills "
        "shorter ones with zeros."
    )


def test_resampling_is_scipys_polyphase_filter(tmp_path: Path) -> None:
    from scipy.signal import resample_poly

    values = np.random.default_rng(0).integers(-9999, 9999, 441)
    write16(tmp_path / "a.wav", *values, rate=44100)
    found = source(tmp_path, [ModelInput((1, 160), FLOAT)], sample_rate=16000)
    expected = resample_poly(values / 32768, 160, 441).astype(np.float32)
    np.testing.assert_array_equal(found[0].arrays[0][0], expected)
    assert found.preprocessing == "sample_rate=16000"
    again = source(tmp_path, [ModelInput((1, 160), FLOAT)], preprocess=found.preprocessing)
    np.testing.assert_array_equal(again[0].arrays[0], found[0].arrays[0])
    with pytest.raises(InvalidOptionError) as caught:
        source(tmp_path, [ModelInput((1, 160), FLOAT)], preprocess="sample_rate=8000", sample_rate=16000)
    assert str(caught.value) == "--sample-rate: it is 16000, and --preprocess has 8000. Leave one out."
    assert message(tmp_path, ModelInput((1, 161), FLOAT), rate=16000) == (
        f"--calibration: '{tmp_path / 'a.wav'}': it has 160 values at 16,000 Hz; the model takes 161. --preprocess length=161 cuts "
        "longer files and fills shorter ones with zeros."
    )


def test_resampling_without_scipy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write16(tmp_path / "a.wav", 1, 2, 3, 4)
    monkeypatch.setitem(sys.modules, "scipy.signal", None)
    assert len(source(tmp_path, [FOUR], sample_rate=16000)) == 1
    for attempt in (
        lambda: source(tmp_path, [FOUR], sample_rate=8000),
        lambda: check(tmp_path, sample_rate=8000),  # before the model is loaded
    ):
        with pytest.raises(MissingToolError) as caught:
            attempt()
        assert str(caught.value) == (
            "Resampling WAV files takes SciPy, which is not installed. Install it with the extra 'sounds': pip install "
            "'openneutron[sounds]'. Files that have the sample rate already need none."
        )


def test_unreadable_and_damaged_files(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_text("no sound")
    assert message(tmp_path) == (
        f"--calibration: '{tmp_path / 'a.wav'}': it is no WAV file with PCM values: file does not start with RIFF id."
    )
    (tmp_path / "a.wav").write_bytes(b"")
    assert message(tmp_path) == (
        f"--calibration: '{tmp_path / 'a.wav'}': it is no WAV file with PCM values: it is too short."
    )
    write16(tmp_path / "a.wav", 1, 2, 3, 4)
    (tmp_path / "a.wav").write_bytes((tmp_path / "a.wav").read_bytes()[:-2])
    assert message(tmp_path) == f"--calibration: '{tmp_path / 'a.wav'}': it is truncated: its header states 4 values."


def test_inputs_and_steps_that_are_not_for_sounds(tmp_path: Path) -> None:
    write16(tmp_path / "a.wav", 1, 2, 3, 4)
    assert message(tmp_path, ModelInput((1, 1, 49, 10), FLOAT)) == (
        "--calibration: WAV files are for a model that takes [1, values] or [1, channels, values]; this one takes float32[1,1,49,10]. "
        "Give a function that makes its input: --preprocess file.py:function."
    )
    with pytest.raises(InvalidOptionError) as caught:
        check(str(tmp_path), "resize=4", 16000)
    assert str(caught.value) == "--preprocess: resize is not for sounds. Leave it out."
    with pytest.raises(InvalidOptionError) as caught:
        check(str(tmp_path), None, 0)
    assert str(caught.value) == "--sample-rate: it is 0; it is at least 1."
