# SPDX-License-Identifier: BSD-3-Clause
"""Quantized .tflite files that take a camera's frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import openneutron
from openneutron import InputOptions, litert
from openneutron.errors import InvalidOptionError
from openneutron.litert.interpret import interpret
from openneutron.litert.write import pack, with_frames

RESNET, KWS = "mlperf_tiny_resnet8_int8.tflite", "mlperf_tiny_kws_int8.tflite"


@pytest.mark.parametrize("color", ["rgb", "bgr"])
def test_a_program_takes_bytes_and_computes_what_the_file_does(shared_models: Path, color: str) -> None:
    path = shared_models / RESNET
    frame = np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3), np.uint8)
    made = openneutron.compile(path, inputs=InputOptions(format=f"uint8,nhwc,{color}"))
    assert made.report.whole
    picture = frame[..., ::-1] if color == "bgr" else frame
    (expected,) = interpret(path.read_bytes(), [(picture.astype(np.int16) - 128).astype(np.int8)])
    np.testing.assert_array_equal(made.run(frame)[0], expected)


def test_the_rewritten_file_is_one_that_litert_runs(shared_models: Path) -> None:
    model = with_frames(litert.read(shared_models / RESNET), "net", blue_first=True)
    (name,) = model.graph.inputs
    assert str(model.graph[name].dtype) == "uint8" and model.graph.nodes[0].op == "quantize"
    frame = np.random.default_rng(1).integers(0, 256, (1, 32, 32, 3), np.uint8)
    (expected,) = interpret(
        (shared_models / RESNET).read_bytes(), [(frame[..., ::-1].astype(np.int16) - 128).astype(np.int8)]
    )
    np.testing.assert_array_equal(interpret(pack(model.model), [frame])[0], expected)


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        (RESNET, {"format": "nchw"}, "input_format: nchw is for PyTorch models; a .tflite has its channels innermost. Write nhwc."),
        (KWS, {"format": "bgr"}, "input_format: bgr is for 3 channels; 'mlperf_tiny_kws_int8.tflite' has 1. Leave bgr out."),
        (RESNET, {"normalize": "std=2"}, "normalize: it is for PyTorch models; 'mlperf_tiny_resnet8_int8.tflite' is a .tflite. Leave it out."),
    ],
)  # fmt: skip
def test_what_can_not_be_a_frame(shared_models: Path, file: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        openneutron.compile(shared_models / file, inputs=InputOptions(**options))
    assert str(caught.value) == message
