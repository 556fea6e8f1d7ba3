# SPDX-License-Identifier: BSD-3-Clause
"""Fold the steps between a frame of bytes and a model's first convolutions into these convolutions.

A normalization is an affine function of each channel, ``y = factor * byte + offset``. A convolution of y is one of the bytes with the
weights times the factor, and with the offset times the weights in its bias. Another order of the channels is another order of the weights. Zeros around y are the
byte ``-offset / factor`` around the frame. A convolution adds zeros itself where this byte is 0; otherwise the frame is joined with
rows and columns of the nearest byte, which is the one rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from openneutron.pytorch.graph.program import WHOLE_NUMBERS, arguments_of
from openneutron.pytorch.graph.rewriting import add_call, add_constant, constant_of, number_of, only_user

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
    """What the operators between a frame and ``node`` compute.

    ``axes`` are the axes of the frame in the order of the node, and ``channel`` is the frame's axis of the channels. Channel c is
    ``factor[c] * byte + offset[c]`` of the frame's channel ``order[c]``, with the zeros ``pads`` around it, by axes of the node.
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
        """Return the head behind a sum, difference, product or quotient with one constant for each channel."""
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
        """Return the convolution that a node is; None for another node, and for a convolution that can't read bytes."""
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
    """Fold the steps behind a frame into the convolutions that read their result. Return whether all of them are folded.

    ``channel`` is the frame's axis of the channels. Steps that can't be folded become one convolution of 1x1 elements, which is one call
    on the NPU.
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
    """Return values of the model's channels, along axis 1, for the channels of the frame. Channels that several of the model's read
    have the sum."""
    made = torch.zeros(
        values.shape[0], int(head.node.meta["val"].shape[head.axis]), *values.shape[2:], dtype=values.dtype
    )
    return made.index_add(1, head.order, values)


def _fold_into(
    module: GraphModule, each: Convolution, head: Head, pixels: Node, nearest: torch.Tensor, zero: int
) -> None:
    """Let a convolution read the frame's bytes less ``zero``. ``nearest`` are the bytes around the frame."""
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
    """Write the steps behind a frame as one convolution of 1x1 elements where they differ among channels. Return False."""
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
