# SPDX-License-Identifier: BSD-3-Clause
"""Models that take a camera's frames in place of normalized pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from openneutron.device.data import in_colors
from openneutron.device.data.preprocessing import (
    BYTE_SCALE,
    CHANNELS,
    FOR_PICTURES,
    FOR_SOUNDS,
    Preprocess,
    check_channels,
)
from openneutron.errors import InvalidOptionError
from openneutron.options import FrameFormat, InputOptions, Request
from openneutron.pytorch.frames.folding import FLOAT, fold
from openneutron.pytorch.graph.rewriting import add_call, add_constant, behind
from openneutron.pytorch.quantizer.passes.batch_norm import fold_batch_norms
from openneutron.pytorch.source.calibration_data import ExampleInputs
from openneutron.pytorch.source.exporting import METADATA, AtenGraph, ModelInputs, Staged, aten_graph, example

_aten = torch.ops.aten

NHWC_TO_NCHW, NCHW_TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """The way from a frame to a model's input.

    ``input`` is an example of the model's input. Its value in each channel is ``factor * byte + offset``, both float64, in the
    model's order of channels. ``is_last`` is True where the model's input has its channels innermost. ``pixels`` are
    the height and the width of the frame.
    """

    input: torch.Tensor
    format: FrameFormat
    factor: torch.Tensor
    offset: torch.Tensor
    is_last: bool
    pixels: tuple[int, int]

    @classmethod
    def of(cls, wanted: torch.Tensor, options: InputOptions) -> Frames | None:
        """Return the way to an input of a model; None where the input is no picture. Raises InvalidOptionError where the options do
        not fit the picture."""
        if wanted.dim() != 4 or not wanted.is_floating_point():
            return None
        axis = next((axis for axis in (1, 3) if wanted.shape[axis] in CHANNELS), None)
        if axis is None:
            return None
        channels = wanted.shape[axis]
        format = FrameFormat.parse(options.format or "")
        if format.color == "bgr" and channels != 3:
            raise InvalidOptionError(f"input_format: bgr is for 3 channels; the model has {channels}. Leave bgr out.")
        steps = Preprocess.parse(options.normalize or "", "normalize")
        steps.refuse((*FOR_PICTURES, *FOR_SOUNDS), "frames", "normalize")
        check_channels(steps, channels, "normalize")
        is_given = options.normalize is not None
        scale = float(steps.scale if steps.scale is not None else BYTE_SCALE if is_given else 1)
        mean, std = (
            torch.tensor(numbers, dtype=torch.float64).expand(channels).clone()
            for numbers in (steps.mean or (0.0,), steps.std or (1.0,))
        )
        extents = tuple(wanted.shape[1:3] if axis == 3 else wanted.shape[2:])
        return cls(wanted, format, scale / std, -mean / std, axis == 3, options.pixels or extents)

    @property
    def extents(self) -> tuple[int, int]:
        """Return the height and the width of the model's picture."""
        height, width = self.input.shape[1:3] if self.is_last else self.input.shape[2:]
        return int(height), int(width)

    @property
    def is_resized(self) -> bool:
        """Return whether the frame has another size than the model's picture."""
        return self.pixels != self.extents

    @property
    def centre(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the first and the last row, and the first and the last column, of the largest centre of a frame in the ratio of the
        model's picture. The last ones are not in it."""
        ratio = min(whole / part for whole, part in zip(self.pixels, self.extents, strict=True))
        found = []
        for whole, part in zip(self.pixels, self.extents, strict=True):
            extent = min(whole, round(part * ratio))
            first = (whole - extent) // 2
            found.append((first, first + extent))
        return found[0], found[1]

    @property
    def order(self) -> tuple[int, ...]:
        """Return the place in the frame of each of the model's channels."""
        places = tuple(range(len(self.factor)))
        return places[::-1] if self.format.color == "bgr" else places

    def real(self, frame: torch.Tensor) -> torch.Tensor:
        """Return the model's input for a frame, in float32."""
        x = frame.permute(NHWC_TO_NCHW) if self.format.is_last else frame
        x = x.flip(1) if self.format.color == "bgr" else x
        if self.is_resized:
            (top, bottom), (left, right) = self.centre
            x = nn.functional.interpolate(x[:, :, top:bottom, left:right].double(), self.extents, mode="bilinear")
        ones = (1, -1, 1, 1)
        x = x.double() * self.factor.reshape(ones) + self.offset.reshape(ones)
        x = x.permute(NCHW_TO_NHWC) if self.is_last else x
        layout = torch.channels_last if is_channels_last(self.input) else torch.contiguous_format
        return x.float().contiguous(memory_format=layout)

    def bytes_of(self, value: torch.Tensor) -> torch.Tensor:
        """Return the frames whose inputs of the model are nearest to ``value``, with the same axes before the last three.

        Pictures are enlarged where frames have another size.
        """
        x = value.reshape(-1, *value.shape[-3:])
        x = x.permute(NHWC_TO_NCHW) if self.is_last else x
        ones = (1, -1, 1, 1)
        x = (x.double() - self.offset.reshape(ones)) / self.factor.reshape(ones)
        x = nn.functional.interpolate(x, self.pixels, mode="bilinear") if self.is_resized else x
        x = x.flip(1) if self.format.color == "bgr" else x
        x = x.permute(NCHW_TO_NHWC) if self.format.is_last else x
        x = x.round().clamp(0, 255).to(torch.uint8).contiguous()
        return x.reshape(*value.shape[:-3], *x.shape[-3:])


def is_channels_last(tensor: torch.Tensor) -> bool:
    """Return whether a picture has its channels innermost in memory, and is not contiguous too."""
    return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()


def is_picture(value: Any, wanted: torch.Tensor) -> bool:
    """Return whether a value is one or several of a model's own pictures, of which ``wanted`` is an example."""
    if not isinstance(value, (torch.Tensor, np.ndarray)) or not torch.as_tensor(value).is_floating_point():
        return False
    return tuple(value.shape[-3:]) == tuple(wanted.shape[-3:])


class FrameModel(nn.Module):
    """A float model that takes a frame in place of its picture. ``inner`` is the model, ``call`` are its example inputs, and ``place``
    is the place of the picture among their leaves."""

    def __init__(self, inner: nn.Module | ExportedProgram, call: ModelInputs, options: InputOptions, name: str) -> None:
        super().__init__()
        found = [Frames.of(leaf, options) if isinstance(leaf, torch.Tensor) else None for leaf in call.leaves]
        places = [place for place, frames in enumerate(found) if frames is not None]
        if len(places) != 1:
            raise InvalidOptionError(
                f"input_format: '{name}' has {len(places)} float inputs of 1, 3 or 4 channels; a camera's frame replaces 1. Leave "
                "input_format and normalize out."
            )
        self.inner, self.call, self.place = inner, call, places[0]
        frames = found[self.place]
        assert frames is not None
        self.frames = frames
        self._module = [inner.module(check_guards=False) if isinstance(inner, ExportedProgram) else inner]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's results for its arguments with a frame."""
        leaves = pytree.tree_leaves((args, kwargs))
        leaves[self.place] = self.frames.real(leaves[self.place])
        args, kwargs = pytree.tree_unflatten(leaves, self.call.structure)
        return self._module[0](*args, **kwargs)

    def samples(self, given: Any) -> Any:
        """Return calibration data with frames in place of the model's own pictures. Data that is read from files has frames already."""
        if isinstance(given, ExampleInputs):
            return ExampleInputs(map(self._with_frame, given))
        if isinstance(given, (torch.Tensor, np.ndarray)):
            return self._with_frame(given)
        if isinstance(given, (list, tuple)):
            return [self._with_frame(item) for item in given]
        return map(self._with_frame, given) if isinstance(given, Iterator) else given

    def _with_frame(self, item: Any) -> Any:
        """Return a sample with a frame in place of the model's own picture."""
        leaves, structure = pytree.tree_flatten(item)
        if self.place < len(leaves) and is_picture(leaves[self.place], self.frames.input):
            leaves[self.place] = self.frames.bytes_of(torch.as_tensor(leaves[self.place]))
        return pytree.tree_unflatten(leaves, structure)

    @property
    def example(self) -> ModelInputs:
        """Return the example inputs with a frame."""
        args, kwargs = self._with_frame((self.call.args, dict(self.call.kwargs)))
        return ModelInputs(args, kwargs)


def frame_model(model: Any) -> FrameModel | None:
    """Return the model of frames that a model is, or has as its quantized stage; None for another model."""
    inner = model.network if isinstance(model, Staged) else model
    return inner if isinstance(inner, FrameModel) else None


def of_frames(
    model: nn.Module | ExportedProgram, call: ModelInputs, options: InputOptions, name: str
) -> tuple[nn.Module, FrameModel]:
    """Return a model that takes frames, with the metadata and the later stage of ``model``, and its part that is quantized. ``call`` has the
    example inputs.

    Raises InvalidOptionError as ``FrameModel`` does.
    """
    metadata = getattr(model, METADATA, None)
    if isinstance(model, Staged):
        made = FrameModel(model.network, call, options, name)
        return Staged(made, made.example.tensors, model.later, metadata), made
    made = FrameModel(model, call, options, name)
    setattr(made, METADATA, metadata)
    return made, made


def framed(request: Request) -> Request:
    """Return the request of a compile whose model takes frames. Samples that are the model's own pictures become frames.

    Raises InvalidOptionError where the model has no picture among its inputs.
    """
    if frame_model(request.model) is not None:
        return request
    given, keywords = request.example_inputs, request.example_kwargs
    if isinstance(request.model, ExportedProgram) and given is None and not keywords:
        given, keywords = request.model.example_inputs or (None, None)
    call = example(given, keywords, request.name)
    color = FrameFormat.parse(request.inputs.format or "").color
    steps = in_colors(request.calibration, request.data.preprocess, color)
    outer, model = of_frames(request.model, call, request.inputs, request.name)
    return replace(
        request,
        model=outer,
        example_inputs=model.example.args,
        example_kwargs=model.example.kwargs,
        calibration=model.samples(request.calibration),
        data=replace(request.data, preprocess=steps),
    )


def graph_of_frames(request: Request) -> AtenGraph:
    """Return the ATen graph of a ``FrameModel``. The steps from the frame to the first layer are folded into this layer where that
    is exact.

    Raises as ``aten_graph`` does.
    """
    model = frame_model(request.model)
    assert model is not None
    inner = replace(
        request,
        model=model.inner,
        example_inputs=model.call.args,
        example_kwargs=model.call.kwargs,
        inputs=InputOptions(),
    )
    source = aten_graph(inner)
    module, frames = source.module, model.frames
    fold_batch_norms(module)  # later operators then have their usual forms, and constants are computed
    picture = module.graph.find_nodes(op="placeholder")[model.place]
    given = example(request.example_inputs, request.example_kwargs, request.name)
    real = picture.meta["val"]
    readers = list(picture.users)
    picture.meta["val"] = real.fake_mode.from_tensor(given.leaves[model.place], static_shapes=True)
    first = behind(picture)

    def call(target: Any, *args: object, **kwargs: object) -> torch.fx.Node:
        return add_call(module, first, target, *args, origin=picture, **kwargs)

    def each_channel(stem: str, values: torch.Tensor) -> torch.fx.Node:
        return add_constant(module, first, stem, values.float().reshape(1, -1, 1, 1), picture)

    x, channel = picture, 3 if frames.format.is_last else 1
    if frames.is_resized:
        x = call(_aten.permute.default, x, NHWC_TO_NCHW) if frames.format.is_last else x
        x, channel = call(_aten._to_copy.default, x, dtype=FLOAT, memory_format=torch.contiguous_format), 1
        for axis, (first_place, last), whole in zip((2, 3), frames.centre, frames.pixels, strict=True):
            if last - first_place < whole:
                x = call(_aten.slice.Tensor, x, axis, first_place, last)
        x = call(_aten.upsample_bilinear2d.vec, x, list(frames.extents), False, None)
    root = x
    if not frames.is_resized:
        x = call(_aten.permute.default, x, NHWC_TO_NCHW) if frames.format.is_last else x
    if frames.order[0]:
        x = call(_aten.flip.default, x, [1])
    if not frames.is_resized:
        x = call(_aten._to_copy.default, x, dtype=FLOAT)
    x = call(_aten.mul.Tensor, x, each_channel("frame_factor", frames.factor))
    x = call(_aten.add.Tensor, x, each_channel("frame_offset", frames.offset))
    if frames.is_last:
        x = call(_aten.permute.default, x, NCHW_TO_NHWC)
    layout = torch.channels_last if is_channels_last(real) else torch.contiguous_format
    x = call(_aten.clone.default, x, memory_format=layout)
    for reader in readers:
        reader.replace_input_with(picture, x)
    fold(module, root, channel)
    module.graph.eliminate_dead_code()
    module.recompile()
    return replace(source, inputs=replace(given, names=source.inputs.names))
