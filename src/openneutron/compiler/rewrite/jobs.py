# SPDX-License-Identifier: BSD-3-Clause
"""Give matrix products to the driver of an NPU beside the CPU as jobs, where that takes fewer cycles.

* A convolution of one group is a product of a matrix with one row for each output pixel; a fully connected layer is a
  product too. Both become ``conv_2d_job_s8``, a kernel with memory of its own for the operand and the results of the
  job.
* A product of two activations becomes ``batch_matmul_job_s8``, whose right operand is used as weights without packing.
  Packing would take the CPU time in each run, and would pad the operand to whole blocks of mostly 128 channels.
* In a recurrent layer, the products of the inputs do not depend on the state, so that those of many steps are one job.
  The CPU then computes the steps from the accumulators of the job.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.rewrite.call_list import Cause, Edit
from openneutron.compiler.select.calls import JobWeights, KernelCall, View, dense_pitches
from openneutron.device import neutron_jobs as jobs
from openneutron.options import CALLER, ON_NPU
from openneutron.targets import Jobs, Target

JOB = "conv_2d_job_s8"
MATMUL, MATMUL_JOB = "batch_matmul_s8", "batch_matmul_job_s8"
RECURRENT = {
    "recurrent_s8": "recurrent_job_s8",
    "unidirectional_sequence_lstm_s8": "unidirectional_sequence_lstm_job_s8",
}
"""The kernels of recurrent layers whose products of the inputs are jobs, by the kernels without jobs."""

KERNELS = (JOB, MATMUL_JOB, *RECURRENT.values())

_SUFFIX = "@job"

MOST_RESULT_BYTES = 1 << 22
"""The largest number of bytes of results of a call's jobs, unless 16 rows have more. A larger limit hardly reduces the
number of jobs, and the arena grows."""

_LEAST_ROWS = 16

UNSIGNED = 128
"""The difference between the uint8 and the int8 stored value of the same real value."""

RESULT_BYTES = 4
"""The bytes of an accumulator."""

LINE_BYTES = 64
"""The size of a line of the CPU's cache in bytes (Arm's manual of the Cortex-A55). The parts of a call's memory are
aligned to it."""


def is_product(call: KernelCall) -> bool:
    """Return whether the call is an int8 convolution or fully connected layer of one group, an int8 product of two
    activations, or a recurrent layer (``RECURRENT``)."""
    if call.kernel == MATMUL or call.kernel in RECURRENT:
        return True
    return call.kernel in ("conv_2d_s8", "conv_2d_1x1_s8") and (
        call.params["group_inputs"] == call.views["input"].extents[3] and call.params["constant_channel0"] == 0
    )


def by_jobs(edit: Edit) -> None:
    """Replace each product that takes fewer cycles as jobs. ``edit.target`` has the facts about jobs."""
    target = edit.chip
    for place, call in enumerate(edit.given.calls):
        if not is_product(call):
            continue
        form = _matmul_job if call.kernel == MATMUL else _steps_job if call.kernel in RECURRENT else _product_job
        made = form(edit, call, target)
        if made is None:
            edit.skip(Cause.LAYOUT, call)
        elif (cycles := call_cost(made, target).cycles) >= (alone := call_cost(call, target).cycles):
            edit.skip(Cause.NOT_FASTER, replace(call, name=f"{call.name}: {cycles / alone:.3g} times as many"))
        else:
            memory = edit.store(made.views["memory"].tensor, made.views["memory"].extents[3])
            views = {**made.views, "memory": View(memory, *_bytes(made.views["memory"].extents[3]))}
            edit.replace({place: KernelCall(made.kernel, call.name, views, made.params, made.constants)})


def _product_job(edit: Edit, call: KernelCall, target: Target) -> KernelCall | None:
    """Return a convolution as jobs, with the form of weights that takes the fewest cycles; None if its weights have no
    form for jobs."""
    forms = [(weights.nbytes, _job(edit, call, weights)) for weights in _weights(call, target.jobs)]
    forms += [(-1, rescaled) for _, made in forms if (rescaled := _rescaled_by_npu(edit, made)) is not None]
    return min(forms, key=lambda form: (call_cost(form[1], target).cycles, form[0]), default=(0, None))[1]


def _weights(call: KernelCall, facts: Jobs | None) -> list[JobWeights]:
    """Return the weights of a call in each form that a job can take, int8 first.

    If all weights are from -8 to 7, int4 forms are added with decode scales of 1.0, which decode to exactly these
    weights. Otherwise an int4 form is added only if the NPU can decode exactly these weights from groups of 4-bit
    values.
    """
    assert facts is not None
    weights = call.constants["weights"]
    assert isinstance(weights, np.ndarray)
    values, form, sizes = weights.reshape(len(weights), -1), facts.release.value[0], known_sizes(facts)
    found = [JobWeights(values, form, sizes)]
    if values.min() >= -8 and values.max() <= 7:
        found += [JobWeights(values, form, sizes, jobs.Int4Weights.exact(values, group)) for group in jobs.GROUPS]
    else:
        decoded = next((made for group in reversed(jobs.GROUPS) if (made := jobs.int4_of(values, group))), None)
        found += [] if decoded is None else [JobWeights(values, form, sizes, decoded)]
    return [each for each in found if each.channels <= jobs.MOST_CHANNELS]


def _job(edit: Edit, call: KernelCall, packed: JobWeights) -> KernelCall:
    """Return the call computed by jobs that use the weights ``packed``."""
    form = jobs.release(packed.release)
    copied = not form.kind_in_header or not _is_in_place(edit, call, packed)
    pixels = math.prod(call.views["output"].extents[:3])
    rows = max(_LEAST_ROWS, MOST_RESULT_BYTES // (4 * packed.channels * len(packed.parts)))
    rows = min(pixels, rows, jobs.MOST_ROWS)
    operand = whole_lines(rows * packed.inputs) if copied else 0
    size = LINE_BYTES + jobs.HEADER_BYTES + operand + len(packed.parts) * rows * packed.channels * 4
    params = {
        **call.params,
        "copied": int(copied),
        "flipped": 0 if form.kind_in_header else UNSIGNED,
        "job_rows": rows,
        "job_inputs": packed.parts[0],
        "job_channels": packed.channels,
        "job_kind": jobs.kind(True, packed.group is not None or form.int8_packed) if form.kind_in_header else 0,
        "job_bits": 8 if packed.group is None else 4,
        "job_group": packed.group or -1,
        "job_result_bytes": RESULT_BYTES,
    }
    requant = call.constants["requant"]
    assert isinstance(requant, np.ndarray)
    table = job_table(packed, requant[0], form)
    ones = np.ones(0 if packed.group is None else jobs.MACS, np.int8).view(np.int32)
    views = {**call.views, "memory": View(call.name + _SUFFIX, *_bytes(size))}
    return KernelCall(
        JOB, call.name, views, params, {"weights": packed, "requant": requant, "job": np.append(table, ones)}
    )


def _rescaled_by_npu(edit: Edit, call: KernelCall) -> KernelCall | None:
    """Return the call with jobs whose results the NPU rescales to 1 byte. Return None if the options don't ask for
    that, or if the NPU can't rescale the results of these jobs.

    It can't for int4 weights, for several jobs whose results are added, for uint8 operands, for bounds of the output
    tighter than int8's, for scales outside the range of factors (``has_factors``), and for sums that may exceed 32
    bits. The biases include the output's zero point. Word 10 of the header is therefore 0, and it does not matter
    whether the NPU adds this word.
    """
    p, packed, requant, table = call.params, *(call.constants[name] for name in ("weights", "requant", "job"))
    assert isinstance(packed, JobWeights)
    assert isinstance(requant, np.ndarray)
    assert isinstance(table, np.ndarray)
    bounds = np.iinfo(np.int8)
    if edit.rescale != ON_NPU or packed.group is not None or len(packed.parts) > 1 or not p["job_kind"]:
        return None
    if (p["clamp_min"], p["clamp_max"]) != (bounds.min, bounds.max):
        return None
    shifts = requant[2] if not p["single_rounding"] else ((requant[2] & 0xFF) ^ 0x80) - 0x80
    scales = np.ldexp(requant[1].astype(np.float64), shifts - 31)
    if not jobs.has_factors(scales):
        return None
    biases = requant[0] + np.rint(p["output_zero_point"] / scales)
    if (np.abs(biases) + UNSIGNED * np.abs(packed.values.astype(np.int64)).sum(axis=1) >= 2**31).any():
        return None
    channels = len(biases)
    changed = table.reshape(3, -1).copy()
    changed[0, :channels] = biases
    changed[2, :channels] = jobs.nearest_factors(scales).view(np.int32)
    size = call.views["memory"].extents[3] - (RESULT_BYTES - 1) * p["job_rows"] * p["job_channels"]
    views = {**call.views, "memory": View(call.views["memory"].tensor, *_bytes(size))}
    constants = {**call.constants, "job": changed.reshape(-1)}
    return KernelCall(JOB, call.name, views, {**p, "job_result_bytes": 1}, constants)


def job_table(packed: JobWeights, biases: NDArray[np.int32], form: jobs.Release) -> NDArray[np.int32]:
    """Return the table that jobs read for all channels: rows of biases, of zeros and of factors, as int32 words."""
    table = np.zeros((3, packed.channels), np.int32)
    table[0, : len(biases)] = biases
    if not form.kind_in_header:
        # The stored values are taken as uint8, so that each is larger by UNSIGNED.
        sums = packed.values.sum(axis=1, dtype=np.int64)
        table[0, : len(sums)] = (table[0, : len(sums)] - UNSIGNED * sums).astype(np.int32)
    table[2] = jobs.ONE
    return table


def _steps_job(_edit: Edit, call: KernelCall, target: Target) -> KernelCall | None:
    """Return a recurrent layer with the products of its inputs as jobs; None if a job has no form for them."""
    assert target.jobs is not None
    form = jobs.release(target.jobs.release.value[0])
    weights, requant = call.constants["input_weights"], call.constants["input_requant"]
    assert isinstance(weights, np.ndarray)
    assert isinstance(requant, np.ndarray)
    packed = JobWeights(weights.reshape(len(weights), -1), form.name, known_sizes(target.jobs))
    if packed.channels > jobs.MOST_CHANNELS:
        return None
    row_bytes = 4 * packed.channels * len(packed.parts)
    rows = min(call.views["output"].extents[2], max(_LEAST_ROWS, MOST_RESULT_BYTES // row_bytes), jobs.MOST_ROWS)
    size = LINE_BYTES + jobs.HEADER_BYTES + whole_lines(rows * packed.inputs) + rows * row_bytes
    params = {
        **call.params,
        "flipped": 0 if form.kind_in_header else UNSIGNED,
        "job_rows": rows,
        "job_inputs": packed.parts[0],
        "job_channels": packed.channels,
        "job_kind": jobs.kind(True, form.int8_packed) if form.kind_in_header else 0,
    }
    constants = {**call.constants, "input_weights": packed, "job": job_table(packed, requant[0], form)}
    views = {**call.views, "memory": View(call.name + _SUFFIX, *_bytes(size))}
    return KernelCall(RECURRENT[call.kernel], call.name, views, params, constants)


def _matmul_job(edit: Edit, call: KernelCall, target: Target) -> KernelCall | None:
    """Return a product of two activations as jobs; None if a job has no form for it."""
    assert target.jobs is not None
    form = jobs.release(target.jobs.release.value[0])
    (_, rows, _, outputs), depth = call.views["output"].extents, call.params["depth"]
    parts, channels = jobs.split_k(depth, known_sizes(target.jobs)), jobs.padded_k(outputs)
    if channels > jobs.MOST_CHANNELS:
        return None
    a, b = call.views["input_a"], call.views["input_b"]
    whole = parts == (depth,)
    a_copied = not (form.kind_in_header and whole and _lines_join(edit, a, a.pitches[3], a.pitches[1], depth))
    b_copied = not (whole and channels == outputs and _lines_join(edit, b, b.pitches[1], b.pitches[3], depth))
    rows = min(rows, max(_LEAST_ROWS, MOST_RESULT_BYTES // (4 * channels * len(parts))), jobs.MOST_ROWS)
    inputs = sum(parts)
    size = LINE_BYTES + jobs.HEADER_BYTES + whole_lines(4 * channels) + len(parts) * rows * channels * 4
    size += a_copied * whole_lines(rows * inputs) + b_copied * whole_lines(channels * inputs)
    params = {
        **call.params,
        "a_copied": int(a_copied),
        "b_copied": int(b_copied),
        "flipped": 0 if form.kind_in_header else UNSIGNED,
        "job_rows": rows,
        "job_inputs": parts[0],
        "job_channels": channels,
        "job_kind": jobs.kind(True, packed=False) if form.kind_in_header else 0,
    }
    table = np.zeros((2, channels), np.int32)
    table[1] = jobs.ONE
    views = {**call.views, "memory": View(call.name + _SUFFIX, *_bytes(size))}
    return KernelCall(MATMUL_JOB, call.name, views, params, {"job": table})


def whole_lines(size: int) -> int:
    return -(-size // LINE_BYTES) * LINE_BYTES


def _lines_join(edit: Edit, view: View, pitch: int, line_pitch: int, depth: int) -> bool:
    """Return whether the lines of ``depth`` elements of a view follow one another without gaps, in memory that the
    NPU reads. The depth, the offset and the pitch of batches must be multiples of ``jobs.MACS``."""
    batch = view.pitches[0] if view.extents[0] > 1 else 0
    aligned = all(value % jobs.MACS == 0 for value in (depth, view.offset, batch))
    return aligned and pitch == 1 and line_pitch == depth and not _is_outside(edit, view)


def _is_outside(edit: Edit, view: View) -> bool:
    """Return whether the tensor of the view may be in memory that is not the driver's own."""
    storage = edit.storages[view.tensor]
    return storage.constant is not None or storage.state is not None or (storage.is_border and edit.io == CALLER)


