# SPDX-License-Identifier: BSD-3-Clause
"""Restate calls with other rows and columns, so that cascades include them or more multipliers work. No byte changes.

Cascades go through tensors by rows, and a sequence (a convolution in one dimension, a list of tokens) has a single row: [1, 1, width,
channels]. In memory that is [1, width, 1, channels], byte for byte. So a call all of whose tensors have one row can be stated with rows
for columns; its result and its cost stay the same.

A linear layer reads all tokens of a tensor as columns of one row, [1, 1, tokens, channels]. The attention after it has
batches and rows, [windows, tokens of a window, heads, channels]. In memory both are the same bytes. If the layer is
stated with the batches and rows of its neighbours, cascades can include both, and batches can be computed one after the
other.

A first layer of 3 channels uses 3 of a pipeline's 8 multipliers. The input columns that one row of its kernel covers are
adjacent in memory, so a view with overlapping columns can state them as channels. At the edges, where a window reaches
beyond the input, separate calls compute the output.

PyTorch's images have a plane for each channel. Networks with attention begin with a convolution whose stride is its
kernel size, so that it reads each element once. A copy before it makes the channels adjacent, and a cascade has to hold
all rows of a patch for this copy. But the elements of a row of a plane are adjacent, too. So for one column of patches,
these elements become the channels of a convolution, and the planes become its columns. Example: an image of 3 planes of
64 x 64 in patches of 16 x 16. Column c of the patches is a convolution of an input of 64 rows, 3 columns (the planes)
and 16 channels (elements 16 c to 16 c + 15 of a row) with a kernel of 16 x 3. The products are the same, and so are the
bytes. A cascade can write the rows of these convolutions over rows of the planes that it has read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.rewrite.call_list import CallList, Cause, Edit
from openneutron.compiler.select.calls import Constant, KernelCall, Storages, View, exchanged
from openneutron.compiler.select.needs import Span, columns_of, only_input, reshaped, view_of
from openneutron.isa.kernels.row import Function, Packing, SameElement, SameRow, Window
from openneutron.targets import Target


def by_rows(edit: Edit) -> None:
    """Restate every sequence by rows."""
    edit.restate([turned(call) if is_sequence(call) else call for call in edit.given.calls])


def is_sequence(call: KernelCall) -> bool:
    """Return whether all tensors of the call have a single row, one of them has several columns, and the kernel's
    rows and columns may be exchanged."""
    views = call.views.values()
    long = any(view.extents[2] > 1 for view in views)
    return long and call.traits.exchanged is not None and all(view.extents[1] == 1 for view in views)


def apart(given: CallList) -> bool:
    """Return whether each tensor is a sequence for all calls that access it, or for none of them. If so, restating
    every sequence by rows removes no call from a cascade."""
    seen: dict[str, bool] = {}
    for call in given.calls:
        sequence = is_sequence(call)
        for view in call.views.values():
            storage = given.storages[view.tensor]
            if storage.constant is None and seen.setdefault(storage.name, sequence) != sequence:
                return False
    return True


def turned(call: KernelCall) -> KernelCall:
    """Return the call with its rows and columns exchanged."""
    params = dict(call.params)
    for one, other in call.traits.exchanged or ():
        params[one], params[other] = params[other], params[one]
    constants = {key: exchanged(call.packing(key), constant) for key, constant in call.constants.items()}
    views = {}
    for name, view in call.views.items():
        (batches, rows, cols, channels), (batch, row, col, channel) = view.extents, view.pitches
        views[name] = replace(view, extents=(batches, cols, rows, channels), pitches=(batch, col, row, channel))
    return replace(call, views=views, params=params, constants=constants)


Rows = tuple[int, int]
"""The number of batches of a tensor, and the number of rows in each batch."""


def with_rows_of_neighbours(edit: Edit) -> None:
    """Restate each pointwise call with the batches and rows with which another call accesses its output or one of its
    inputs."""
    calls, storages = edit.given.calls, edit.storages
    made = list(calls)
    known: dict[str, Rows] = {}
    free = [place for place, call in enumerate(calls) if _by_position(call)]
    for place in sorted(set(range(len(calls))) - set(free)):
        _note(known, calls[place], storages)
    while True:
        left = []
        for place in free:
            stated = _stated(made[place], storages, known)
            if stated is None:
                left.append(place)
            else:
                made[place] = stated
                _note(known, stated, storages)
        if len(left) == len(free):
            break
        free = left
    edit.restate(made)


def goes_by_position(call: KernelCall) -> bool:
    """Return whether each position of the output depends only on the same position of each input, and the call
    has no scratch."""
    return _by_position(call) and not any(map(call.is_scratch, call.views))


def _by_position(call: KernelCall) -> bool:
    """Return whether each position of the output depends only on the same position of each input and of scratch.

    Only kernels whose rows and columns may be exchanged count. An operand of such a kernel that needs only the same
    row needs only the same column too.
    """
    positions = {math.prod(view.extents[:3]) for view in call.views.values()}
    return (
        call.traits.exchanged is not None
        and len(positions) == 1
        and all(
            isinstance(operand.access, SameElement | SameRow)
            or (isinstance(operand.access, Window) and _sees_one_position(call, operand.access))
            for operand in call.traits.operands
        )
    )


def _sees_one_position(call: KernelCall, window: Window) -> bool:
    ones = {call.params[name] for name in (*window.kernel, *window.stride)}
    return ones == {1} and not any(call.params[name] for name in window.pad)


def _note(known: dict[str, Rows], call: KernelCall, storages: Storages) -> None:
    """Record the batches and rows of each storage that the call accesses row by row, unless those of another call are
    recorded."""
    for name, view in call.views.items():
        storage = storages[view.tensor]
        rows = _rows_of(view, storage.size_bytes)
        if (
            rows is not None
            and storage.constant is None
            and name in ("output", *(each.name for each in call.traits.operands))
        ):
            known.setdefault(storage.name, rows)


def _rows_of(view: View, size_bytes: int) -> Rows | None:
    """Return the batches and rows with which a view accesses its tensor row by row. Return None if the view has one
    row, or skips rows."""
    batches, rows = view.extents[:2]
    part = size_bytes // batches
    fits = batches == 1 or view.pitches[0] == part
    whole = (
        size_bytes % batches == 0 and view.pitches[1] * rows == part and view.offset + view.reach(2) <= view.pitches[1]
    )
    return (batches, rows) if rows > 1 and fits and whole else None


def _stated(call: KernelCall, storages: Storages, known: dict[str, Rows]) -> KernelCall | None:
    """Return the call restated with the batches and rows with which other calls access one of its tensors. ``known``
    has these numbers by storage. Of the tensors whose numbers fit the call, the largest decides, and among equally
    large ones the output comes first. Return None if no tensor fits.

    A cascade gains most by the rows of the largest tensor, such as the one between the layers of a feed-forward
    block.
    """
    count = math.prod(call.views["output"].extents[:3])
    names = ["output", *(operand.name for operand in call.traits.operands)]
    names.sort(key=lambda name: -storages[call.views[name].tensor].size_bytes)
    for name in names:
        batches, rows = known.get(storages.of[call.views[name].tensor], (1, 1))
        if rows == 1 or count % (batches * rows):
            continue
        stated = _at_places(call, (batches, rows, count // (batches * rows)))
        if stated is not None:
            return stated
    return None


def _at_places(call: KernelCall, places: tuple[int, int, int]) -> KernelCall | None:
    """Return the call with these numbers of batches, rows and columns. Return None if one of its views can't be
    restated with them."""
    views: dict[str, View] = {}
    for field, view in call.views.items():
        pitches = reshaped(tuple(zip(view.extents[:3], view.pitches[:3], strict=True)), places)
        if pitches is None:
            return None
        batch, row, col = pitches
        extents = (*places, view.extents[3])
        views[field] = view_of(
            view.tensor, extents, (batch, row, col, view.pitches[3]), view.offset, view.element_bytes
        )
    return replace(call, views=views)


def in_one_batch(edit: Edit) -> None:
    """Restate each pointwise call of several batches as one batch with the rows of all of them, so that cascades
    can include it."""
    made: list[KernelCall] = []
    for call in edit.given.calls:
        batches, rows, cols, _ = call.views["output"].extents
        stated = _at_places(call, (1, batches * rows, cols)) if batches > 1 and _by_position(call) else None
        made.append(stated or call)
    edit.restate(made)


MOST_COLUMNS = 16
"""The largest number of columns of patches: each column is one more call for each row of patches."""


def patches_of_planes(edit: Edit) -> None:
    """Let each convolution in patches (whose stride is its kernel size) read the planes of its image directly. The
    copy that makes the channels adjacent is then removed. The convolution becomes one call for each column of its
    output."""
    for place, call in enumerate(edit.given.calls):
        reader = edit.only_reader(place) if call.traits.function is Function.IDENTITY else None
        if reader is None or not _is_image(edit, call):
            continue
        at, name = reader
        window = _window(edit[at], name)
        if window is not None and edit[at].views[name].place == call.views["output"].place:
            edit.replace({place: None, at: _columns(edit[at], window, call.views["input"])})
        else:
            edit.skip(Cause.LAYOUT, call, edit[at])


def _is_image(edit: Edit, copy: KernelCall) -> bool:
    """Return whether the call copies a single image of planes to adjacent channels."""
    source, result = copy.views["input"], copy.views["output"]
    planar = source.pitches[2] == source.element_bytes == 1 and source.pitches[3] > source.pitches[1]
    return planar and source.extents[0] == 1 and edit.is_flat(result)


def _window(call: KernelCall, name: str) -> Window | None:
    """Return the window of a convolution that reads each element of its input once and has at most MOST_COLUMNS output
    columns; None for other convolutions."""
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
    """Return one call for each column of the output of a convolution in patches."""
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


def merge_columns(edit: Edit, target: Target) -> None:
    """Split each convolution into pieces with merged columns, if the pieces take fewer cycles.

    This is for first layers. With 3 channels, 3 of a pipeline's 8 multipliers work. But the columns that a row of the
    kernel covers are side by side in memory. So a kernel of 3 columns and 3 channels is also a kernel of 1 column and 9
    channels, on a view whose columns overlap: it takes 2 steps of 8 for each row instead of 3. At the edges, where a
    window reaches beyond the input, a separate call computes the convolution without the change. No bit changes, since
    sums of products have no order.
    """
    for place, call in enumerate(edit.given.calls):
        pieces = _pieces(call) if _is_mergeable(call, target) else []
        if pieces and _is_faster(pieces, call, target):
            edit.replace({place: pieces})
        elif pieces:
            edit.skip(Cause.NOT_FASTER, call)


def merge_without_edges(edit: Edit, target: Target, sequences: bool) -> None:
    """Merge the columns of each convolution whose windows all lie inside the input, if that takes fewer cycles.

    Such a convolution stays one call, so that cascades can include it. With ``sequences``, also merge convolutions
    over a single row, for which a cascade then needs the whole input.
    """
    for place, call in enumerate(edit.given.calls):
        suits = _is_mergeable(call, target) and (sequences or call.views[only_input(call)].extents[1] > 1)
        pieces = _pieces(call) if suits else []
        if len(pieces) == 1 and _is_faster(pieces, call, target):
            edit.replace({place: replace(pieces[0], name=call.name)})
        elif pieces:
            edit.skip(Cause.NOT_FASTER if len(pieces) == 1 else Cause.LAYOUT, call)


def _is_faster(pieces: Sequence[KernelCall], call: KernelCall, target: Target) -> bool:
    return sum(call_cost(piece, target).cycles for piece in pieces) < call_cost(call, target).cycles


def has_window(call: KernelCall) -> bool:
    """Return whether the columns of the call's input can be stated as channels (``merge_columns``)."""
    return _summed_window(call) is not None


