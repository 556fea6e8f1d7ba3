# SPDX-License-Identifier: BSD-3-Clause
"""The calls of a compiled file, in order: delegate calls of the NPU and operators on the CPU, with the values between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from openneutron import litert
from openneutron.compiler.legalize.partition import operator_title
from openneutron.device import pte
from openneutron.isa import Program
from openneutron.isa.payload import parse
from openneutron.litert.neutron_graph import find
from openneutron.litert.read import FILE_IDENTIFIER as TFLITE


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a compiled file. Values are named by texts that are unique in the file.

    ``program`` is that of a delegate call of the NPU, whose inputs and outputs ``reads`` and ``writes`` are, in its order.
    """

    operator: str
    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    program: Program | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Flow:
    """The calls of a file and its inputs and outputs."""

    calls: tuple[Call, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def programs(self) -> list[Program]:
        """Return the programs of the NPU, in order."""
        return [call.program for call in self.calls if call.program is not None]


def flow_of(data: bytes, name: str) -> Flow:
    """Return the calls of a compiled ``.pte`` or ``.tflite``. Raises InvalidProgramError or InvalidModelError for a damaged
    file."""
    return _of_tflite(data) if data[4:8] == TFLITE else _of_pte(data, name)


def _of_tflite(data: bytes) -> Flow:
    loaded = litert.read(data)
    graph = loaded.graph
    programs = {found.operator: found for found in find(loaded.model)}
    calls = []
    for place, node in enumerate(graph.nodes):
        found = programs.get(place)
        if found is not None:
            reads = tuple(item for item in node.inputs[: len(found.inputs)] if item is not None)
            calls.append(Call(found.name, found.name, reads, node.outputs[: len(found.outputs)], found.program))
        else:
            reads = tuple(item for item in node.inputs if item is not None and not graph[item].is_constant)
            calls.append(Call(operator_title(node), node.name, reads, node.outputs))
    return Flow(tuple(calls), graph.inputs, graph.outputs)


def _of_pte(data: bytes, name: str) -> Flow:
    calls: list[Call] = []
    inputs: list[str] = []
    outputs: list[str] = []
    for method in pte.methods(data, name):
        if not method.instructions:  # it returns a constant, such as a scale or the preprocessing
            continue
        calls += _calls(method)
        inputs += (_value(method, index) for index in method.inputs)
        outputs += (_value(method, index) for index in method.outputs)
    return Flow(tuple(calls), tuple(inputs), tuple(outputs))


def _value(method: pte.Method, index: int) -> str:
    return f"{method.name}:{index}"


def _calls(method: pte.Method) -> Iterator[Call]:
    written = set(method.inputs)
    for instruction in method.instructions:
        if isinstance(instruction, pte.KernelCall):
            results = _results(method, instruction.arguments, written)
            reads = [index for index in instruction.arguments if index not in results and index in written]
            packet = instruction.operator.partition(".")[0].replace("::", ".")
            call = Call(packet, packet, _names(method, reads), _names(method, results))
        elif isinstance(instruction, pte.DelegateCall):
            call, results = _delegate_call(method, instruction)
        else:
            continue
        written.update(results)
        yield call


def _delegate_call(method: pte.Method, instruction: pte.DelegateCall) -> tuple[Call, tuple[int, ...]]:
    delegate, arguments = method.delegates[instruction.delegate], instruction.arguments
    if delegate.backend != pte.BACKEND_ID:
        call = Call(delegate.backend, delegate.backend, _names(method, arguments), ())
        return call, arguments
    payload = parse(delegate.payload)
    given, results = arguments[: payload.arguments], arguments[payload.arguments :]
    reads = _names(method, [given[place] for place in payload.input_map])
    writes = _names(method, [results[place] for place in payload.output_map])
    name = f"delegate {instruction.delegate}"
    return Call(delegate.backend, name, reads, writes, payload.program), results


def _names(method: pte.Method, indices: list[int] | tuple[int, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_value(method, index) for index in indices))


def _results(method: pte.Method, arguments: tuple[int, ...], written: set[int]) -> tuple[int, ...]:
    """Return the values that a kernel call writes: its last argument, and tensors before it that nothing has written.

    The emitter appends the result of an operator to its arguments. An operator with one result has the result as ``out`` too,
    just before; one with several has a list there, which is no tensor.
    """
    if not arguments:
        return ()
    last = arguments[-1]
    if arguments[-2:] == (last, last):
        return (last,)
    results = [last]
    for index in reversed(arguments[:-1]):
        if index in written or not isinstance(method.values[index], pte.TensorValue):
            break
        results.append(index)
    return tuple(results)
