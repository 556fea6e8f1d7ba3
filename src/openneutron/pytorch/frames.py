# SPDX-License-Identifier: BSD-3-Clause
"""Models that take a camera's frames in place of normalized pictures.

The steps between a frame of bytes and a model's first convolutions are folded into these convolutions. A normalization is an affine
function of each channel, ``y = factor * byte + offset``. A convolution of y is one of the bytes with the weights times the factor, and
with the offset times the weights in its bias. Another order of the channels is another order of the weights. Zeros around y are the
byte ``-offset / factor`` around the frame. A convolution adds zeros itself where this byte is 0; otherwise the frame is joined with
rows and columns of the nearest byte, which is the one rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
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
from openneutron.pytorch.graph.program import WHOLE_NUMBERS, arguments_of
from openneutron.pytorch.graph.rewriting import add_call, add_constant, behind, constant_of, number_of, only_user
from openneutron.pytorch.quantizer.passes.batch_norm import fold_batch_norms
from openneutron.pytorch.source.calibration_data import ExampleInputs
from openneutron.pytorch.source.exporting import METADATA, AtenGraph, ModelInputs, Staged, aten_graph, example

_aten = torch.ops.aten

FLOAT = torch.float32

LARGEST_BYTE = 255

_SAME = (
    _aten._to_copy.default,
    _aten.to.dtype,
    _aten.to.dtype_layout,
    _aten.clone.default,
    _aten.contiguous.default,
    _aten.alias.default,
    _aten.detach.default,
)
_PADS = (_aten.pad.default, _aten.constant_pad_nd.default)
_CONVOLUTIONS = (_aten.conv2d.default, _aten.conv2d.padding, _aten.convolution.default)

_ALIASES = {"subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div"}
"""Other names of PyTorch's arithmetic operators."""

