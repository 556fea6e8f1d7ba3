# SPDX-License-Identifier: BSD-3-Clause
"""Return a readable listing of a program, and the modelled cycles of its kernel calls without a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from openneutron.isa.kernels.row import Row
from openneutron.isa.microcode import Microcode, Program, Record, base_text, decode
from openneutron.isa.rows import NO_SOURCE


def listing(microcode: Microcode, on_cpu: Callable[[Row], bool] = lambda row: False) -> str:
    """Return the bindings, buffers, operators and code of a program as text, one record in each line.

    ``on_cpu`` returns whether the host core makes the calls of a kernel; such operators are marked.
    """
    far = f"far {microcode.far_size} B, " if microcode.far_size else ""
    lines = [
        f"; scratch {microcode.scratch_size} B, prefetch {microcode.prefetch_size} B, {far}{microcode.cycles} cycles"
    ]
    if microcode.states:
        lines.append(f"; state {microcode.state_size} B, kept between runs")
    for kind, bindings in (("input", microcode.inputs), ("output", microcode.outputs)):
        for index, binding in enumerate(bindings):
            lines.append(f"{kind} {index}: {_place(binding)} {binding['size']} B")
    for index, state in enumerate(microcode.states):
        lines.append(f"state {index}: STATE+0x{state['offset']:x} {state['size']} B, at first {_first_value(state)}")
    for index, buffer in enumerate(microcode.buffers):
        lines.append(f"buffer b{index}: {_buffer(buffer)}")
    for index, operator in enumerate(microcode.operators):
        name = microcode.names[index] if index < len(microcode.names) else ""
        place = " (on the CPU)" if on_cpu(operator.row) else ""
        lines.append(f"operator {index} {name}{place}: {_operator(operator)}")
    indent = ""
    words_left = 0
    for instruction in microcode.code:
        lines.append(f"{indent}  {instruction}")
        if indent:
            words_left -= 1 + len(instruction.values)
            indent = "  " if words_left > 0 else ""
        if instruction.row.name == "LOOP":
            indent, words_left = "  ", instruction["body_words"]
    return "\n".join(lines) + "\n"


def _place(item: Record) -> str:
    return f"{base_text(item['base'])}+0x{item['offset']:x}"


def _first_value(state: Record) -> str:
    return f"0x{state['fill']:02x}" if state["source"] == NO_SOURCE else f"WEIGHTS+0x{state['source']:x}"


def _buffer(item: Record) -> str:
    extents = "x".join(str(item[axis]) for axis in ("batches", "rows", "cols", "channels"))
    pitches = ",".join(str(item[f"{axis}_pitch"]) for axis in ("batch", "row", "col", "channel"))
    text = f"{_place(item)} {extents} pitch {pitches}"
    if item["ring"] != item["rows"]:
        text += f" ring {item['ring']}"
    if (item["col0"], item["cols_held"]) != (0, item["cols"]):
        text += f" cols {item['col0']}+{item['cols_held']}"
    if (item["channel0"], item["channels_held"]) != (0, item["channels"]):
        text += f" channels {item['channel0']}+{item['channels_held']}"
    return text


def _operator(item: Record) -> str:
    parts = [item.row.name]
    values = dict(zip((column.name for column in item.row.fields), item.values, strict=True))
    for column in item.row.fields:
        value = values[column.name]
        if column.name.endswith("_offset"):
            continue
        if column.refers == "buffer":
            parts.append(f"{column.name}=b{value}")
        elif column.name.endswith("_base"):
            stem = column.name.removesuffix("_base")
            parts.append(f"{stem}={base_text(value)}+0x{values[f'{stem}_offset']:x}")
        else:
            parts.append(f"{column.name}={value}")
    return " ".join(parts)


@dataclass(frozen=True, slots=True)
class KernelCost:
    """The modelled cost of one operator of a program.

    ``calls`` is the number of kernel calls in a run: 1, or one for each stripe or window of the operator's output.
    ``cycles`` is the sum over these calls. ``name`` is empty if the program has no names.
    """

    name: str
    kernel: str
    calls: int
    cycles: int


def profile(program: Program) -> tuple[KernelCost, ...]:
    """Return the cost of each operator, in program order. Copies of constants do not count.

    Raises InvalidProgramError if the program is damaged.
    """
    microcode = decode(program)
    calls, cycles = _counted(microcode)
    names = microcode.names or ("",) * len(microcode.operators)
    return tuple(
        KernelCost(names[index], operator.row.name, calls[index], cycles[index])
        for index, operator in enumerate(microcode.operators)
    )


def _counted(microcode: Microcode) -> tuple[Counter[int], Counter[int]]:
    calls, cycles = Counter[int](), Counter[int]()
    times = 1
    words_left = 0
    for instruction in microcode.code:
        if instruction.row.name == "LOOP":
            times, words_left = instruction["count"], instruction["body_words"]
            continue
        if instruction.row.name in ("CALL", "ROWS", "WINDOW"):
            calls[instruction["operator"]] += times
            cycles[instruction["operator"]] += times * instruction["cycles"]
        words_left -= 1 + len(instruction.values)
        if words_left <= 0:
            times = 1
    return calls, cycles