def _summed_window(call: KernelCall) -> Window | None:
    """Return the window of the call's input if the columns of that input can be stated as channels; otherwise None."""
    window = call.traits.access(only_input(call))
    return window if isinstance(window, Window) and window.summed else None


def _is_mergeable(call: KernelCall, target: Target) -> bool:
    window, p = _summed_window(call), call.params
    if window is None:
        return False
    channels, width, view = p[window.summed], p[window.kernel[1]], call.views[only_input(call)]
    dense = view.extents[3] == channels and view.has_dense_channels and view.pitches[2] == channels * view.element_bytes
    undilated = window.dilation is None or p[window.dilation[1]] == 1
    return dense and undilated and -(-channels * width // target.macs) < width * -(-channels // target.macs)


def _pieces(call: KernelCall) -> list[KernelCall]:
    """Divide a convolution by output columns: left edge (windows that begin in the padding), middle (windows inside
    the input), right edge (windows that end beyond the input). An empty edge gets no call.

    The middle's kernel columns are merged into its channels (``merge_columns``). Return an empty list if the middle
    is empty, or if the last window covers only padding.
    """
    window, p, source = _summed_window(call), call.params, call.views[only_input(call)]
    assert window is not None
    stride, before, width = p[window.stride[1]], p[window.pad[1]], p[window.kernel[1]]
    cols, outputs = source.extents[2], call.views["output"].extents[2]
    # A negative padding crops columns of the input, as in a cropped transposed convolution.
    first = max(0, -(-before // stride))
    end = min(outputs, (cols - width + before) // stride + 1)
    if first >= end or (end < outputs and (outputs - 1) * stride - before >= cols):
        return []
    pieces = []
    if first > 0:
        pieces.append(_piece(call, "left", (0, first), source, {}))
    start = first * stride - before
    span = width * p[window.summed]
    view = columns_of(source, (start, cols - width + 1))
    view = replace(view, extents=(*view.extents[:3], span))
    merged = {window.pad[1]: 0, window.kernel[1]: 1, window.summed: span}
    middle = _piece(call, "middle", (first, end), view, merged)
    pieces.append(replace(middle, constants={k: _merged(call.packing(k), each) for k, each in call.constants.items()}))
    if end < outputs:
        start = end * stride - before
        pieces.append(_piece(call, "right", (end, outputs), columns_of(source, (start, cols)), {window.pad[1]: 0}))
    return pieces


def _piece(call: KernelCall, side: str, span: Span, source: View, params: dict[str, int]) -> KernelCall:
    views = {only_input(call): source, "output": columns_of(call.views["output"], span)}
    return replace(call, name=f"{call.name}/{side}", views=views, params={**call.params, **params})


def _merged(packing: Packing, constant: Constant) -> Constant:
    """Return weights [output, height, width, input] with their columns merged into the inputs, as [output, height, 1,
    width * input]. Other constants are returned unchanged."""
    if not isinstance(constant, np.ndarray) or packing is not Packing.WEIGHT_BLOCKS:
        return constant
    outputs, height, _, _ = constant.shape
    return constant.reshape(outputs, height, 1, -1)