_Pad = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """The operators from a frame to ``node``, as one affine function for each channel.

    Channel c of the node is ``factor[c] * byte + offset[c]``, where the bytes are those of channel ``order[c]`` of
    the frame. ``axes`` are the frame's axes in the order in which the node has them. ``channel`` is the frame's axis
    that has the channels. ``pads`` has, for each axis of the node, the numbers of zeros before and after the values.
    """

    node: Node
    channel: int
    axes: tuple[int, ...]
    order: torch.Tensor
    factor: torch.Tensor
    offset: torch.Tensor
    pads: tuple[_Pad, ...]

    @classmethod
    def of(cls, module: GraphModule, frame: Node, channel: int) -> Head:
        """Return the longest chain of operators behind a frame that only normalize, cast, move or pad."""
        value = frame.meta["val"]
        channels, rank = value.shape[channel], value.dim()
        ones = torch.ones(channels, dtype=torch.float64)
        head = cls(frame, channel, tuple(range(rank)), torch.arange(channels), ones, 0 * ones, ((0, 0),) * rank)
        while True:
            user = only_user(head.node)
            further = None if user is None else head._through(module, user)
            if further is None:
                return head
            head = further

    @property
    def axis(self) -> int:
        """Return the node's axis of the channels."""
        return self.axes.index(self.channel)

    @property
    def is_padded(self) -> bool:
        return any(map(any, self.pads))

    def _through(self, module: GraphModule, user: Node) -> Head | None:
        """Return the head that ends with ``user``, the only reader of the node; None where it computes something else."""
        target, rank = user.target, len(self.axes)
        if user.op != "call_function" or not user.args:
            return None
        if target in _SAME and user.args[0] is self.node:
            return replace(self, node=user) if user.meta["val"].dtype in (FLOAT, torch.uint8) else None
        if target is _aten.permute.default:
            order = [axis % rank for axis in user.args[1]]
            return replace(
                self,
                node=user,
                axes=tuple(self.axes[axis] for axis in order),
                pads=tuple(self.pads[axis] for axis in order),
            )
        if target is _aten.flip.default and [axis % rank for axis in user.args[1]] == [self.axis]:
            return self._with_channels(user, torch.arange(len(self.order) - 1, -1, -1))
        if target is _aten.index.Tensor:
            wanted: Any = user.args[1]
            others = [item for axis, item in enumerate(wanted) if axis != self.axis]
            index = constant_of(module, wanted[self.axis]) if len(wanted) > self.axis else None
            plain = index is not None and index.dim() == 1 and all(item is None for item in others)
            return self._with_channels(user, index % len(self.order)) if plain and index is not None else None
        if target is _aten.index_select.default and user.args[1] % rank == self.axis:
            index = constant_of(module, user.args[2])
            return None if index is None else self._with_channels(user, index % len(self.order))
        if target in _PADS and user.args[0] is self.node:
            return self._padded(user)
        return None if self.is_padded else self._scaled(module, user)

    def _with_channels(self, node: Node, index: torch.Tensor) -> Head:
        return replace(self, node=node, order=self.order[index], factor=self.factor[index], offset=self.offset[index])

    def _padded(self, node: Node) -> Head | None:
        given = arguments_of(node)
        if given.get("mode", "constant") != "constant" or given.get("value") not in (None, 0, 0.0):
            return None
        pads = list(self.pads)
        pairs = list(zip(given["pad"][::2], given["pad"][1::2], strict=True))
        for axis, (low, high) in zip(reversed(range(len(pads))), pairs, strict=False):
            pads[axis] = (pads[axis][0] + low, pads[axis][1] + high)
        is_plain = all(low >= 0 <= high for low, high in pads)
        outer = [pads[axis] for axis in range(len(pads)) if axis in (self.axis, self.axes.index(0))]
        return replace(self, node=node, pads=tuple(pads)) if is_plain and not any(map(any, outer)) else None

    def _scaled(self, module: GraphModule, node: Node) -> Head | None:
        """Return the head that ends at ``node``, if this operator adds, subtracts, multiplies or divides by one
        constant for each channel. Return None for any other operator, and if it divides the constant by the value."""
        name = str(node.target).split(".")
        kind = _ALIASES.get(name[1], name[1]) if len(name) > 1 else ""
        if node.meta["val"].dtype is not FLOAT or name[0] != "aten" or kind not in ("add", "sub", "rsub", "mul", "div"):
            return None
        left, right = node.args[:2]
        if "rounding_mode" in node.kwargs or left is right:
            return None
        other = self._each_channel(module, left if right is self.node else right)
        if other is None:
            return None
        alpha = float(node.kwargs.get("alpha", node.args[2] if len(node.args) > 2 else 1))
        factor, offset = self.factor, self.offset
        if kind in ("mul", "div"):
            if right is self.node and kind == "div":
                return None
            other = other if kind == "mul" else 1 / other
            return replace(self, node=node, factor=factor * other, offset=offset * other)
        if kind == "rsub":
            left, right = right, left
        if right is self.node:
            factor, offset = factor * alpha, offset * alpha
        else:
            other = other * alpha
        if kind == "add":
            return replace(self, node=node, factor=factor, offset=offset + other)
        if right is self.node:
            return replace(self, node=node, factor=-factor, offset=other - offset)
        return replace(self, node=node, factor=factor, offset=offset - other)

    def _each_channel(self, module: GraphModule, item: object) -> torch.Tensor | None:
        """Return a constant operand as one number for each channel; None for anything else."""
        number = number_of(module, item)
        if number is not None:
            return torch.full_like(self.factor, number)
        value = constant_of(module, item)
        rank = len(self.axes)
        if value is None or value.dim() > rank:
            return None
        extents = (1,) * (rank - value.dim()) + tuple(value.shape)
        if any(extent != 1 for axis, extent in enumerate(extents) if axis != self.axis):
            return None
        return value.double().flatten().expand(len(self.factor)).clone()


