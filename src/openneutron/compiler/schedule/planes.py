# SPDX-License-Identifier: BSD-3-Clause
"""Compute the patches of an image from its planes, without the copy that makes channels adjacent.

PyTorch's images have a plane for each channel. Networks with attention begin with a convolution whose stride is its kernel: it reads each
element once. In front of it a copy makes the channels adjacent, for which a cascade holds all rows of a patch. But some elements of a row of
a plane are adjacent, too. So for one column of patches, these elements become the channels of a convolution, and the planes become its
columns. Example: an image of 3 planes of 64 x 64 in patches of 16 x 16. Column c of the patches is a convolution of an input of 64 rows, 3 columns
(the planes) and 16 channels (elements 16 c to 16 c + 15 of a row) with a kernel of 16 x 3. The products are the same, and so are the bytes.

The rows of a cascade of these convolutions can be written over the planes' rows before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from openneutron.compiler.schedule.needs import columns_of, only_input
from openneutron.compiler.select.calls import KernelCall, Storages, View
from openneutron.compiler.select.uses import Uses
from openneutron.isa.kernels.row import Function, Packing, Window

MOST_COLUMNS = 16
"""The most columns of patches: each is a call for each row of patches."""


def patches_of_planes(calls: Sequence[KernelCall], storages: Storages) -> tuple[KernelCall, ...]:
    """Return the calls with every convolution in patches that reads a copied image as calls that read the image's planes."""
    uses = Uses.of(storages, calls)
    gone: set[int] = set()
    there: dict[int, list[KernelCall]] = {}
    for place, call in enumerate(calls):
        reader = uses.only_reader(place) if call.traits.function is Function.IDENTITY else None
        if reader is None or not _is_image(uses, call):
            continue
        at, name = reader
        window = _window(uses[at], name)
        if window is not None and uses[at].views[name].place == call.views["output"].place:
            gone.add(place)
            there[at] = _columns(uses[at], window, call.views["input"])
    return tuple(made for place, call in enumerate(calls) if place not in gone for made in there.get(place, [call]))


def _is_image(uses: Uses, copy: KernelCall) -> bool:
    """Return whether the call copies an image of planes to adjacent channels."""
    source, result = copy.views["input"], copy.views["output"]
    planar = source.pitches[2] == source.element_bytes == 1 and source.pitches[3] > source.pitches[1]
    return planar and source.extents[0] == 1 and uses.is_flat(result)


def _window(call: KernelCall, name: str) -> Window | None:
    """Return the window of a convolution that reads each element of its input once, in few columns; otherwise None."""
    window, output = call.traits.access(name), call.views["output"]
    if name != only_input(call) or not isinstance(window, Window) or not window.summed:
        return None
    p, (_, rows, cols, channels) = call.params, call.views[name].extents
    dilated = window.dilation is not None and any(p[each] != 1 for each in window.dilation)
    once = all(p[taps] == p[step] for taps, step in zip(window.kernel, window.stride, strict=True))
    whole = (output.extents[1] * p[window.kernel[0]], output.extents[2] * p[window.kernel[1]]) == (rows, cols)
    padded = any(p[each] for each in window.pad)
    fits = once and whole and not padded and not dilated and p[window.summed] == channels
    return window if fits and output.extents[2] <= MOST_COLUMNS else None


def _columns(call: KernelCall, window: Window, image: View) -> list[KernelCall]:
    """Return a call for each column of the output."""
    name, (_, rows, _, planes) = only_input(call), image.extents
    batch, row, col, plane = image.pitches
    width = call.params[window.kernel[1]]
    params = {**call.params, window.kernel[1]: planes, window.stride[1]: planes, window.summed: width}
    constants = {
        key: np.swapaxes(constant, 2, 3)
        if call.packing(key) is Packing.WEIGHT_BLOCKS and isinstance(constant, np.ndarray)
        else constant
        for key, constant in call.constants.items()
    }
    made = []
    for place in range(call.views["output"].extents[2]):
        source = View(image.tensor, (1, rows, planes, width), (batch, row, plane, col), image.offset + place * width)
        views = {name: source, "output": columns_of(call.views["output"], (place, place + 1))}
        made.append(replace(call, name=f"{call.name}/{place}", views=views, params=params, constants=constants))
    return made
