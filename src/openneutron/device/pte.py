# SPDX-License-Identifier: BSD-3-Clause
"""The delegate payloads inside a ``.pte`` file, found without ExecuTorch.

A ``.pte`` is a flatbuffer (ExecuTorch's schema/program.fbs). Payloads are inside the flatbuffer, or in segments after
it. The extended header at byte 8 has the flatbuffer's end and the start of the segments. This module reads only the
parts that lead to the payloads.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from openneutron.errors import InvalidProgramError
from openneutron.isa.payload import Payload, parse

FILE_IDENTIFIER = b"ET12"
EXTENDED_HEADER = b"eh00"
BACKEND_ID = "NeutronBackend"

# Fields of program.fbs by their position in their tables.
PROGRAM_EXECUTION_PLAN = 1
PROGRAM_DELEGATE_DATA = 3
PROGRAM_SEGMENTS = 4
PLAN_NAME = 0
PLAN_DELEGATES = 7
DELEGATE_ID = 0
DELEGATE_PROCESSED = 1
REFERENCE_LOCATION = 0
REFERENCE_INDEX = 1
SEGMENT_OFFSET = 0
SEGMENT_SIZE = 1
INLINE_DATA = 0


@dataclass(frozen=True, slots=True)
class Delegate:
    """A delegate of a method: the backend's id, and the bytes it was given."""

    method: str
    backend: str
    payload: bytes = field(repr=False)


def delegates(data: bytes, name: str = "model.pte") -> list[Delegate]:
    """Return all delegates of the file, method by method. Raises InvalidProgramError for a damaged or other file."""
    return [delegate for method in methods(data, name) for delegate in method.delegates]


def payloads(data: bytes, name: str = "model.pte") -> list[tuple[str, Payload]]:
    """Return the verified payloads of the NeutronBackend delegates, each with a title; empty without such delegates.

    Raises InvalidProgramError where the file or one of its payloads is damaged.
    """
    found = []
    for index, delegate in enumerate(delegates(data, name)):
        if delegate.backend == BACKEND_ID:
            title = f"{delegate.method}, delegate {index}"
            try:
                found.append((title, parse(delegate.payload)))
            except InvalidProgramError as error:
                raise InvalidProgramError(f"'{name}' ({title}): {error}") from error
    return found


def own_payloads(data: bytes, name: str) -> list[tuple[str, Payload]]:
    """Return the payloads of a file as ``payloads`` does. Raises InvalidProgramError also where the file has no
    NeutronBackend delegate."""
    found = payloads(data, name)
    if not found:
        others = ", ".join(sorted({delegate.backend for delegate in delegates(data, name)})) or "none"
        raise InvalidProgramError(f"'{name}' has no {BACKEND_ID} delegate in it; its delegates: {others}.")
    return found


# -- methods: values, kernel calls, delegate calls, inputs and outputs ---------------------------------------------------

PLAN_VALUES = 2
PLAN_INPUTS = 3
PLAN_OUTPUTS = 4
PLAN_CHAINS = 5
PLAN_OPERATORS = 6
CHAIN_INSTRUCTIONS = 2
UNION_TYPE = 0
UNION_VALUE = 1
KERNEL_CALL, DELEGATE_CALL = 1, 2
"""Members of the union InstructionArguments. The members after them are moves, jumps and frees."""
INT, BOOL, DOUBLE, TENSOR, STRING = 2, 3, 4, 5, 6
"""The members of the union KernelTypes that this module reads."""
CALL_INDEX = 0
CALL_ARGUMENTS = 1
TENSOR_TYPE = 0
TENSOR_SIZES = 2
TENSOR_DIM_ORDER = 3
TENSOR_SHAPE_DYNAMISM = 8

