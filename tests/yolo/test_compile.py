# SPDX-License-Identifier: BSD-3-Clause
"""A detector of Ultralytics the whole way to boxes on the simulated NPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import openneutron
from openneutron import CompileOptions, InputOptions, LoadingOptions
from openneutron.cli import main
from openneutron.device import pte
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.features.accuracy.boxes import agreement
from openneutron.pytorch.source.exporting import Staged
from openneutron.pytorch.yolo import Suppression, read_yolo, staged
from tests.support.random_yolo import pictures
from tests.yolo import tiny

SHAPES = {"images": (1, 3, tiny.SIZE, tiny.SIZE)}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("yolo") / "tiny.pt"
    torch.save({"model": tiny.detector().half(), "train_args": {"imgsz": tiny.SIZE}, "date": "today"}, path)
    return path


def boxes_of(decoded: torch.Tensor) -> torch.Tensor:
    import torchvision  # type: ignore[import-not-found]  # noqa: F401  (Ultralytics then takes its suppression)
    from ultralytics.utils.nms import non_max_suppression  # type: ignore[import-not-found]

    found: torch.Tensor = non_max_suppression(decoded.clone(), 0.25, 0.7, max_det=300, nc=3)[0]
    return found


@pytest.fixture(scope="module")
def given() -> list[torch.Tensor]:
    """Four pictures of whole bytes for the calibration, and one more."""
    return [(each * 255).round() / 255 for each in pictures(5, tiny.SIZE)]


@pytest.fixture(scope="module")
def program(checkpoint: Path, given: list[torch.Tensor]) -> Any:
    return openneutron.compile(
        checkpoint,
        calibration=given[:4],
        loading=LoadingOptions(input_shapes=SHAPES),
        options=CompileOptions(target="imx95"),
    )


def test_a_checkpoint_becomes_boxes_in_the_program(checkpoint: Path, given: list[torch.Tensor], program: Any) -> None:
    picture = given[4]
    assert len(program.partitions) == 1
    assert [item for item in program.delegation.on_cpu if not item.module.startswith("later.")] == []
    assert {item.reason for item in program.delegation.on_cpu} == {
        "it is a step after the network's results, which is computed in float"
    }
    found = program.run(picture)[0]
    assert tuple(found.shape) == (1, 64, 6)  # as many as there are anchors
    model = read_yolo(checkpoint, input_shapes=SHAPES)
    assert isinstance(model, Staged) and model.later is not None
    with torch.no_grad():
        expected = boxes_of(model.later[0](*program.quantized(picture))[0])
    agreed = agreement([(expected, torch.as_tensor(found)[0])], 0.25)
    assert agreed.matched > 5 and agreed.lost + agreed.new <= 2 and agreed.iou is not None and agreed.iou > 0.95, agreed
    facts = json.loads(pte.stated(pte.methods(program.buffer, "tiny.pte"), pte.METADATA))
    assert (facts["task"], facts["imgsz"], facts["names"]["1"]) == ("detect", [64, 64], "fork")


def test_a_cameras_frames_have_the_boxes_of_pictures(
    checkpoint: Path, given: list[torch.Tensor], program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = [(each * 255).round().to(torch.uint8).flip(1).permute(0, 2, 3, 1).contiguous() for each in given]
    of_frames = openneutron.compile(
        checkpoint,
        calibration=frames[:4],
        loading=LoadingOptions(input_shapes=SHAPES),
        options=CompileOptions(target="imx95"),
        inputs=InputOptions(format="uint8,nhwc,bgr", normalize="std=1"),
    )
    assert all(item.module.startswith("later.") for item in of_frames.delegation.on_cpu)
    wanted, found = (np.asarray(one.run(each[4])[0]) for one, each in ((program, given), (of_frames, frames)))
    assert (wanted[0, :, 4] > 0.25).sum() > 5
    np.testing.assert_allclose(found, wanted, atol=1e-4)  # the decoding is in float, the network's results are equal
    monkeypatch.chdir(tmp_path)
    of_frames.save("frames.pte")
    Image.fromarray(frames[4][0].flip(2).numpy()).save("street.png")
    assert main(["run", "frames.pte", "--input", "street.png", "--plot", "boxes.png"]) == 0
    assert Image.open("boxes.png").size == (tiny.SIZE, tiny.SIZE)


def test_accuracy_compares_the_boxes_of_samples_that_are_read_once(checkpoint: Path, given: list[torch.Tensor]) -> None:
    loading = LoadingOptions(input_shapes=SHAPES)
    found = openneutron.accuracy(checkpoint, calibration=given[:4], data=iter(given[4:]), loading=loading)
    assert found.boxes is not None and found.boxes.pictures == found.samples == len(given[4:])
    with pytest.raises(InvalidOptionError, match="data: there are no samples"):
        openneutron.accuracy(checkpoint, calibration=given[:4], data=[], loading=loading)


def test_agreement_counts_matched_lost_and_new_boxes() -> None:
    wanted = torch.tensor(
        [[0, 0, 10, 10, 0.9, 0], [20, 0, 30, 10, 0.8, 0], [40, 0, 50, 10, 0.2, 0]], dtype=torch.float32
    )
    got = torch.tensor([[0, 0, 10, 8, 0.9, 0], [20, 0, 30, 10, 0.7, 1]], dtype=torch.float32)
    found = agreement([(wanted, got)], 0.25)
    assert (
        str(found)
        == "1 of 2 boxes found (mean IoU 0.80), 1 new, with scores above 0.25; best score 0.90 in float, 0.90 in int8"
    )
    assert not found.are_lost and agreement([(wanted, got * torch.tensor([1, 1, 1, 1, 0.5, 1]))], 0.25).are_lost


def test_suppression_has_the_result_of_ultralytics() -> None:
    anchors = 200
    generator = torch.Generator().manual_seed(0)
    corner, size = torch.rand(2, 1, 2, anchors, generator=generator) * torch.tensor([40.0, 30.0]).reshape(2, 1, 1, 1)
    scores = (torch.rand(1, 3, anchors, generator=generator) * 16).round() / 16  # many equal scores
    decoded = torch.cat((corner, size + 1, scores, torch.rand(1, 2, anchors, generator=generator)), 1)
    module = torch.export.export(Suppression(3, anchors, 0.25, 0.7, 100), (decoded,), strict=False).module()
    expected = boxes_of(decoded)[:100]
    found = module(decoded)[0][0]
    assert len(expected) > 10
    assert torch.equal(found[: len(expected)], expected) and not found[len(expected) :].any()


def test_each_kind_of_result() -> None:
    network = tiny.detector()
    picture = pictures(1, tiny.SIZE)[0]
    shapes = {}
    for head in ("raw", "decoded"):
        model = staged(network, "tiny", LoadingOptions(head=head, input_shapes=SHAPES))
        assert isinstance(model, Staged)
        with torch.no_grad():
            shapes[head] = [tuple(item.shape) for item in model(picture)]
            if head == "decoded":
                assert torch.allclose(model(picture)[0], network(picture)[0], atol=1e-3)
    anchors = 8 * 8
    assert shapes == {"raw": [(1, 64, anchors), (1, 3, anchors)], "decoded": [(1, 7, anchors)]}


class Callable:
    def __reduce__(self) -> Any:
        return eval, ("1 + 1",)


def test_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    network = tiny.detector()
    network.extra = Callable()
    path = tmp_path / "code.pt"
    torch.save({"model": network}, path)
    assert isinstance(read_yolo(path, input_shapes=SHAPES), Staged)  # eval is not called, and its place is empty
    network.model[0].act = _Own()
    torch.save({"model": network}, path)
    with pytest.raises(InvalidModelError) as caught:
        read_yolo(path, input_shapes=SHAPES)
    assert str(caught.value) == (
        f"'code.pt' is not loaded: its layer 'model.0.act' is a {_Own.__module__}._Own, which is no class of Ultralytics, so that "
        "loading it may run code of whoever made it. If you know who made the file, load it with --trust (trust=True)."
    )


class _Own(torch.nn.Module):
    pass


class _Calling:
    def __reduce__(self) -> Any:
        from ultralytics.nn.modules import Conv  # type: ignore[import-not-found]

        return Conv, (1, 1)


def test_the_constructor_of_a_layer_is_not_called(tmp_path: Path) -> None:
    path = tmp_path / "calling.pt"
    torch.save({"model": _Calling()}, path)
    with pytest.raises(InvalidModelError) as caught:
        read_yolo(path)
    assert str(caught.value) == (
        "'calling.pt' is not loaded: it calls the class Conv, so that loading it may run code of whoever made it. If you know who made "
        "the file, load it with --trust (trust=True)."
    )


def test_sizes_and_results_are_checked(checkpoint: Path) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        read_yolo(checkpoint, input_shapes={"images": (1, 3, 60, 60)})
    assert str(caught.value) == (
        "input_shapes: images of 'tiny.pt' is 1x3x60x60; it is 1x3xHEIGHTxWIDTH, with sides that are multiples of 8."
    )
    with pytest.raises(InvalidOptionError, match=r"images of 'tiny\.pt' is 1x1x64x64; it is 1x3xHEIGHTxWIDTH"):
        read_yolo(checkpoint, input_shapes={"images": (1, 1, 64, 64)})
    with pytest.raises(InvalidOptionError) as caught:
        read_yolo(checkpoint, head="box")
    assert str(caught.value) == "head: 'box' is unknown; there are boxes, decoded, raw. Did you mean 'boxes'?"
