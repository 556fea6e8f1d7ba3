# SPDX-License-Identifier: BSD-3-Clause
"""Represent kernel calls on views of tensors that have no addresses yet, the result of kernel selection.

The constants of a call are logical values, which ``emit/emit.py`` packs to bytes: weights [output, height, width, input],
requantization [bias multiplier shift, output], tables, and positions of a resize (``Maps``). The requantization of int16 activations
is [low high multiplier shift, output], with both words of the bias. The name of a call is the name of a node of the graph, and a suffix
that the compiler adds for a part of the node.

A state is a tensor that keeps its value from one run to the next. Its old and its new value share one memory, the persistent area. So
each call that writes the new value must run after all calls that read the old value. The copies of new values to the persistent area
run last. Kernel selection may remove such a copy and let another call write the state, but only if ``in_order`` still holds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.device import neutron_jobs as jobs
from openneutron.ir import DType, Graph, Node, QuantParams, Tensor
from openneutron.isa import aligned, rows
from openneutron.isa.kernels.row import Everything, Packing, Row, SameElement, Traits
from openneutron.isa.rows import LANES
from openneutron.ops.recurrent import state_operands
from openneutron.ops.shape import VIEWS

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Maps:
    """int32 tables of the output's rows [table, row] and of its columns [table, column]."""

    rows: npt.NDArray[np.int32]
    cols: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class JobWeights:
    """int8 weights [output, input] of a matrix product that the NPU's driver computes as jobs
    (``device/neutron_jobs.py``).

    ``release`` names the release of the driver, which decides the layout of a job. A job takes a limited number of
    inputs, so a product may be the sum of several jobs: ``parts`` has the number of inputs of each job, a multiple of
    16 that ``sizes`` allow, and ``inputs`` is the sum of ``parts``. ``channels`` is the number of output channels
    rounded up to whole blocks of ``block`` channels. The weights are padded with 0 to ``inputs`` and ``channels``.
    ``int4`` has the 4-bit weights that the NPU decodes to ``values``; with None the jobs have int8 weights.
    """

    values: npt.NDArray[np.int8]
    release: str
    sizes: jobs.KnownSizes
    int4: jobs.Int4Weights | None = None
    parts: tuple[int, ...] = field(init=False)
    channels: int = field(init=False)
    block: int = field(init=False)

    def __post_init__(self) -> None:
        outputs, inputs = self.values.shape
        object.__setattr__(self, "parts", jobs.split_k(inputs, self.sizes, self.group))
        form = jobs.release(self.release)
        # Blocks are powers of two.
        block = max(form.block(part, self.group) for part in self.parts)
        object.__setattr__(self, "channels", -(-outputs // block) * block)
        object.__setattr__(self, "block", block)

    @property
    def group(self) -> int | None:
        """Return the number of inputs that share one decode scale of 4-bit weights; None for int8 weights."""
        return None if self.int4 is None else self.int4.group

    @property
    def inputs(self) -> int:
        return sum(self.parts)

    @property
    def nbytes(self) -> int:
        """Return the size in bytes of the packed weights."""
        if self.int4 is None:
            return self.channels * self.inputs
        return sum(jobs.int4_bytes(self.channels, part, self.int4.group) for part in self.parts)


Constant = Array | Maps | JobWeights

CHANNEL_AXES: Mapping[Packing, int] = {
    Packing.WEIGHT_BLOCKS: 0,
    Packing.CHANNEL_BLOCKS: 0,
    Packing.REQUANTIZATION: 1,
    Packing.WIDE_REQUANTIZATION: 1,
}
"""The axis of the output channels in the logical array of a constant, by its packing. A constant with another packing
applies to all channels."""

_WINDOWS = (Packing.WEIGHT_BLOCKS, Packing.CHANNEL_BLOCKS)


def packed_bytes(packing: Packing, constant: Constant) -> int:
    """Return the size in bytes of the packed constant."""
    if isinstance(constant, Maps):
        return 4 * (constant.rows.size + constant.cols.size)
    if packing not in CHANNEL_AXES or isinstance(constant, JobWeights):
        return constant.nbytes
    extents = list(constant.shape)
    lanes = (CHANNEL_AXES[packing], 3) if packing is Packing.WEIGHT_BLOCKS else (CHANNEL_AXES[packing],)
    for axis in lanes:
        extents[axis] += -extents[axis] % LANES
    return int(constant.itemsize * math.prod(extents))


def of_channels(packing: Packing, constant: Constant, first: int, end: int) -> Constant:
    """Return the slice [first, end) of the constant along its output channels. Return the whole constant if its
    packing has no axis of output channels, or if it is not an array (``Maps``, ``JobWeights``)."""
    if not isinstance(constant, np.ndarray) or packing not in CHANNEL_AXES:
        return constant
    return constant[first:end] if CHANNEL_AXES[packing] == 0 else constant[:, first:end]


def exchanged(packing: Packing, constant: Constant) -> Constant:
    """Return the constant with rows and columns exchanged. Constants without rows and columns are returned unchanged."""
    if isinstance(constant, Maps):
        return replace(constant, rows=constant.cols, cols=constant.rows)
    return constant.swapaxes(1, 2) if packing in _WINDOWS and isinstance(constant, np.ndarray) else constant


def are_equal(one: Constant, other: Constant) -> bool:
    """Return whether two constants are of the same kind and have the same shape and values. ``JobWeights`` must also
    have the same form (release, sizes and group)."""
    if isinstance(one, Maps) and isinstance(other, Maps):
        return np.array_equal(one.rows, other.rows) and np.array_equal(one.cols, other.cols)
    if isinstance(one, JobWeights) and isinstance(other, JobWeights):
        same = (one.release, one.sizes, one.group) == (other.release, other.sizes, other.group)
        return same and np.array_equal(one.values, other.values)
    return isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.array_equal(one, other)


def requantization(
    bias: npt.NDArray[np.int32] | None,
    weight_sums: npt.NDArray[np.int64],
    input_zero_point: int,
    multipliers: npt.NDArray[np.int32],
    shifts: npt.NDArray[np.int32],
) -> npt.NDArray[np.int32]:
    """Return the requantization table of a convolution: int32 [3, output channels], with rows of biases, multipliers
    and shifts.

    The bias includes -input_zero_point * weight_sums, modulo 2^32, so that kernels can multiply stored activations
    without subtracting the zero point. ``weight_sums`` is the sum of the weights of each output channel. If there is
    one multiplier and one shift, all channels share them.
    """
    channels = weight_sums.size
    folded = -np.int64(input_zero_point) * weight_sums.astype(np.int64)
    if bias is not None:
        assert bias.shape == (channels,)
        folded = folded + bias
    rows = np.zeros((3, channels), np.uint32)
    rows[0] = (folded & 0xFFFFFFFF).astype(np.uint32)
    rows[1] = multipliers.view(np.uint32)
    rows[2] = shifts.view(np.uint32)
    return rows.view(np.int32)


def wide_requantization(
    bias: npt.NDArray[np.signedinteger] | None,
    channels: int,
    multipliers: npt.NDArray[np.int32],
    shifts: npt.NDArray[np.int32],
) -> npt.NDArray[np.int32]:
    """Return the requantization table for int64 biases: int32 [4, channels], with rows of low words, high words,
    multipliers and shifts.

    If there is one multiplier and one shift, all channels share them.
    """
    rows = np.zeros((4, channels), np.int32)
    if bias is not None:
        assert bias.shape == (channels,)
        rows[:2] = bias.astype("<i8").view("<i4").reshape(channels, 2).T
    rows[2] = multipliers
    rows[3] = shifts
    return rows


_ADDED = re.compile(r"([/:\[].*|_[a-z].*)?", re.DOTALL)
"""The suffixes that the compiler adds to the name of a node. Example: ``conv/middle`` is a part of ``conv``; ``conv_1``
is the name of another node."""


def node_of(name: str, known: Iterable[str]) -> str:
    """Return the name in ``known`` of the node that a kernel call computes, or an empty string if there is none.

    The call's name is the name of its node and a suffix that the compiler adds (``_ADDED``). If several known names
    match, the result is the longest one. Example: the call ``conv_1/middle`` belongs to ``conv_1``, and not to
    ``conv``.
    """
    found = (node for node in known if name.startswith(node) and _ADDED.fullmatch(name, len(node)))
    return max(found, key=len, default="")


def in_words(name: str, node: str, words: str) -> str:
    """Return the name of a kernel call with ``words`` in place of the name of its node.

    For example ``features.3/middle`` for ``conv_1/middle``, and ``cat (net.py:28) transposed`` for ``cat_1_transposed``.
    """
    added = name.removeprefix(node)
    return words + (added.replace("_", " ", 1) if words.endswith(")") and added.startswith("_") else added)


Extents = tuple[int, int, int, int]
"""One number for each of the four axes of a view (batches, rows, columns, channels): extents or pitches."""


@dataclass(frozen=True, slots=True)
class View:
    """A tensor, or a part of it, as four axes that a kernel reads or writes.

    ``pitches`` and ``offset`` are bytes in the tensor's own dense storage. A pitch of 0 repeats the same elements (broadcasting).
    Pitches in another order than those of a dense tensor are a transposed view. No pitch is negative: in-place outputs rely on
    ascending addresses (``select/needs.py``), and the driver refuses others. Operators that go backwards, such as REVERSE_V2, use maps.
    """

    tensor: str
    extents: Extents
    pitches: Extents
    offset: int = 0
    element_bytes: int = 1

    def __post_init__(self) -> None:
        assert min(*self.pitches, self.offset) >= 0 < min(self.extents), self

    @property
    def place(self) -> tuple[Extents, Extents, int, int]:
        """Return all fields of the view except the name of the tensor. Two views with equal results visit the same
        bytes of their tensors."""
        return self.extents, self.pitches, self.offset, self.element_bytes

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all elements. An element that is repeated (pitch 0) counts each time."""
        return math.prod(self.extents) * self.element_bytes

    @property
    def distinct_bytes(self) -> int:
        """Return the bytes of all elements. An element that is repeated (pitch 0) counts once."""
        extents = (extent for extent, pitch in zip(self.extents, self.pitches, strict=True) if pitch)
        return math.prod(extents) * self.element_bytes

    @property
    def is_dense(self) -> bool:
        """Return whether the elements are contiguous, channels innermost."""
        return self.pitches == dense_pitches(self.extents, self.element_bytes)

    @property
    def has_dense_channels(self) -> bool:
        """Return whether the channels of a column are contiguous."""
        return self.pitches[3] == self.element_bytes

    def in_bytes(self) -> View:
        """Return the view of the same bytes in which each byte is a channel. The channels of this view must be contiguous."""
        assert self.has_dense_channels
        batches, rows, cols, channels = self.extents
        size = self.element_bytes
        return replace(
            self, extents=(batches, rows, cols, size * channels), pitches=(*self.pitches[:3], 1), element_bytes=1
        )

    def in_elements(self, element_bytes: int) -> View | None:
        """Return the view of the same bytes as elements of this size.

        Return None if the channels are not contiguous, or if their bytes are not a whole number of elements.
        """
        if self.element_bytes == element_bytes:
            return self
        if not self.has_dense_channels:
            return None
        if self.element_bytes > 1:
            return self.in_bytes().in_elements(element_bytes)
        batches, rows, cols, channels = self.extents
        if channels % element_bytes:
            return None
        extents = batches, rows, cols, channels // element_bytes
        return replace(self, extents=extents, pitches=(*self.pitches[:3], element_bytes), element_bytes=element_bytes)

    def reach(self, first_axis: int) -> int:
        """Return the bytes from the first element to the end of the last one along ``first_axis`` and the axes after it."""
        pairs = zip(self.extents[first_axis:], self.pitches[first_axis:], strict=True)
        return sum((extent - 1) * pitch for extent, pitch in pairs) + self.element_bytes

    def __str__(self) -> str:
        extents = "x".join(str(extent) for extent in self.extents)
        plain = self.is_dense and not self.offset
        size = "" if self.element_bytes == 1 else f" of {self.element_bytes} B"
        return f"%{self.tensor}[{extents}]{size}" + ("" if plain else f"@{self.offset} pitch {self.pitches}")


def four(numbers: Sequence[int]) -> Extents:
    """Return a sequence of four numbers as a tuple, and assert that it has four."""
    batch, row, col, channel = numbers
    return batch, row, col, channel


def dense_pitches(extents: Extents, element_bytes: int = 1) -> Extents:
    """Return the pitches in bytes of a dense tensor, channels innermost."""
    _, height, width, channels = extents
    col = channels * element_bytes
    return height * width * col, width * col, col, element_bytes


def extents_of(shape: tuple[int, ...]) -> Extents:
    """Return a shape of any rank as (batches, rows, columns, channels).

    A shorter shape gets leading dimensions of 1. The leading dimensions of a longer shape are multiplied to batches.
    """
    padded = (1,) * (4 - len(shape)) + tuple(shape)
    return (math.prod(padded[:-3]), padded[-3], padded[-2], padded[-1])


def shape_in_bytes(tensor: Tensor) -> tuple[int, ...]:
    """Return the tensor's shape, with one more axis for the bytes of an element if it has several."""
    size = tensor.dtype.size_bytes
    return tensor.shape if size == 1 else (*tensor.shape, size)


def whole(tensor: Tensor) -> View:
    """Return the view of a whole dense tensor by bytes. An int16 tensor has two channels of bytes for each of its channels."""
    if tensor.dtype is DType.INT16:
        return elements(tensor).in_bytes()
    extents = extents_of(shape_in_bytes(tensor))
    return View(tensor.name, extents, dense_pitches(extents))


def elements(tensor: Tensor) -> View:
    """Return the view of a whole dense tensor by elements."""
    extents, size = extents_of(tensor.shape), tensor.dtype.size_bytes
    return View(tensor.name, extents, dense_pitches(extents, size), element_bytes=size)


def quant_of(tensor: Tensor) -> QuantParams:
    """Return the quantization parameters of a tensor. Assert that it has some."""
    assert tensor.quant is not None, f"{tensor.name} has no quantization parameters"
    return tensor.quant


@dataclass(frozen=True, slots=True, eq=False)
class KernelCall:
    """One call of a kernel, as an operator of the microcode. It has the parameter block of the kernel, with views in
    place of buffer addresses, and with constants that are not packed yet.

    ``views`` has an entry for each buffer field that ``row``, the declaration of the kernel, lists ("input",
    "output", "input_a" …). ``constants`` has an entry X for each pair of fields X_base and X_offset. ``params`` has
    an entry for every other field. ``row_wait_cycles`` are the cycles for which a CPU waits for a slower memory
    region at each output row. ``memo`` caches results of functions of the call that the search calls often. ``row``,
    ``traits`` and ``is_transfer`` are those of the kernel.
    """

    kernel: str
    name: str
    views: Mapping[str, View]
    params: Mapping[str, int] = field(default_factory=dict)
    constants: Mapping[str, Constant] = field(default_factory=dict, repr=False)
    row_wait_cycles: int = 0
    memo: dict[object, Any] = field(init=False, default_factory=dict, repr=False)
    row: Row = field(init=False, repr=False)
    traits: Traits = field(init=False, repr=False)
    is_transfer: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("views", "params", "constants"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        row = rows.KERNEL_BY_NAME[self.kernel]
        object.__setattr__(self, "row", row)
        object.__setattr__(self, "traits", row.traits)
        object.__setattr__(self, "is_transfer", row.is_transfer)

    def __eq__(self, other: object) -> bool:
        """Return whether two calls are equal. Constants are compared by value."""
        if self is other or not isinstance(other, KernelCall):
            return self is other
        return (
            (self.kernel, self.name, self.views) == (other.kernel, other.name, other.views)
            and (self.params, self.row_wait_cycles) == (other.params, other.row_wait_cycles)
            and self.constants.keys() == other.constants.keys()
            and all(are_equal(constant, other.constants[key]) for key, constant in self.constants.items())
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def results(self) -> tuple[str, ...]:
        """Return the names of the buffers that the kernel writes: the output, states and scratch."""
        return self.row.results

    @property
    def parts(self) -> list[KernelCall]:
        """Return the calls of other kernels that together compute the same bytes, in order; empty if the kernel runs no
        other kernels."""
        found = []
        for part in self.traits.parts:
            if part.flag and not self.params[part.flag]:
                continue
            row, n = rows.KERNEL_BY_NAME[part.kernel], len(part.prefix)
            views = {own: self.views[name] for own, name in part.buffers}
            known = {field.name for field in row.fields}
            own = {key[n:]: value for key, value in self.params.items() if key.startswith(part.prefix)}
            params = {key: value for key, value in own.items() if key in known}
            of = {key[n:]: value for key, value in self.constants.items() if key.startswith(part.prefix)}
            constants = {key: value for key, value in of.items() if f"{key}_base" in known}
            found.append(KernelCall(part.kernel, self.name, views, params, constants))
        return found

    def writes(self, name: str) -> bool:
        """Return whether the kernel writes this buffer."""
        return name in self.results

    def reads(self, name: str) -> bool:
        """Return whether the kernel may read the buffer's contents from before the call: true for all but the output and scratch."""
        return name != "output" and not self.is_scratch(name)

    def is_scratch(self, name: str) -> bool:
        """Return whether the buffer is scratch: its contents matter only during the call."""
        return name in self.row.scratch

    @property
    def has_states(self) -> bool:
        """Return whether the kernel writes buffers other than the output that later calls may read."""
        return any(name != "output" and self.reads(name) for name in self.results)

    def packing(self, key: str) -> Packing:
        """Return the packed layout of constant ``key``."""
        return self.row.packing(key)

    def packed_bytes(self) -> Mapping[str, int]:
        """Return the size in bytes of each packed constant, by its key."""
        found: Mapping[str, int] | None = self.memo.get("packed bytes")
        if found is None:
            found = {key: packed_bytes(self.packing(key), constant) for key, constant in self.constants.items()}
            self.memo["packed bytes"] = found
        return found

    def verify(self) -> None:
        """Assert that the call is valid.

        The call must give each field of ``row``, the kernel's declaration, exactly once. Its views must have the
        kernel's element sizes. The lower bound of a fused activation must not exceed the upper one, and both must fit
        the output type.
        """
        row = self.row
        given = [*self.views, *self.params]
        given += [f"{stem}_{part}" for stem in self.constants for part in ("base", "offset")]
        wanted = sorted(column.name for column in row.fields)
        assert sorted(given) == wanted, f"{self.kernel} '{self.name}': {sorted(set(given) ^ set(wanted))}"
        for name, view in self.views.items():
            size = row.element_bytes(name)
            assert view.element_bytes == size, (
                f"{self.kernel} '{self.name}': {name} has elements of {size} B, not {view}"
            )
        least, most = (-(2**15), 2**15 - 1) if row.element_bytes("output") == 2 else (-128, 127)
        low, high = self.params.get("clamp_min", least), self.params.get("clamp_max", most)
        assert least <= low <= high <= most, f"{self.kernel} '{self.name}': bounds {low} and {high}"

    def __str__(self) -> str:
        views = ", ".join(f"{name}={view}" for name, view in self.views.items())
        params = "".join(f" {name}={value}" for name, value in self.params.items())
        constants = "".join(f" {name}=<{size} B>" for name, size in self.packed_bytes().items())
        return f"{self.kernel}({views}){params}{constants} ; {self.name}"


def call_on_whole(
    kernel: str,
    graph: Graph,
    node: Node,
    params: Mapping[str, int] = MappingProxyType({}),
    constants: Mapping[str, Constant] = MappingProxyType({}),
) -> list[KernelCall]:
    """Return a list of one call, which reads the whole first operand and writes the whole result of a node, by bytes."""
    views = {"input": whole(graph.given(node, 0)), "output": whole(graph[node.name])}
    return [KernelCall(kernel, node.name, views, params, constants)]


def copied(name: str, source: View, tensor: str) -> KernelCall:
    """Return the call that copies the bytes of ``source`` to another tensor. The copy has the same pitches, and starts at offset 0."""
    return KernelCall("copy_s8", name, {"input": source, "output": View(tensor, source.extents, source.pitches)})


def copied_whole(source: Storage, target: Storage, pitch: int) -> KernelCall:
    """Return the call that copies a whole storage, in rows of ``pitch`` bytes if its size is a multiple of ``pitch``, else in one row."""
    size = target.size_bytes
    row = pitch if pitch and size % pitch == 0 else size
    return copied(
        f"{target.name}@parts", View(source.name, four((1, size // row, 1, row)), (size, row, row, 1)), target.name
    )


@dataclass(frozen=True, slots=True)
class Storage:
    """A buffer without an address. One or several tensors share a storage, such as a tensor and its reshape. A storage
    is scratch unless a field states otherwise.

    ``input`` and ``output`` are the position among the graph's inputs or outputs, ``constant`` the bytes of a constant,
    and ``state`` the address of a state in the persistent area, in bytes. ``external`` storages are in external memory,
    not in the memory of the NPU.
    """

    name: str
    size_bytes: int
    input: int | None = None
    output: int | None = None
    constant: bytes | None = None
    state: int | None = None
    external: bool = False

    @property
    def is_border(self) -> bool:
        """Return whether the storage is a graph input or output."""
        return self.input is not None or self.output is not None

    @property
    def is_scratch(self) -> bool:
        return self.constant is None and self.state is None and not self.is_border and not self.external

    @property
    def is_given(self) -> bool:
        """Return whether the storage has a value before a run: that of an input or a state."""
        return self.input is not None or self.state is not None

    @property
    def is_kept(self) -> bool:
        """Return whether the storage's value is used after a run: that of an output or a state."""
        return self.output is not None or self.state is not None

    def is_outside(self, io_outside: bool) -> bool:
        """Return whether the storage is outside the arena: a state, an external storage, or with ``io_outside`` an input or output."""
        return self.state is not None or self.external or (io_outside and self.is_border)


@dataclass(frozen=True, slots=True)
class Storages:
    """The storages of a graph, by name. ``of`` maps the name of each tensor to the name of its storage."""

    storages: Mapping[str, Storage]
    of: Mapping[str, str]

    def __getitem__(self, tensor: str) -> Storage:
        return self.storages[self.of[tensor]]

    def with_more(self, more: Iterable[Storage]) -> Storages:
        """Return these storages and ``more``. Each of ``more`` is the storage of a tensor of the same name."""
        made = {storage.name: storage for storage in more}
        return Storages({**self.storages, **made}, {**self.of, **{name: name for name in made}})

    def __str__(self) -> str:
        """Return a line for each tensor that shares the storage of another tensor."""
        return "\n".join(f"%{tensor} is in %{name}" for tensor, name in self.of.items() if tensor != name)


def kernel_of(stem: str, dtype: DType) -> str:
    """Return the name of the kernel for results of this type, such as ``add_s8`` or ``add_s16`` for the stem ``add``."""
    return f"{stem}_s{8 * dtype.size_bytes}"


def written_in_place(call: KernelCall, name: str, of: Mapping[str, str]) -> bool:
    """Return whether the call may write its output over its input ``name``.

    The kernel's traits must allow this for the access pattern of the input. If other views of the call are in the
    same storage, the same holds for them. Each of these views must have the same extents, pitches and offset as the
    output. ``of`` maps the name of each tensor to the name of its storage.
    """
    storage, output = of[call.views[name].tensor], call.views["output"].place
    return all(
        isinstance(access := call.traits.access(field), SameElement | Everything)
        and access.in_place
        and view.place == output
        for field, view in call.views.items()
        if field != "output" and of[view.tensor] == storage
    )


SelectRule = Callable[[Graph, Node], list[KernelCall]]
SELECT_RULES: dict[str, SelectRule] = {}


def selects(*ops: str) -> Callable[[SelectRule], SelectRule]:
    """Return a decorator that registers the rule by which legalized nodes of these operators become kernel calls."""

    def register(rule: SelectRule) -> SelectRule:
        for op in ops:
            assert op not in SELECT_RULES, f"two select rules for {op}"
            SELECT_RULES[op] = rule
        return rule

    return register


def storages_of_states(graph: Graph) -> tuple[Storage, ...]:
    """Return a storage for each state, named like its tensor, with its address in the persistent area."""
    found = []
    at = 0
    for state in graph.states:
        size = graph[state.tensor].size_bytes
        found.append(Storage(state.tensor, size, state=at))
        at += aligned(size)
    return tuple(found)


def kept_in_place(graph: Graph) -> dict[str, str]:
    """Return the outputs that a recurrent layer may write to the memory of a state, as a map from the name of the
    output to the tensor of the state.

    Such an output is the new value of exactly one state, and no graph output. No node reads it, and only the layer
    reads the old value of the state. Nodes that only reshape do not count as readers if they are between the state
    and the layer. The old value must not be the new value of another state.
    """
    if not graph.states:
        return {}
    readers = graph.consumers()
    source_of = {node.outputs[0]: str(node.inputs[0]) for node in graph.nodes if node.op in VIEWS}
    update_of = {state.tensor: state.update for state in graph.states}
    kept = [state.update for state in graph.states]
    found = {}
    for node in graph.nodes:
        for name, result in zip(state_operands(node), node.outputs[1:], strict=False):
            first, last = name, result
            while first in source_of and len(readers[first]) == 1:
                first = source_of[first]
            while last not in kept and last not in graph.outputs and (view := _only_view(readers.get(last, ()))):
                last = view
            alone = len(readers.get(first, ())) == 1 and last not in readers and last not in graph.outputs
            if update_of.get(first) == last and alone and kept.count(last) == 1 and first not in kept:
                found[result] = first
    return found


def _only_view(readers: Sequence[Node]) -> str | None:
    """Return the name of the only reader's result if there is one reader and it is a view, otherwise None."""
    return readers[0].outputs[0] if len(readers) == 1 and readers[0].op in VIEWS else None


def state_bytes(graph: Graph) -> int:
    """Return the size of the persistent area of a graph's states in bytes."""
    return sum(aligned(graph[state.tensor].size_bytes) for state in graph.states)


def updates(graph: Graph, storages: Storages) -> tuple[Storages, list[KernelCall]]:
    """Return the storages and the calls that copy the new values of states to the persistent area (the memory that
    keeps states) at the end of a run. The result has all given storages, and those of the copies.

    If the new value of one state is the old value of another state (a delay line), it is first copied to the arena.
    Otherwise the copy of one state might overwrite the value that the next copy reads.
    """
    of, pieces = dict(storages.of), dict(storages.storages)
    before: list[KernelCall] = []
    copies: list[KernelCall] = []

    def copy(source: View, name: str, storage: Storage) -> KernelCall:
        of[name], pieces[storage.name] = storage.name, storage
        return copied(name, source, name)

    for state in graph.states:
        root = storages[state.update]
        if root.name == state.tensor:
            continue
        source = whole(graph[state.update])
        if root.state is not None:
            name = f"{state.tensor}@then"
            before.append(copy(source, name, Storage(name, root.size_bytes)))
            source = View(name, source.extents, source.pitches)
        copies.append(copy(source, f"{state.tensor}@state", pieces[state.tensor]))
    return Storages(pieces, of), [*before, *copies]


def in_order(storages: Storages, calls: Sequence[KernelCall | None]) -> bool:
    """Return whether every read of a state's old value comes before the call that overwrites the state. The
    overwriting call itself may read the old value if it may write over this input (``written_in_place``)."""
    if all(storage.state is None for storage in storages.storages.values()):
        return True
    written: set[str] = set()
    for call in filter(None, calls):
        for name, view in call.views.items():
            storage = storages.of[view.tensor]
            if name != "output" and storage in written:
                return False
        for name in call.results:
            storage = storages.of[call.views[name].tensor]
            if storages.storages[storage].state is not None:
                written.add(storage)
                if name == "output" and not _reads_in_place(call, storage, storages):
                    return False
    return True


def _reads_in_place(call: KernelCall, storage: str, storages: Storages) -> bool:
    return all(
        written_in_place(call, name, storages.of)
        for name, view in call.views.items()
        if name != "output" and storages.of[view.tensor] == storage
    )
