# SPDX-License-Identifier: BSD-3-Clause
"""Models that take a camera's frames: the steps from bytes to the first layer are folded into this layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import openneutron
from openneutron import InputOptions
from openneutron.errors import InvalidOptionError
from openneutron.options import Request
from openneutron.pytorch.frames import FrameModel, framed, graph_of_frames
from openneutron.pytorch.source.exporting import AtenGraph

CAMERA = InputOptions(format="uint8,nhwc,bgr", normalize="mean=0.485:0.456:0.406,std=0.229:0.224:0.225")
WHOLE_BYTES = InputOptions(format="uint8,nhwc,bgr", normalize="scale=1,mean=124:116:104,std=58:57:59")
QUOTIENT = InputOptions(format="uint8,nhwc,rgb", normalize="std=1")

CONVOLUTION = torch.ops.aten.conv2d.default
JOIN = torch.ops.aten.cat.default
ALLOWED = {
    *(torch.ops.aten.permute.default, torch.ops.aten._to_copy.default, torch.ops.aten.sub.Tensor),
    *(torch.ops.aten.constant_pad_nd.default, CONVOLUTION, torch.ops.aten.relu.default),
}
"""The operators of a folded head: a move, a conversion, the difference to one byte, and zeros."""


class Head(nn.Module):
    """A convolution over what ``read`` makes of a picture, or that function alone."""

    def __init__(self, read: Callable[[Tensor], Tensor] | None = None, **window: object) -> None:
        super().__init__()
        self.read = read
        self.conv = nn.Conv2d(3, 4, 3, **window)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.conv(x if self.read is None else self.read(x)))


def graph_of(
    model: nn.Module, inputs: InputOptions, shape: tuple[int, ...] = (1, 3, 11, 12)
) -> tuple[FrameModel, AtenGraph]:
    torch.manual_seed(0)
    request = framed(Request(model=model.eval(), example_inputs=(torch.zeros(shape),), inputs=inputs))
    assert isinstance(request.model, FrameModel)
    return request.model, graph_of_frames(request)


def frame(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(1), dtype=torch.uint8)


def targets_of(graph: AtenGraph) -> list[object]:
    return [node.target for node in graph.module.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize(
    "window",
    [
        {},
        {"padding": 1},
        {"padding": 1, "stride": 2},
        {"padding": (2, 1), "dilation": 2, "stride": (1, 2)},
        {"padding": "same"},
    ],
    ids=str,
)
def test_a_normalization_is_folded_into_the_first_convolution(window: dict[str, object]) -> None:
    model, graph = graph_of(Head(**window), WHOLE_BYTES)
    taken = frame(1, 11, 12, 3)
    assert torch.allclose(graph.module(taken)[0], model(taken), atol=1e-4)
    assert set(targets_of(graph)) <= {*ALLOWED, JOIN}
    assert (JOIN in targets_of(graph)) == bool(window)


def test_zeros_around_a_picture_are_the_nearest_byte_around_a_frame() -> None:
    model, graph = graph_of(Head(padding=1), CAMERA)
    taken = frame(1, 11, 12, 3)
    difference = (graph.module(taken)[0] - model(taken)).abs()
    assert difference[..., 1:-1, 1:-1].max() < 1e-5
    # The weights of a corner's 5 values times half of a byte in the units of the model.
    weights = model.inner.conv.weight.abs().amax(0).sum((1, 2))  # type: ignore[union-attr, operator]
    bound = (weights * 0.5 / 255 / torch.tensor([0.229, 0.224, 0.225])).sum()
    assert 0 < difference.max() <= bound


def test_a_frame_of_quotients_is_padded_by_the_convolution() -> None:
    model, graph = graph_of(Head(padding=1), QUOTIENT)
    taken = frame(1, 11, 12, 3)
    assert torch.allclose(graph.module(taken)[0], model(taken), atol=1e-5) and JOIN not in targets_of(graph)


READERS: tuple[tuple[str, Callable[[Tensor], Tensor], InputOptions], ...] = (
    ("quotient and difference", lambda x: torch.subtract(x / 255, 0.5) / 0.25, InputOptions(format="uint8,nhwc,bgr")),
    ("constant minus picture", lambda x: 1 - x * 0.01, InputOptions(format="uint8,nchw")),
    ("other colors", lambda x: x[:, [2, 1, 0]] * 0.5, InputOptions(format="uint8,nhwc")),
    (
        "flipped colors and zeros",
        lambda x: nn.functional.pad(x.flip(1) / 127.5, (0, 1, 0, 1)),
        InputOptions(format="uint8"),
    ),
)


@pytest.mark.parametrize(("read", "inputs"), [row[1:] for row in READERS], ids=[row[0] for row in READERS])
def test_a_models_own_first_operators_are_folded(read: Callable[[Tensor], Tensor], inputs: InputOptions) -> None:
    model, graph = graph_of(Head(read), inputs)
    taken = frame(1, 3, 11, 12) if "nchw" in (inputs.format or "") else frame(1, 11, 12, 3)
    assert torch.allclose(graph.module(taken)[0], model(taken), rtol=1e-4, atol=1e-3)
    assert set(targets_of(graph)) <= ALLOWED


def test_a_model_with_channels_last_is_read_as_it_is() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = Head(padding=1, stride=2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x.permute(0, 3, 1, 2) / 127.5 - 1)

    model, graph = graph_of(Last(), InputOptions(format="uint8,nhwc,rgb"), (1, 11, 12, 3))
    taken = frame(1, 11, 12, 3)
    found, expected = graph.module(taken)[0], model(taken)[0]
    assert torch.allclose(found[:, 1:-1, 1:], expected[:, 1:-1, 1:], atol=1e-5)
    assert torch.allclose(found, expected, atol=0.02)
    assert CONVOLUTION in targets_of(graph) and torch.ops.aten.div.Tensor not in targets_of(graph)


def test_a_factor_of_0_is_left_as_it_is() -> None:
    model, graph = graph_of(Head(lambda x: x * 0), CAMERA)
    taken = frame(1, 11, 12, 3)
    assert torch.allclose(graph.module(taken)[0], model(taken))


def test_other_first_layers_read_one_convolution_of_single_pixels() -> None:
    class Grouped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 6, 3, padding=1, groups=3)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x)

    model, graph = graph_of(Grouped(), CAMERA)
    taken = frame(1, 11, 12, 3)
    assert torch.allclose(graph.module(taken)[0], model(taken), atol=1e-5)
    assert targets_of(graph).count(CONVOLUTION) == 2 and torch.ops.aten.mul.Tensor not in targets_of(graph)


def test_frames_of_another_size_are_cut_and_resized() -> None:
    inputs = InputOptions(
        format="uint8,nhwc,bgr", normalize="mean=0.485:0.456:0.406,std=0.229:0.224:0.225", size=(32, 20)
    )
    model, graph = graph_of(Head(), inputs, (1, 3, 10, 12))
    assert model.frames.centre == ((0, 20), (4, 28)) and inputs.size == "32x20"
    taken = frame(1, 20, 32, 3)
    assert torch.allclose(graph.module(taken)[0], model(taken), atol=1e-5)
    assert torch.ops.aten.mul.Tensor not in targets_of(graph)
    calibration = [taken, torch.full_like(taken, 255), torch.zeros_like(taken)]
    made = openneutron.compile(model.inner, torch.zeros(1, 3, 10, 12), calibration=calibration, inputs=inputs)
    assert made.report.whole and not made.delegation.on_cpu
    found, expected = torch.as_tensor(made.run(taken)[0]), model(taken)
    assert (found - expected).norm() < 0.05 * expected.norm()


class Normalize:
    mean, std = (0.5, 0.4, 0.3), torch.tensor([0.25, 0.5, 1.0])


class ToTensor:
    pass


class Compose:
    def __init__(self, *transforms: object) -> None:
        self.transforms = list(transforms)


class Processor:
    image_mean, image_std, rescale_factor = [0.5] * 3, [0.25] * 3, 1 / 255


@pytest.mark.parametrize(
    ("preprocessing", "text"),
    [
        (Compose(type("Resize", (), {})(), ToTensor(), Normalize()), "scale=1/255,mean=0.5:0.4:0.3,std=0.25:0.5:1.0"),
        (Normalize(), "scale=1,mean=0.5:0.4:0.3,std=0.25:0.5:1.0"),
        (Compose(type("ToDtype", (), {"scale": True})()), "scale=1/255"),
        ({"mean": 0.5, "std": 0.25, "crop_pct": 0.9}, "mean=0.5,std=0.25"),
        (Processor(), "scale=1/255,mean=0.5:0.5:0.5,std=0.25:0.25:0.25"),
    ],
)
def test_a_normalization_is_read_from_a_preprocessing(preprocessing: object, text: str) -> None:
    assert InputOptions(normalize=preprocessing).normalize == text


def test_a_compiled_model_takes_frames_and_loses_nothing() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 4, 1)).eval()
    wrapped = FrameModel(model, graph_of(model, CAMERA)[0].call, CAMERA, "net")
    frames = [frame(1, 11, 12, 3), *(torch.full((1, 11, 12, 3), byte, dtype=torch.uint8) for byte in (0, 255))]
    pictures = [(wrapped.frames.real(each),) for each in frames]
    assert all(
        torch.equal(wrapped.frames.bytes_of(each), taken) for (each,), taken in zip(pictures, frames, strict=True)
    )
    made = openneutron.compile(model, pictures[0], calibration=pictures, inputs=CAMERA)
    plain = openneutron.compile(model, pictures[0], calibration=pictures)
    assert made.report.whole and not made.delegation.on_cpu
    graph = made.graphs[0]
    assert str(graph[graph.inputs[0]]).startswith("x: uint8") or graph[graph.inputs[0]].shape == (1, 11, 12, 3)
    expected = model(*pictures[0])

    def noise(result: object) -> float:
        return float((torch.as_tensor(result) - expected).norm())

    assert noise(made.run(frames[0])[0]) <= 1.1 * noise(plain.run(*pictures[0])[0])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format": "uint8,nhcw"}, "input_format: 'nhcw' is unknown; there are uint8, nhwc, nchw, rgb, bgr. Did you mean 'nhwc'?"),
        ({"format": "rgb,bgr"}, "input_format: 'bgr' and 'rgb' exclude each other. Leave one out."),
        ({"format": 8}, "input_format: it is 8; it is a text."),
        ({"size": "640"}, "input_size: it is '640'; it is the width and the height of a frame, such as 640x480."),
        ({"normalize": {"mean": 0}}, "normalize: the dict has no mean and std. Pass timm's data config."),
        ({"normalize": Compose(ToTensor(), Normalize(), ToTensor())}, "normalize: ToTensor follows Normalize. Give scale, mean and std as text."),
        ({"normalize": 8}, "normalize: int is not known. Give scale, mean and std as text, such as mean=0.5,std=0.5."),
        ({"normalize": "mean=0.5:0.5"}, "normalize: mean has 2 numbers; the model has 3 channels. Give one number, or one for each."),
        ({"normalize": "crop=8"}, "normalize: crop is not for frames. Leave it out."),
    ],
)  # fmt: skip
def test_unusable_options(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        graph_of(Head(), InputOptions(**fields))
    assert str(caught.value) == message


def test_models_without_a_picture() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        graph_of(nn.Linear(4, 2), CAMERA, (1, 4))
    assert str(caught.value) == (
        "input_format: 'model' has 0 float inputs of 1, 3 or 4 channels; a camera's frame replaces 1. Leave input_format and normalize out."
    )


def test_accuracy_reads_the_tensors_behind_a_frame() -> None:
    torch.manual_seed(0)
    frames = [frame(1, 11, 12, 3), torch.full((1, 11, 12, 3), 255, dtype=torch.uint8)]
    report = openneutron.accuracy(Head().eval(), torch.zeros(1, 3, 11, 12), calibration=frames, inputs=CAMERA)
    assert next(layer for layer in report.layers if layer.name == "conv").on_npu
