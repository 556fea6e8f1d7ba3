# SPDX-License-Identifier: BSD-3-Clause
"""The methods of a ``.pte`` file, read without ExecuTorch: values, kernel calls, delegate calls, inputs and outputs.

Fields are those of ExecuTorch's schema/program.fbs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from openneutron.errors import InvalidProgramError
from openneutron.pte.flatbuffer import Table
from openneutron.pte.program import PLAN_NAME, PROGRAM_EXECUTION_PLAN, Delegate, delegates

# Fields of program.fbs by their position in their tables.
PLAN_VALUES = 2
PLAN_INPUTS = 3
PLAN_OUTPUTS = 4
PLAN_CHAINS = 5
PLAN_OPERATORS = 6
CHAIN_INSTRUCTIONS = 2
UNION_TYPE = 0
UNION_VALUE = 1
KERNEL_CALL, DELEGATE_CALL = 1, 2
"""Members of the union InstructionArguments; those behind them are moves, jumps and frees."""
INT, BOOL, DOUBLE, TENSOR = 2, 3, 4, 5
"""Members of the union KernelTypes that are read."""
CALL_INDEX = 0
CALL_ARGUMENTS = 1
TENSOR_TYPE = 0
TENSOR_SIZES = 2

SCALAR_TYPES = {0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 6: "float32", 7: "float64", 11: "bool"}
"""Of scalar_type.fbs, those that a border of ours can have; others keep their number."""


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A tensor. In which order it lies in memory is the delegate's matter (``payload.Format``)."""

    dtype: str
    shape: tuple[int, ...]


Value = TensorValue | int | float | None


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A call of an operator on the CPU, such as ``aten::add.out``; arguments are values' indices."""

    operator: str
    arguments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """A call of one of the method's delegates; arguments are values' indices, inputs first."""

    delegate: int
    arguments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Jump:
    """Whatever else ExecuTorch can do: a move, a conditional jump, a free."""


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the program. Values that are neither tensors nor numbers are None."""

    name: str
    values: tuple[Value, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    instructions: tuple[KernelCall | DelegateCall | Jump, ...]
    delegates: tuple[Delegate, ...]

    def tensor(self, index: int) -> TensorValue:
        """Return the tensor of this index; raises IndexError where it is none."""
        value = self.values[index] if 0 <= index < len(self.values) else None
        if not isinstance(value, TensorValue):
            raise IndexError(index)
        return value


def methods(data: bytes, name: str = "model.pte") -> list[Method]:
    """Return all methods of the file; raises InvalidProgramError where it is none or is damaged."""
    found = delegates(data, name)
    try:
        return list(_methods(Table.root(data), found))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidProgramError(
            f"'{name}' is damaged: its flatbuffer can't be read. Compile the model again."
        ) from error


def _methods(program: Table, found: list[Delegate]) -> Iterator[Method]:
    for plan in program.tables(PROGRAM_EXECUTION_PLAN):
        name = plan.content(PLAN_NAME).decode()
        operators = [
            ".".join(part for part in (table.content(0).decode(), table.content(1).decode()) if part)
            for table in plan.tables(PLAN_OPERATORS)
        ]
        yield Method(
            name=name,
            values=tuple(_value(table) for table in plan.tables(PLAN_VALUES)),
            inputs=plan.numbers(PLAN_INPUTS, "<i"),
            outputs=plan.numbers(PLAN_OUTPUTS, "<i"),
            instructions=tuple(
                _instruction(table, operators)
                for chain in plan.tables(PLAN_CHAINS)
                for table in chain.tables(CHAIN_INSTRUCTIONS)
            ),
            delegates=tuple(delegate for delegate in found if delegate.method == name),
        )


def _value(table: Table) -> Value:
    kind = table.number(UNION_TYPE, "<B")
    if kind == INT:
        return table.table(UNION_VALUE).number(0, "<q")
    if kind == BOOL:
        return table.table(UNION_VALUE).number(0, "<B")
    if kind == DOUBLE:
        return table.table(UNION_VALUE).real(0)
    if kind != TENSOR:
        return None
    tensor = table.table(UNION_VALUE)
    number = tensor.number(TENSOR_TYPE, "<b")
    return TensorValue(
        dtype=SCALAR_TYPES.get(number, f"type {number}"),
        shape=tensor.numbers(TENSOR_SIZES, "<i"),
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
