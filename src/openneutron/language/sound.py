# SPDX-License-Identifier: BSD-3-Clause
"""Sound for the encoder of a speech model: reading WAV files, log-mel spectrograms, and runs of the encoder's program without ExecuTorch.

The spectrogram is that of Whisper's feature extractor (transformers, models/whisper/feature_extraction_whisper.py).
"""

from __future__ import annotations

import io
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from openneutron.device import pte
from openneutron.device.files import content, existing
from openneutron.device.simulator import Closing, Simulator
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.isa import Program
from openneutron.isa.payload import Format, parse

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

HERTZ = 16_000
WINDOW, HOP = 400, 160
"""The length of a frame's Fourier transform, and the distance between two frames, in samples."""

ENCODER = "encoder"
"""The name of the encoder's method in a ``.pte``."""

QUANTIZE, DEQUANTIZE = (f"quantized_decomposed::{verb}_per_tensor.out" for verb in ("quantize", "dequantize"))


def read_wav(path: Path) -> Floats:
    """Return the samples of a WAV file as float32 from -1 to 1. Several channels are averaged.

    Raises InvalidModelError if the file is not a WAV file with 16-bit PCM at 16 kHz.
    """
    data = content(existing(str(path)))
    try:
        with wave.open(io.BytesIO(data)) as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            frames = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise InvalidModelError(f"'{path}' is no WAV file of PCM: {error}. Give 16-bit PCM at {HERTZ} Hz.") from error
    if (width, rate) != (2, HERTZ):
        raise InvalidModelError(
            f"'{path}' has {8 * width}-bit samples at {rate} Hz; the model takes 16 bits at {HERTZ} Hz. Convert it, for example with "
            f"ffmpeg -i {path.name} -ar {HERTZ} -c:a pcm_s16le out.wav."
        )
    samples = np.frombuffer(frames[: len(frames) // (2 * channels) * 2 * channels], "<i2").reshape(-1, channels)
    found: Floats = (samples.mean(axis=1) / 32768).astype(np.float32)
    return found


def check_sounds(sounds: Sequence[Floats], option: str = "calibration") -> None:
    """Raise InvalidOptionError if there is no sound, or if a sound is empty or not an array of one axis with
    floating-point samples."""
    if not len(sounds):
        raise InvalidOptionError(f"{option}: it has no sound; give a few with speech.")
    for number, sound in enumerate(sounds):
        samples = np.asarray(sound)
        if samples.ndim != 1 or not samples.size or samples.dtype.kind != "f":
            raise InvalidOptionError(
                f"{option}: sound {number} is no row of float32 samples from -1 to 1. openneutron.language.sound.read_wav reads a WAV file."
            )


def mel_scale(hertz: Doubles) -> Doubles:
    """Convert frequencies in Hz to Slaney's mel scale, which is linear up to 1000 Hz and logarithmic above."""
    logarithmic = 15 + 27 / np.log(6.4) * np.log(np.maximum(hertz, 1000) / 1000)
    return np.where(hertz < 1000, hertz * 3 / 200, logarithmic)


def from_mel_scale(mels: Doubles) -> Doubles:
    """Convert frequencies on the mel scale to Hz. This is the inverse of ``mel_scale``."""
    return np.where(mels < 15, mels * 200 / 3, 1000 * np.exp(np.log(6.4) / 27 * (mels - 15)))


@cache
def mel_bands(bands: int) -> Doubles:
    """Return the weights [bands, frequencies] of the mel filter bank: triangles between 0 and 8000 Hz with Slaney's area normalization."""
    frequencies = np.linspace(0, HERTZ / 2, WINDOW // 2 + 1)
    low, high = mel_scale(np.array([0.0, HERTZ / 2]))
    corners = from_mel_scale(np.linspace(low, high, bands + 2))
    rising = (frequencies - corners[:-2, None]) / np.diff(corners)[:-1, None]
    falling = (corners[2:, None] - frequencies) / np.diff(corners)[1:, None]
    return np.maximum(0, np.minimum(rising, falling)) * (2 / (corners[2:] - corners[:-2]))[:, None]


def log_mel(samples: Floats, bands: int, frames: int) -> Floats:
    """Return the log-mel spectrogram [bands, frames] of samples. If there are fewer samples than ``frames`` frames of
    10 ms have, zeros follow them.

    Frames are centred at multiples of ``HOP``; the sound is mirrored at both ends. The values are decimal logarithms
    of the power. Values more than 8 below the largest one are raised to that bound. The result is (value + 4) / 4,
    computed in float64.

    Raises InvalidOptionError if there are more samples than the frames have.
    """
    count = frames * HOP
    if len(samples) > count:
        raise InvalidOptionError(
            f"sound: it has {len(samples) / HERTZ:g} s; the encoder takes {count / HERTZ:g} s at a time. Divide it."
        )
    whole = np.zeros(count)
    whole[: len(samples)] = samples
    padded = np.pad(whole, WINDOW // 2, mode="reflect")
    rows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[:count:HOP]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    power = np.abs(np.fft.rfft(rows * window)) ** 2
    levels = np.log10(np.maximum(mel_bands(bands) @ power.T, 1e-10))
    found: Floats = ((np.maximum(levels, levels.max() - 8) + 4) / 4).astype(np.float32)
    return found


@dataclass(frozen=True, slots=True)
class Steps:
    """The quantization parameters of a float tensor at a program's input or output: real = (stored - zero_point) * scale."""

    scale: float
    zero_point: int
    lowest: int
    highest: int
    dtype: str

    def stored(self, x: Floats) -> npt.NDArray[np.int8 | np.int16]:
        """Return the stored integers of float values, as ExecuTorch's quantize_per_tensor computes them."""
        values = np.rint(x * (np.float32(1) / np.float32(self.scale))).astype(np.int64) + self.zero_point
        result: npt.NDArray[np.int8 | np.int16] = np.clip(values, self.lowest, self.highest).astype(self.dtype)
        return result

    def real(self, stored: npt.NDArray[np.int8 | np.int16]) -> Floats:
        """Return the float values of stored integers, as ExecuTorch's dequantize_per_tensor computes them."""
        result: Floats = (stored.astype(np.int32) - self.zero_point).astype(np.float32) * np.float32(self.scale)
        return result


class Encoder(Closing):
    """The encoder of a ``.pte``, ready to run. Use it in a ``with`` statement. Its input is a spectrogram of ``bands`` by ``frames``.

    Raises InvalidModelError if the file has no encoder that is one program between a quantization and a dequantization.
    """

    def __init__(self, data: bytes, name: str = "model.pte", threads: int | None = None) -> None:
        method = next((each for each in pte.methods(data, name) if each.name == ENCODER), None)
        if method is None:
            raise InvalidModelError(
                f"'{name}' has no method '{ENCODER}'; a speech model has one. Make one with openneutron.speech.export."
            )
        self._before, program, formats, self._after = _parts(method, name)
        tensor = method.tensor(method.inputs[0])
        self.name, self._formats, self._shape = name, formats, method.tensor(method.outputs[0]).shape
        _, self.bands, self.frames = tensor.shape
        self._simulator = Simulator(program, threads=threads)

    def close(self) -> None:
        """Release the encoder's program. A second call does nothing."""
        self._simulator.close()

    @property
    def samples(self) -> int:
        """Return the number of sound samples that a run reads."""
        return self.frames * HOP

    def run(self, features: Floats) -> Floats:
        """Return the encoder's result, float32 [positions, width], for a log-mel spectrogram [bands, frames]."""
        stored = self._before.stored(features)[None]
        if self._formats[0] is Format.CHANNELS_LAST:
            stored = np.ascontiguousarray(np.moveaxis(stored, 1, -1))
        (found,) = self._simulator.run([stored])
        shape = self._shape
        stored = found.view(self._after.dtype)
        if self._formats[1] is Format.CHANNELS_LAST:
            stored = np.moveaxis(stored.reshape(shape[0], *shape[2:], shape[1]), -1, 1)
        result: Floats = self._after.real(stored.reshape(shape))[0]
        return result

    def hear(self, samples: Floats) -> Floats:
        """Return the encoder's result, float32 [positions, width], for sound samples. Raises InvalidOptionError for more samples than a run
        reads."""
        return self.run(log_mel(samples, self.bands, self.frames))


def _parts(method: pte.Method, name: str) -> tuple[Steps, Program, tuple[Format, Format], Steps]:
    """Return the input's quantization parameters, the program, the formats of its input and output, and the output's quantization parameters."""
    calls = method.instructions
    kinds = [getattr(each, "operator", type(each).__name__) for each in calls]
    if kinds != [QUANTIZE, "DelegateCall", DEQUANTIZE] or len(method.delegates) != 1:
        raise InvalidModelError(
            f"'{name}': its encoder is {', '.join(kinds)}; one program between two conversions can run here. Run it in ExecuTorch."
        )
    payload = parse(method.delegates[0].payload)
    first, _, last = calls
    assert isinstance(first, pte.KernelCall) and isinstance(last, pte.KernelCall)
    stored = method.tensor(first.arguments[-1]).dtype, method.tensor(last.arguments[0]).dtype
    before, after = (_steps(method, call, dtype) for call, dtype in zip((first, last), stored, strict=True))
    return before, payload.program, (payload.input_formats[0], payload.output_formats[0]), after


def _steps(method: pte.Method, call: pte.KernelCall, dtype: str) -> Steps:
    scale, zero_point, lowest, highest = (method.values[place] for place in call.arguments[1:5])
    assert (
        isinstance(scale, float)
        and isinstance(zero_point, int)
        and isinstance(lowest, int)
        and isinstance(highest, int)
    )
    return Steps(scale, zero_point, lowest, highest, dtype)