@dataclass(frozen=True, slots=True, eq=False)
class Convolution:
    """A convolution that reads a head, with its constants in float64. ``pads`` are the zeros at the sides of height and width."""

    node: Node
    weight: torch.Tensor
    bias: torch.Tensor | None
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pads: tuple[_Pad, _Pad]

    @classmethod
    def of(cls, module: GraphModule, node: Node, head: Head) -> Convolution | None:
        """Return the convolution that a node is; None for another node, and for a convolution that can't read bytes.
        A convolution can read bytes if it has two dimensions, one group and constant weights, is not transposed, and
        the head has its channels on axis 1."""
        if node.target not in _CONVOLUTIONS or node.args[0] is not head.node or head.axis != 1 or len(head.axes) != 4:
            return None
        given = arguments_of(node)
        weight, bias = constant_of(module, given["weight"]), given.get("bias")
        held = None if bias is None else constant_of(module, bias)
        if weight is None or (bias is not None and held is None) or given.get("transposed"):
            return None
        if given.get("groups", 1) != 1:
            return None
        stride, dilation = (_pair(given.get(name, 1)) for name in ("stride", "dilation"))
        own = given.get("padding", 0)
        if own == "same":
            whole = [step * (extent - 1) for step, extent in zip(dilation, weight.shape[2:], strict=True)]
            pads = [(each // 2, each - each // 2) for each in whole]
        else:
            pads = [(each, each) for each in _pair(0 if own == "valid" else own)]
        (top, bottom), (left, right) = (
            (low + more[0], high + more[1]) for (low, high), more in zip(pads, head.pads[2:], strict=True)
        )
        return cls(
            node,
            weight.double(),
            None if held is None else held.double(),
            stride,
            dilation,
            ((top, bottom), (left, right)),
        )

    def needed(self, extents: tuple[int, int]) -> tuple[_Pad, _Pad]:
        """Return the zeros at each side that some window covers, around a picture of this height and width."""
        found = []
        for extent, (low, high), stride, dilation, size in zip(
            extents, self.pads, self.stride, self.dilation, self.weight.shape[2:], strict=True
        ):
            window = dilation * (size - 1) + 1
            last = (extent + low + high - window) // stride * stride + window
            found.append((low, max(0, last - extent - low)))
        return found[0], found[1]


def _pair(item: Any) -> tuple[int, int]:
    values = tuple(item) if isinstance(item, (tuple, list)) else (item,)
    return (values[0], values[0]) if len(values) == 1 else (values[0], values[1])


def fold(module: GraphModule, frame: Node, channel: int) -> bool:
    """Fold the operators that normalize, cast, move or pad a frame into the convolutions that read their result.
    Return whether all of these operators are folded.

    ``channel`` is the frame's axis that has the channels. If the operators can't be folded, ``_in_one_call`` replaces
    them by one 1x1 convolution where that saves kernel calls on the NPU. The result is then False.
    """
    head = Head.of(module, frame, channel)
    if not head.node.users or head.node is frame or not bool((head.offset / head.factor).isfinite().all()):
        return False
    convolutions = [Convolution.of(module, reader, head) for reader in head.node.users]
    folded = [each for each in convolutions if each is not None]
    whole = len(folded) == len(convolutions)
    zeros = -head.offset / head.factor
    nearest = zeros.round()
    is_padded = any(any(map(any, each.pads)) for each in folded)
    if not whole or (is_padded and bool(((nearest < 0) | (nearest > LARGEST_BYTE)).any())):
        return _in_one_call(module, frame, head)
    # Differences to the mean zero let the errors of quantized weights cancel, as those of normalized values do.
    zero = int(zeros.mean().round().clamp(0, LARGEST_BYTE))
    pixels = _pixels(module, frame, head, zero)
    for each in folded:
        _fold_into(module, each, head, pixels, nearest, zero)
    return True


def _pixels(module: GraphModule, frame: Node, head: Head, zero: int = 0) -> Node:
    """Add the frame's bytes as float32 in the layout of the head's end, less the byte ``zero``."""
    value, before = head.node.meta["val"], frame.next
    while before.op == "placeholder":
        before = before.next
    x = frame
    if head.axes != tuple(range(len(head.axes))):
        x = add_call(module, before, _aten.permute.default, x, list(head.axes), origin=frame)
    is_last = value.is_contiguous(memory_format=torch.channels_last) and not value.is_contiguous()
    layout = torch.channels_last if is_last else torch.contiguous_format
    if frame.meta["val"].dtype is not FLOAT:
        x = add_call(module, before, _aten._to_copy.default, x, origin=frame, dtype=FLOAT, memory_format=layout)
    if zero:
        x = add_call(module, before, _aten.sub.Tensor, x, zero, origin=frame)
        x.meta["custom"] = {**x.meta.get("custom", {}), WHOLE_NUMBERS: (-zero, LARGEST_BYTE - zero)}
    return x


def _in_frame_order(head: Head, values: torch.Tensor) -> torch.Tensor:
    """Return values of the model's channels (axis 1) as values of the frame's channels. A channel of the frame gets
    the sum of the values of all model channels that are made from it, or 0 if there are none."""
    made = torch.zeros(
        values.shape[0], int(head.node.meta["val"].shape[head.axis]), *values.shape[2:], dtype=values.dtype
    )
    return made.index_add(1, head.order, values)


def _fold_into(
    module: GraphModule, each: Convolution, head: Head, pixels: Node, nearest: torch.Tensor, zero: int
) -> None:
    """Let a convolution read the frame's bytes less ``zero``. ``nearest`` has, for each of the model's channels, the
    byte that stands for 0 in the padding around the frame."""
    node = each.node
    weight = _in_frame_order(head, each.weight * head.factor.reshape(1, -1, 1, 1))
    bias = (each.weight * (head.offset + head.factor * zero).reshape(1, -1, 1, 1)).sum((1, 2, 3))
    bias = bias if each.bias is None else bias + each.bias
    pads = each.needed(tuple(pixels.meta["val"].shape[2:]))
    x, padding = pixels, [0, 0]
    if any(map(any, pads)):
        border = (_in_frame_order(head, nearest.reshape(1, -1)) - zero).float()
        (top, bottom), (left, right) = pads
        if border.any():
            x = _bordered(module, node, pixels, border, pads)
        elif all(low == high for low, high in each.pads):
            padding = [low for low, _ in each.pads]
        else:
            x = add_call(module, node, _aten.constant_pad_nd.default, pixels, [left, right, top, bottom], origin=pixels)
    constants = [
        add_constant(module, node, f"{node.name}_{name}_of_bytes", value.float())
        for name, value in (("weight", weight), ("bias", bias))
    ]
    new = add_call(
        module, node, _aten.conv2d.default, x, *constants, list(each.stride), padding, list(each.dilation), origin=node
    )
    node.replace_all_uses_with(new)
    module.graph.erase_node(node)


def _bordered(module: GraphModule, before: Node, x: Node, border: torch.Tensor, pads: tuple[_Pad, _Pad]) -> Node:
    """Join a picture with rows and columns of one value for each channel."""
    for axis, counts in zip((2, 3), pads, strict=True):
        shape = list(x.meta["val"].shape)
        sides = []
        for count in counts:
            shape[axis] = count
            values = border.reshape(1, -1, 1, 1).expand(shape).contiguous()
            sides.append([add_constant(module, before, "frame_border", values, x)] if count else [])
        if any(counts):
            x = add_call(module, before, _aten.cat.default, [*sides[0], x, *sides[1]], axis, origin=x)
    return x


def _in_one_call(module: GraphModule, frame: Node, head: Head) -> bool:
    """Replace the operators behind a frame by one 1x1 convolution, if they do not treat all channels alike. Leave
    them as they are if they do, if they pad, or if their result is no image with the channels on axis 1. Always
    return False, because no operator is folded into a convolution of the model."""
    if head.axis != 1 or len(head.axes) != 4 or head.is_padded:
        return False
    straight = torch.equal(head.order, torch.arange(len(head.order)))
    if straight and len(head.factor.unique()) == 1 and len(head.offset.unique()) == 1:
        return False
    pixels = _pixels(module, frame, head)
    weight = _in_frame_order(head, torch.diag(head.factor).reshape(*[len(head.factor)] * 2, 1, 1))
    constants = [
        add_constant(module, head.node, f"frame_{name}", value.float(), frame)
        for name, value in (("weight", weight), ("bias", head.offset))
    ]
    new = add_call(module, head.node, _aten.conv2d.default, pixels, *constants, origin=frame)
    head.node.replace_all_uses_with(new)
    return False


NHWC_TO_NCHW, NCHW_TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """The conversion of a camera's frame to a model's input.

    ``input`` is an example of the model's input. Its value is ``factor * byte + offset``. ``factor`` and ``offset``
    are float64 with a number for each channel, in the model's order of channels. ``is_last`` is True where the
    model's input has its channels innermost. ``pixels`` are the height and the width of the frame.
    """

    input: torch.Tensor
    format: FrameFormat
    factor: torch.Tensor
    offset: torch.Tensor
    is_last: bool
    pixels: tuple[int, int]

    @classmethod
    def of(cls, wanted: torch.Tensor, options: InputOptions) -> Frames | None:
        """Return the conversion of a frame to the model's input ``wanted`` (an example). Return None unless
        ``wanted`` is a float tensor of rank 4 with 1, 3 or 4 channels. Raises InvalidOptionError if the options do
        not fit it."""
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
        """Return the part of a frame that is resized to the model's picture: the largest centred rectangle with the
        picture's aspect ratio. The result is (first row, end row) and (first column, end column), without the ends."""
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
        """Return the uint8 frames for which the model's input is nearest to ``value``. Axes before the last three
        stay as they are.

        Pictures are resized to the size of the frames where it differs; the result is then approximate.
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
    """A float model that takes a frame in place of its picture. ``inner`` is the model, and ``call`` has its example
    inputs. ``place`` is the index of the picture among the flattened inputs (the leaves of their pytree).

    Raises InvalidOptionError unless exactly one input is a picture (a float tensor of rank 4 with 1, 3 or 4
    channels), and where the options do not fit it.
    """

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
    """Return ``model`` as a model that takes frames, and the FrameModel in it, which is the part that is quantized.
    The model keeps its metadata, and its later stage if it has one (``Staged``). ``call`` has the example inputs.

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
    """Return the request with a model that takes frames in place of pictures. In its calibration samples, pictures as
    the original model takes them are replaced by frames. If the model takes frames already, the request is returned
    as it is.

    Raises InvalidOptionError as ``FrameModel`` does.
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
    """Return the ATen graph of a ``FrameModel``. The steps from the frame to the first convolutions are folded into
    these where that is possible (``fold``). Zeros that pad the picture then become the bytes whose values are nearest
    to 0.

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