SCALAR_TYPES = {0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 6: "float32", 7: "float64", 11: "bool"}
"""The types of scalar_type.fbs that inputs and outputs of our delegates can have. Other types are shown as their
number."""


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A tensor of a method. ``order`` has the tensor's axes in memory order, the innermost last. ``free`` is True where
    ``shape`` is an upper bound. For inputs and outputs of a delegate, the payload has the memory order too
    (``payload.Format``)."""

    dtype: str
    shape: tuple[int, ...]
    order: tuple[int, ...] = field(default=(), compare=False)
    free: bool = field(default=False, compare=False)


Value = TensorValue | int | float | str | None


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A call of an operator on the CPU, such as ``aten::add.out``. ``arguments`` are indices of the method's values."""

    operator: str
    arguments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """A call of a delegate. ``delegate`` is an index of the method's delegates. ``arguments`` are indices of the
    method's values, inputs first."""

    delegate: int
    arguments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Jump:
    """Any other instruction of ExecuTorch: a move, a conditional jump, a free."""


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the program. A value that is neither a tensor, a number nor a text is None."""

    name: str
    values: tuple[Value, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    instructions: tuple[KernelCall | DelegateCall | Jump, ...]
    delegates: tuple[Delegate, ...]

    def tensor(self, index: int) -> TensorValue:
        """Return the tensor of this index; raises IndexError where the value is not a tensor."""
        value = self.values[index] if 0 <= index < len(self.values) else None
        if not isinstance(value, TensorValue):
            raise IndexError(index)
        return value


def methods(data: bytes, name: str = "model.pte") -> list[Method]:
    """Return all methods of the file. Raises InvalidProgramError for a damaged or other file."""
    if data[4:8] != FILE_IDENTIFIER:
        raise InvalidProgramError(
            f"'{name}' is no ExecuTorch program: bytes 4 to 7 are {data[4:8]!r}; a .pte file has {FILE_IDENTIFIER!r} there."
        )
    segment_base = 0
    if data[8:12] == EXTENDED_HEADER and len(data) >= 32:
        length, program_size, segment_base = struct.unpack_from("<IQQ", data, 12)
        segments_size = struct.unpack_from("<Q", data, 32)[0] if length > 24 and len(data) >= 40 else 0
        stated = max(program_size, segment_base + segments_size)
        if len(data) < stated:
            raise InvalidProgramError(
                f"'{name}': it is {len(data)} bytes; its header says {stated}. The file is truncated."
            )
    try:
        program = Table.root(data)
        return [_method(program, plan, segment_base) for plan in program.tables(PROGRAM_EXECUTION_PLAN)]
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidProgramError(
            f"'{name}' is damaged: its flatbuffer can't be read. Compile the model again."
        ) from error


FORWARD = "forward"
"""The method that runs the model."""


def forward(data: bytes, name: str) -> Method:
    """Return the method that runs the model. Raises InvalidProgramError where the file has none, or is damaged."""
    found = methods(data, name)
    for method in found:
        if method.name == FORWARD:
            return method
    others = ", ".join(sorted(method.name for method in found)) or "none"
    raise InvalidProgramError(f"'{name}' has no method '{FORWARD}'; its methods: {others}.")


PREPROCESSING = "preprocessing"
"""The method that returns the preprocessing of the calibration data as text."""


METADATA = "metadata"
"""The method that returns what the model's own file states about it, such as the names of classes, as JSON."""


def stated(found: list[Method], name: str) -> str:
    """Return the text of the method ``name``, PREPROCESSING or METADATA; empty where a file has no such method."""
    for method in found:
        if method.name == name and len(method.outputs) == 1 and not method.inputs:
            value = method.values[method.outputs[0]]
            return value if isinstance(value, str) else ""
    return ""


def numbers(found: list[Method]) -> dict[str, float]:
    """Return the numbers that methods without arguments return, such as ``input0_scale``, by the name of the method."""
    return {
        method.name: value
        for method in found
        if len(method.outputs) == 1 and not method.inputs
        if isinstance(value := method.values[method.outputs[0]], int | float)
    }


def _method(program: Table, plan: Table, segment_base: int) -> Method:
    name = plan.content(PLAN_NAME).decode()
    operators = [
        ".".join(part for part in (table.content(0).decode(), table.content(1).decode()) if part)
        for table in plan.tables(PLAN_OPERATORS)
    ]
    method = Method(
        name=name,
        values=tuple(_value(table) for table in plan.tables(PLAN_VALUES)),
        inputs=plan.numbers(PLAN_INPUTS, "<i"),
        outputs=plan.numbers(PLAN_OUTPUTS, "<i"),
        instructions=tuple(
            _instruction(table, operators)
            for chain in plan.tables(PLAN_CHAINS)
            for table in chain.tables(CHAIN_INSTRUCTIONS)
        ),
        delegates=tuple(
            Delegate(name, table.content(DELEGATE_ID).decode(), _delegate_payload(program, table, segment_base))
            for table in plan.tables(PLAN_DELEGATES)
        ),
    )
    _check_indices(method)
    return method


def _check_indices(method: Method) -> None:
    """Raise IndexError where the method names a value or a delegate that it does not have."""
    calls = [item for item in method.instructions if not isinstance(item, Jump)]
    named = [*method.inputs, *method.outputs, *(index for call in calls for index in call.arguments)]
    for index in named:
        if not 0 <= index < len(method.values):
            raise IndexError(index)
    for call in calls:
        if isinstance(call, DelegateCall) and not 0 <= call.delegate < len(method.delegates):
            raise IndexError(call.delegate)


