# SPDX-License-Identifier: BSD-3-Clause
"""The check of programs without data: nothing said of right ones, and each kind of mistake found in wrong ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from openneutron import targets
from openneutron.compiler import Compiled, CompileOptions, compile_graph
from openneutron.compiler.driver import checked
from openneutron.compiler.emit.accesses import RULES, Memory, Shape, is_element_by_element, read_window, whole_window
from openneutron.compiler.emit.audit import audit
from openneutron.compiler.schedule.schedule import Loop, Rows
from openneutron.compiler.select.calls import KernelCall, View, dense_pitches
from openneutron.errors import CompilerFaultError
from openneutron.isa import Microcode, Program, Record, base, decode, encode
from openneutron.isa.rows import KERNELS
from scripts.published_networks import cifarnet
from tests.support import oracle, random_graphs
from tests.support.hand_made_cascade import compiled_with, three_operators
from tests.support.token_blocks import Block, feed_forward

STRIPES = (Rows(0, 0, 1), Loop(8, (Rows(0, 1, 3, 2), Rows(1, 0, 1, 1), Rows(2, 0, 1, 1))))
RINGS = {"a": 3, "b": 1}

CHECK = CompileOptions(check=True)
FETCH = CompileOptions(check=True, prefetch_constants=True)


def findings(compiled: Compiled, program: Program | None = None) -> tuple[str, ...]:
    return audit(program or compiled.program, compiled.schedule, compiled.storages).findings


def changed(compiled: Compiled, change: Callable[[Microcode], Microcode]) -> tuple[str, ...]:
    """Return the findings for changed microcode."""
    code = decode(compiled.program)
    return findings(compiled, encode(change(code), compiled.program.weights))


def moved(record: Record, **values: int) -> Record:
    return Record(
        record.row,
        tuple(values.get(column.name, value) for column, value in zip(record.row.fields, record.values, strict=True)),
    )


def with_buffer(code: Microcode, operator: int, name: str, **values: int) -> Microcode:
    index = code.operators[operator][name]
    buffers = list(code.buffers)
    buffers[index] = moved(buffers[index], **values)
    return dataclasses.replace(code, buffers=tuple(buffers))


def kernel_numbers(code: Microcode) -> list[int]:
    """Return the numbers of the operators that are no transfers of tiles."""
    return [number for number, operator in enumerate(code.operators) if operator.row.name != "move_s8"]


def test_every_kernel_has_its_rule() -> None:
    assert RULES.keys() == {row.name for row in KERNELS}
    assert any(is_element_by_element(kernel, "input") for kernel in RULES)


@pytest.mark.parametrize("op", sorted(random_graphs.SAMPLERS))
def test_right_programs_have_no_findings(op: str) -> None:
    for seed, options in enumerate((CHECK, FETCH, CHECK)):
        compiled = compile_graph(random_graphs.single(op, seed), oracle.TARGET, options)
        report = compiled.report
        assert report.used_bytes is not None
        # The last buffer's size is rounded up to 16 bytes, which nobody touches.
        assert 0 <= report.arena_bytes + report.prefetch_bytes - report.used_bytes < 32


def test_a_constant_of_no_bytes_may_be_at_any_address() -> None:
    """An LSTM without a projection, with its constants copied behind the end of the weights."""
    compiled = compile_graph(random_graphs.single("bidirectional_sequence_lstm", 0), targets.get("imx95"), CHECK)
    operator = decode(compiled.program).operators[kernel_numbers(decode(compiled.program))[0]]
    assert operator["projection_offset"] > len(compiled.program.weights)
    assert not compiled.report.faults


def test_stripes_through_rolling_buffers_have_none_either() -> None:
    compiled = compiled_with(three_operators(), STRIPES, RINGS)
    assert findings(compiled) == ()


def test_a_ring_that_is_too_short_is_found() -> None:
    compiled = compiled_with(three_operators(), STRIPES, {"a": 2, "b": 1})
    assert any("hold other rows of the same tensor by now" in text for text in findings(compiled))


def test_a_stripe_left_out_is_found() -> None:
    compiled = compiled_with(three_operators(), STRIPES[1:], RINGS)
    assert any("were never written" in text for text in findings(compiled))


def test_overlapping_buffers_are_found() -> None:
    compiled = compile_graph(three_operators(), oracle.TARGET)
    code = decode(compiled.program)
    # The last kernel's output over its input.
    last = kernel_numbers(code)[-1]
    home = code.buffers[code.operators[last]["input"]]["offset"]
    found = changed(compiled, lambda code: with_buffer(code, last, "output", offset=home))
    assert any("it writes its output over what it has still to read of input" in text for text in found)


@pytest.mark.without_tiles("chained calls have no tiles")
def test_a_block_written_over_rows_that_are_still_read_is_found() -> None:
    block = Block((1, 64, 24))
    graph = block.graph(feed_forward(block, "x", True))
    compiled = compile_graph(graph, oracle.TARGET, CompileOptions(sram_budget=3000, check=True))
    code = decode(compiled.program)
    start, given = (code.buffers[code.operators[0][name]]["offset"] for name in ("output", "input"))
    rows = code.buffers[code.operators[0]["between"]]["ring"]
    assert given - start == rows * 24, "the output is one block in front of the input"
    own, later = (
        changed(compiled, lambda code, far=far: with_buffer(code, 0, "output", offset=start + far))  # type: ignore[misc]
        for far in (16, 2 * rows * 24)
    )
    assert any(f"rows (0, {rows}): it writes its output over what it has still to read of" in text for text in own)
    assert any(f"rows ({rows}, {2 * rows}): input: " in text and "bytes hold 's4' by now" in text for text in later)


def test_a_buffer_outside_its_memory_is_found() -> None:
    compiled = compile_graph(three_operators(), oracle.TARGET)
    first = kernel_numbers(decode(compiled.program))[0]
    found = changed(compiled, lambda code: with_buffer(code, first, "output", offset=1 << 20))
    memory = "PREFETCH" if oracle.TARGET.moves_tiles else "SCRATCH"
    assert any(text.endswith(f"of {memory}, which has {compiled.report.arena_bytes}") for text in found)


@pytest.mark.without_tiles("the buffer is the first in the memory of the NPU")
def test_a_buffer_read_elsewhere_is_found() -> None:
    compiled = compile_graph(three_operators(), oracle.TARGET)
    code = decode(compiled.program)
    last = len(code.operators) - 1
    place = code.buffers[code.operators[last]["input"]]["offset"]
    found = changed(compiled, lambda code: with_buffer(code, last, "input", offset=place - 16))
    assert found


def test_constants_that_have_not_arrived_are_found() -> None:
    compiled = compile_graph(three_operators(), oracle.TARGET, FETCH)

    def without(name: str) -> Callable[[Microcode], Microcode]:
        return lambda code: dataclasses.replace(code, code=tuple(item for item in code.code if item.row.name != name))

    assert any("have not arrived" in text for text in changed(compiled, without("WAIT")))
    assert any("were never fetched" in text for text in changed(compiled, without("FETCH")))


@pytest.mark.without_tiles("the arena has no constants, which are in the memory of the NPU")
def test_constants_between_tensors() -> None:
    """Overlaps of prefetched constants with live tensors in the arena are found in either order."""
    compiled = compile_graph(cifarnet(), oracle.TARGET, dataclasses.replace(FETCH, sram_budget=36 * 1024))
    scratch = base("SCRATCH")
    fetches = [item for item in decode(compiled.program).code if item.row.name == "FETCH" and item["base"] == scratch]
    assert fetches

    def moved_to(destination: int) -> Callable[[Microcode], Microcode]:
        def change(code: Microcode) -> Microcode:
            return dataclasses.replace(
                code,
                code=tuple(
                    moved(item, destination=destination) if item.row.name == "FETCH" and item == fetches[0] else item
                    for item in code.code
                ),
            )

        return change

    assert not changed(compiled, moved_to(fetches[0]["destination"]))
    assert all(changed(compiled, moved_to(place)) for place in range(0, 16 * 1024, 4096))
    late = [item for item in decode(compiled.program).code if item.row.name != "WAIT"]
    assert changed(compiled, lambda code: dataclasses.replace(code, code=tuple(late)))


def test_other_constants_are_found() -> None:
    compiled = compile_graph(three_operators(), oracle.TARGET)

    def swapped(code: Microcode) -> Microcode:
        first, operators = kernel_numbers(code)[0], list(code.operators)
        operators[first] = moved(operators[first], weights_offset=operators[first]["weights_offset"] + 16)
        return dataclasses.replace(code, operators=tuple(operators))

    assert any("weights: other constants lie there" in text for text in changed(compiled, swapped))


def test_an_output_that_is_not_complete_is_found() -> None:
    compiled = compile_graph(three_operators(), oracle.TARGET)
    found = changed(compiled, lambda code: dataclasses.replace(code, code=code.code[:-2] + code.code[-1:]))
    assert len(found) == 1
    assert found[0].startswith("at the end, output")


def test_a_wrong_program_is_never_handed_out() -> None:
    compiled = compiled_with(three_operators(), STRIPES[1:], RINGS)
    with pytest.raises(CompilerFaultError, match=r"the compiled program is wrong in \d+ places; .*were never written"):
        checked(compiled)


@pytest.mark.parametrize("kernel", ["conv_2d_s8", "depthwise_conv_2d_s8", "max_pool_2d_s8"])
def test_what_a_window_reads_is_what_its_taps_touch(kernel: str) -> None:
    """Against the sum of docs/microcode.md, tap by tap."""
    random = np.random.default_rng(0)
    for _ in range(60):
        rows, cols, channels = (int(value) for value in random.integers(3, 12, 3))
        stride, pad, size, dilation = (int(value) for value in random.integers((1, 0, 1, 1), (4, 3, 4, 3)))
        dilation = 1 if kernel == "max_pool_2d_s8" else dilation
        reach = (size - 1) * dilation + 1
        if rows + 2 * pad < reach or cols + 2 * pad < reach:
            continue
        out = [(extent + 2 * pad - reach) // stride + 1 for extent in (rows, cols)]
        view, output = (1, rows, cols, channels), (1, *out, channels)
        grouped = kernel == "depthwise_conv_2d_s8"
        params = {
            "kernel_h": size, "kernel_w": size, "stride_h": stride, "stride_w": stride, "pad_top": pad, "pad_left": pad,
            "dilation_h": dilation, "dilation_w": dilation,
            "group_inputs": 1 if grouped else channels, "group_outputs": 1 if grouped else channels,
        }  # fmt: skip
        views = {"input": View("x", view, dense_pitches(view)), "output": View("y", output, dense_pitches(output))}
        call = KernelCall(kernel, "y", views, params)
        spans = [sorted(random.choice(extent + 1, 2, replace=False).tolist()) for extent in output[1:]]
        row_span, col_span, channel_span = ((int(first), int(end)) for first, end in spans)
        window = ((0, 1), row_span, col_span, channel_span)
        read = read_window(call, "input", window)
        assert read is not None
        for axis, extent in ((1, rows), (2, cols)):
            taps = _taps(range(*window[axis]), stride, pad, size, dilation, extent)
            if taps:
                assert read[axis][0] <= min(taps) and max(taps) < read[axis][1]
                # At an edge there may be gaps between taps that a span can't leave out.
                assert dilation > 1 or stride > size or read[axis] == (min(taps), max(taps) + 1)
        kept = window[3] if kernel != "conv_2d_s8" else (0, channels)
        assert read[3] == kept
        whole = read_window(call, "input", whole_window(call, "output"))
        assert whole is not None and whole[0] == (0, 1)


def _taps(outputs: range, stride: int, pad: int, size: int, dilation: int, extent: int) -> Sequence[int]:
    every = (place * stride - pad + tap * dilation for place in outputs for tap in range(size))
    return [tap for tap in every if 0 <= tap < extent]


@pytest.mark.parametrize("seed", range(8))
def test_the_meanings_of_a_memory_are_those_of_an_array(seed: int) -> None:
    random = np.random.default_rng(seed)
    size = int(random.integers(1, 200))
    memory, plain = Memory("SCRATCH", size), np.zeros(size, np.int32)
    for step in range(90):
        axes = [(int(random.integers(1, 5)), int(random.integers(0, 20))) for _ in range(random.integers(0, 3))]
        shape = Shape.of(axes, int(random.integers(1, 9)))
        if shape.reach > size:
            continue
        # The numbers outgrow first one byte, and then two.
        at, meaning = (
            int(random.integers(0, size - shape.reach + 1)),
            int(random.integers(-3, 4)) * 10_000 ** (step // 30),
        )
        places = shape.of_array(np.arange(size, dtype=np.int32), at)
        assert np.array_equal(memory.meanings(at, shape), plain[places])
        assert memory.at(at) == plain[at]
        for other in {int(plain[at]), meaning, 20_000}:
            assert memory.holds(at, shape, other) == bool((plain[places] == other).all())
        memory.write(at, shape, meaning)
        plain[places] = meaning
    assert np.array_equal(memory.meanings(0, Shape(size)), plain)
