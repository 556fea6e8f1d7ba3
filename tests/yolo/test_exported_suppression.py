# SPDX-License-Identifier: BSD-3-Clause
"""A detector that Ultralytics exports to ONNX with ``nms=True``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from openneutron.pytorch.onnx.read import read_onnx
from openneutron.pytorch.source.exporting import METADATA, Staged
from tests.yolo.tiny import SIZE, detector


@torch.library.custom_op("openneutron_tests::nms", mutates_args=())
def _nms(boxes: torch.Tensor, scores: torch.Tensor, iou: float) -> torch.Tensor:
    from ultralytics.utils.nms import TorchNMS  # type: ignore[import-not-found]

    kept: torch.Tensor = TorchNMS.nms(boxes, scores, iou)
    return kept


def _symbol(graph: Any, boxes: Any, scores: Any, iou: Any) -> Any:
    """ONNX's operator for torchvision's, as torchvision itself exports it: of one picture and one class."""

    def constant(values: Any, kind: torch.dtype) -> Any:
        return graph.op("Constant", value_t=torch.tensor(values, dtype=kind))

    boxes = graph.op("Unsqueeze", boxes, constant([0], torch.int64))
    scores = graph.op("Unsqueeze", scores, constant([0, 1], torch.int64))
    limit = constant([iou.node().t("value").item()], torch.float32)
    found = graph.op("NonMaxSuppression", boxes, scores, constant([2**63 - 1], torch.int64), limit)
    column = graph.op("Gather", found, constant([2], torch.int64), axis_i=1)
    return graph.op("Squeeze", column, constant([1], torch.int64))


def test_the_suppression_of_an_export_has_fixed_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torchvision  # type: ignore[import-not-found]
    from ultralytics.engine.exporter import NMSModel  # type: ignore[import-not-found]
    from ultralytics.utils import DEFAULT_CFG  # type: ignore[import-not-found]

    torch.onnx.register_custom_op_symbolic("openneutron_tests::nms", _symbol, 11)
    network = detector().fuse(verbose=False)
    head = network.model[-1]
    network.task, head.export, head.xyxy, head.format = "detect", True, True, "onnx"
    settings = {
        "format": "onnx",
        "nms": True,
        "conf": 0.25,
        "iou": 0.7,
        "max_det": 20,
        "agnostic_nms": False,
        "batch": 1,
    }
    arguments = type(DEFAULT_CFG)(**{**vars(DEFAULT_CFG), **settings})
    picture = torch.rand(1, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))
    wrapped = NMSModel(network, arguments).eval()
    with torch.no_grad():
        wanted = wrapped(picture)
        monkeypatch.setattr(torchvision.ops, "nms", lambda *given: torch.ops.openneutron_tests.nms(*given))
        torch.onnx.export(
            wrapped, (picture,), tmp_path / "net.onnx", output_names=["output0"], opset_version=18, dynamo=False
        )
    onnx = pytest.importorskip("onnx", reason="the extra [onnx] is not installed")
    model = onnx.load(tmp_path / "net.onnx")
    metadata = {"task": "detect", "names": str(network.names), "imgsz": f"[{SIZE}, {SIZE}]", "args": "{'nms': True}"}
    onnx.helper.set_model_props(model, metadata)
    onnx.save(model, tmp_path / "net.onnx")
    read = read_onnx(tmp_path / "net.onnx")
    assert isinstance(read, Staged)
    with torch.no_grad():
        np.testing.assert_allclose(read(picture)[0], wanted, rtol=1e-4, atol=1e-3)
    assert (wanted[0, :, 4] > 0).sum() > 3
    assert getattr(read, METADATA) == metadata