def known_sizes(facts: Jobs) -> jobs.KnownSizes:
    """Return the values of K that a chip's file states as computed right, and those that it states as computed wrong."""
    return jobs.KnownSizes(frozenset(map(int, facts.right_k.value)), frozenset(map(int, facts.wrong_k.value)))


def _bytes(size: int) -> tuple[tuple[int, int, int, int], tuple[int, int, int, int]]:
    extents = (1, 1, 1, size)
    return extents, dense_pitches(extents)


def _is_in_place(edit: Edit, call: KernelCall, packed: JobWeights) -> bool:
    """Return whether the job can read the call's input where it is, without a copy. That is so for a 1x1 convolution
    with a stride of 1 and no padding, if its channels need no padding and no division into parts. The input must be
    dense, aligned, and in memory that the NPU reads."""
    p, view = call.params, call.views["input"]
    point = (p["kernel_h"], p["kernel_w"], p["stride_h"], p["stride_w"], p["pad_top"], p["pad_left"]) == (
        1,
        1,
        1,
        1,
        0,
        0,
    )
    return (
        point
        and not _is_outside(edit, view)
        and packed.parts == (view.extents[3],)
        and view.is_dense
        and view.offset % jobs.MACS == 0
        and view.extents[:3] == call.views["output"].extents[:3]
    )
