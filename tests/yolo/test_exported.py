# SPDX-License-Identifier: BSD-3-Clause
"""A detector that Ultralytics exports to ONNX has the kernel calls of the network itself, and those of its decoding."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import openneutron
from openneutron import CompileOptions, LoadingOptions
from tests.support.random_yolo import pictures
from tests.yolo import tiny
from tests.yolo.exported import calls, changes


def test_an_export_has_the_calls_of_the_network(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the extra [onnx] is not installed")
    samples, options = pictures(2, tiny.SIZE), CompileOptions(target="imxrt700")
    loading = LoadingOptions(input_shapes={"images": (1, 3, tiny.SIZE, tiny.SIZE)}, head="raw")
    network = openneutron.compile(tiny.detector(), calibration=samples, loading=loading, options=options)
    exported = tiny.detector().fuse(verbose=False)
    head = exported.model[-1]
    head.export, head.format = True, "onnx"
    with torch.no_grad():
        torch.onnx.export(exported, (samples[0],), tmp_path / "net.onnx", opset_version=18, dynamo=False)
    whole = openneutron.compile(tmp_path / "net.onnx", calibration=samples, options=options)
    gone, new = changes(calls(network, tmp_path), calls(whole, tmp_path))
    assert gone == []
    # the scores' sigmoid, the distances' softmax and mean, two corners, their centre and size, and the stride
    assert sorted(kernel for kernel, _ in new) == [
        *["add_s8"] * 4, "conv_2d_1x1_s8", *["lookup_s8"] * 3, "softmax_s8",
    ]  # fmt: skip