def _delegate_payload(program: Table, delegate: Table, segment_base: int) -> bytes:
    reference = delegate.table(DELEGATE_PROCESSED)
    index = reference.number(REFERENCE_INDEX, "<I")
    if reference.number(REFERENCE_LOCATION, "<b") == 0:
        return program.tables(PROGRAM_DELEGATE_DATA)[index].content(INLINE_DATA)
    segment = program.tables(PROGRAM_SEGMENTS)[index]
    return program.slice(segment_base + segment.number(SEGMENT_OFFSET, "<Q"), segment.number(SEGMENT_SIZE, "<Q"))


def _value(table: Table) -> Value:
    kind = table.number(UNION_TYPE, "<B")
    if kind == INT:
        return table.table(UNION_VALUE).number(0, "<q")
    if kind == BOOL:
        return table.table(UNION_VALUE).number(0, "<B")
    if kind == DOUBLE:
        return table.table(UNION_VALUE).real(0)
    if kind == STRING:
        return table.table(UNION_VALUE).content(0).decode()
    if kind != TENSOR:
        return None
    tensor = table.table(UNION_VALUE)
    number = tensor.number(TENSOR_TYPE, "<b")
    return TensorValue(
        dtype=SCALAR_TYPES.get(number, f"type {number}"),
        shape=tensor.numbers(TENSOR_SIZES, "<i"),
        order=tensor.numbers(TENSOR_DIM_ORDER, "<B"),
        free=tensor.number(TENSOR_SHAPE_DYNAMISM, "<b") != 0,
    )


def _instruction(table: Table, operators: list[str]) -> KernelCall | DelegateCall | Jump:
    kind = table.number(UNION_TYPE, "<B")
    if kind not in (KERNEL_CALL, DELEGATE_CALL):
        return Jump()
    call = table.table(UNION_VALUE)
    index, arguments = call.number(CALL_INDEX, "<i"), call.numbers(CALL_ARGUMENTS, "<i")
    if kind == KERNEL_CALL:
        return KernelCall(operators[index], arguments)
    return DelegateCall(index, arguments)


@dataclass(frozen=True, slots=True)
class Table:
    """A flatbuffer table at position ``at``. Reading past the buffer raises struct.error or IndexError, and no other
    exception."""

    data: bytes = field(repr=False)
    at: int

    @classmethod
    def root(cls, data: bytes) -> Table:
        return cls(data, struct.unpack_from("<I", data, 0)[0])

    def _field(self, index: int) -> int | None:
        """Return the position of a field's value; None where the table does not have the field."""
        vtable = self.at - self._read("<i", self.at)
        if 4 + 2 * index >= self._read("<H", vtable):
            return None
        offset = self._read("<H", vtable + 4 + 2 * index)
        return self.at + offset if offset else None

    def _read(self, kind: str, at: int) -> int:
        if at < 0:
            raise IndexError(at)
        return int(struct.unpack_from(kind, self.data, at)[0])

    def _target(self, at: int) -> int:
        return at + self._read("<I", at)

    def number(self, index: int, kind: str) -> int:
        place = self._field(index)
        return 0 if place is None else self._read(kind, place)

    def table(self, index: int) -> Table:
        place = self._field(index)
        if place is None:
            raise IndexError(index)
        return Table(self.data, self._target(place))

    def _vector(self, index: int) -> tuple[int, int]:
        """Return the position of a vector's first element, and the number of elements; two zeros where the field is
        absent."""
        place = self._field(index)
        if place is None:
            return 0, 0
        start = self._target(place)
        return start + 4, self._read("<I", start)

    def tables(self, index: int) -> list[Table]:
        start, count = self._vector(index)
        if start + 4 * count > len(self.data):
            raise IndexError(count)
        return [Table(self.data, self._target(start + 4 * i)) for i in range(count)]

    def content(self, index: int) -> bytes:
        """Return the bytes of a string or byte vector; no bytes where the field is absent."""
        return self.slice(*self._vector(index))

    def slice(self, start: int, size: int) -> bytes:
        if start + size > len(self.data):
            raise IndexError(start + size)
        return self.data[start : start + size]

    def numbers(self, index: int, kind: str) -> tuple[int, ...]:
        """Return a vector of numbers; an empty tuple where the field is absent."""
        start, count = self._vector(index)
        data = self.slice(start, count * struct.calcsize(kind))
        return tuple(int(value) for (value,) in struct.iter_unpack(kind, data))

    def real(self, index: int) -> float:
        """Return a double; 0 where the field is absent."""
        place = self._field(index)
        return 0.0 if place is None else float(struct.unpack_from("<d", self.data, place)[0])
