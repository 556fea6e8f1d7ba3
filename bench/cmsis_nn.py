# SPDX-License-Identifier: BSD-3-Clause
"""Compute a ``.tflite`` with the kernels of Arm's CMSIS-NN on the emulated board, and count the instructions of each call.

CMSIS-NN is no part of this project. Its sources come from the folder of a checkout, and are compiled with the same compiler and
flags as our runtime. The program has one function for each operator, which calls the kernel that tflite-micro would call with
the file's own weights and the parameters that LiteRT derives from the file. No interpreter runs, so the counts are
those of the kernels alone.

``mean`` has no kernel in CMSIS-NN. Its call is the average pool of the same window, which omits the rescaling of ``mean``.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from openneutron.ir import Graph, Node
from openneutron.ops import rescaling
from openneutron.ops.conv import same_padding
from tests.cortex_m33.boards import Board
from tests.cortex_m33.firmware import HERE, Image, execute, image, new_folder, static_library

SCRATCH_BYTES = 1 << 18
"""Memory for the kernels' own buffers, more than any of them asks for. The program ends with an error where one asks for more."""

_FAMILIES = ("Convolution", "FullyConnected", "BasicMath", "Pooling", "Softmax", "Transpose", "NNSupport")
_INTEGER_BITS = 5  # of the differences that softmax exponentiates (LiteRT's softmax.h)
_ADD_SHIFT = 20  # the left shift of LiteRT's int8 ADD (add.cc)


@dataclass(frozen=True, slots=True)
class Counted:
    """One inference: instructions of each operator by the operator's name, the outputs, and the bytes of code and tables."""

    layers: dict[str, int]
    outputs: bytes
    code_bytes: int


def run(folder: Path, graph: Graph, inputs: bytes, level: str, compiler: str, board: Board) -> Counted:
    """Return the counts of one inference. ``folder``: a checkout of CMSIS-NN; ``level``: of optimization."""
    archive = library(folder, (level, *board.flags), compiler)
    written = _written(graph)
    source = new_folder() / "network.c"
    source.write_text(written.text())
    linked = image(archive, (source, HERE / "board.c"), includes=(folder / "Include", HERE), board=board)
    done = execute(linked, {"constants": written.constants, "inputs": inputs}, count=True, seconds=600)
    assert done.exit_code == 0, done.console
    results = done.files["results"]
    count = len(written.layers)
    ticks = struct.unpack_from(f"<{count}I", results)
    layers = dict(zip(written.layers, map(board.instructions, ticks), strict=True))
    return Counted(layers, results[4 * count :], _code_bytes(linked))


@functools.cache
def library(folder: Path, build: tuple[str, ...], compiler: str) -> Path:
    """Return CMSIS-NN's kernels of int8, compiled with the flags of our runtime."""
    sources = [path for family in _FAMILIES for path in sorted(folder.glob(f"Source/{family}Functions/*.c"))]
    integer = [path for path in sources if not any(word in path.stem for word in ("f16", "f32", "flt"))]
    return static_library(tuple(integer), (*build, "-w", f"-I{folder / 'Include'}"), compiler)


def _code_bytes(linked: Image) -> int:
    from tests.cortex_m33 import link_map

    sections = link_map.read(linked.map).sections
    return sum(size for (member, _), size in sections.items() if member.startswith("libneutron.a("))


# ---- the C program -----------------------------------------------------------------------------------------------------

_HEAD = """\
#pragma GCC diagnostic ignored "-Wconversion"
#include "arm_nnfunctions.h"
#include "board.h"

#define LARGE __attribute__((section(".large"), aligned(16)))
enum { GUARD = 64 };
LARGE static uint8_t constants[%(constants)d + 16], arena[%(arena)d], scratch[%(scratch)d + GUARD];
static uint32_t ticks[%(layers)d];
#define CONTEXT {scratch, %(scratch)d}
#define BYTES(offset) ((const int8_t *)(constants + (offset)))
#define WORDS(offset) ((int32_t *)(void *)(constants + (offset)))
#define TENSOR(offset) ((int8_t *)(arena + (offset)))
"""

_MAIN = """
int main(void);
int main(void) {
    static arm_cmsis_nn_status (*const layers[])(void) = {%(names)s};
    const int32_t given = board_open("constants", false), results = board_open("results", true);
    if (!board_read(given, constants, %(constants)d)) return 1;
    const int32_t inputs = board_open("inputs", false);
%(reads)s
%(prepare)s    for (int i = 0; i < GUARD; i++) scratch[%(scratch)d + i] = 0xA5;
    board_timer_start();
    for (int i = 0; i < %(layers)d; i++) {
        const uint32_t start = board_timer_ticks();
        if (layers[i]() != ARM_CMSIS_NN_SUCCESS) return 2;
        ticks[i] = board_timer_ticks() - start;
    }
    for (int i = 0; i < GUARD; i++) {
        if (scratch[%(scratch)d + i] != 0xA5) return 3;
    }
    board_write(results, ticks, sizeof ticks);
%(writes)s
    return 0;
}
"""


@dataclass(slots=True)
class _Program:
    """A program as it is written: constants, the place of each tensor, and a function for each operator."""

    graph: Graph
    constants: bytes = b""
    places: dict[str, int] = field(default_factory=dict)
    arena: int = 0
    layers: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    preparations: list[str] = field(default_factory=list)
    """Statements that run once, before anything is counted: sums of weights, which the kernels for Helium read."""

    def tensor(self, name: str, size_bytes: int | None = None) -> str:
        """Return the expression of a tensor's address, or of other memory of this name. Each has memory of its own."""
        if name not in self.places:
            self.places[name] = self.arena
            self.arena += (self.graph[name].size_bytes if size_bytes is None else size_bytes) + 15 & -16
        return f"TENSOR({self.places[name]})"

    def constant(self, values: npt.NDArray[np.generic], kind: str) -> str:
        """Return the expression of a constant's address. ``kind``: BYTES or WORDS."""
        offset = len(self.constants)
        data = values.tobytes()
        self.constants += data + bytes(-len(data) % 16)
        return f"{kind}({offset})"

    def text(self) -> str:
        facts = {"constants": len(self.constants), "arena": self.arena, "layers": len(self.layers)}
        copies = {
            key: "\n".join(f"    {verb}({file}, {self.tensor(name)}, {self.graph[name].size_bytes});" for name in names)
            for key, verb, file, names in (
                ("reads", "board_read", "inputs", self.graph.inputs),
                ("writes", "board_write", "results", self.graph.outputs),
            )
        }
        names = ", ".join(f"layer_{i}" for i in range(len(self.layers)))
        values = {**facts, **copies, "names": names, "scratch": SCRATCH_BYTES, "prepare": "".join(self.preparations)}
        return _HEAD % values + "".join(self.functions) + _MAIN % values


def _written(graph: Graph) -> _Program:
    program = _Program(graph)
    for node in graph.nodes:
        if node.op == "reshape":  # the same bytes
            assert node.inputs[0] is not None
            program.tensor(node.inputs[0])
            program.places[node.outputs[0]] = program.places[node.inputs[0]]
            continue
        body = _CALLS[node.op](program, node)
        program.functions.append(f"\nstatic arm_cmsis_nn_status layer_{len(program.layers)}(void) {{\n{body}}}\n")
        program.layers.append(node.name)
    return program


def _dims(shape: tuple[int, ...]) -> str:
    return f"{{{', '.join(map(str, shape))}}}"


def _bounds(program: _Program, node: Node) -> str:
    quant = rescaling.result_quant(program.graph, node)
    low, high = rescaling.activation_range(node.attrs.get("activation", "NONE"), quant.scale, quant.zero_point)
    return f"{{{low}, {high}}}"


def _padding(node: Node, extents: tuple[int, ...], kernel: tuple[int, int]) -> str:
    """Return the padding before the first column and row."""
    if node["padding"] != "SAME":
        return "{0, 0}"
    rows, cols = (
        same_padding(extents[axis], kernel[axis], node[f"stride_{name}"], node.attrs.get(f"dilation_{name}", 1))[0]
        for axis, name in enumerate("hw")
    )
    return f"{{{cols}, {rows}}}"


def _ends(program: _Program, node: Node) -> tuple[str, str]:
    """Return the addresses of the first input and of the output."""
    assert node.inputs[0] is not None
    return program.tensor(node.inputs[0]), program.tensor(node.outputs[0])


def _weighted(program: _Program, node: Node) -> tuple[str, str, str, str]:
    """Return the addresses of the weights, the bias or NULL, the multipliers and the shifts."""
    graph = program.graph
    weights, bias = graph.given(node, 1), graph.operand(node, 2)
    assert weights.data is not None
    multipliers, shifts = rescaling.quantize_multipliers(rescaling.of_convolution(0, 1)(graph, node))
    channels = graph[node.outputs[0]].shape[-1]
    words = [np.broadcast_to(values, channels) for values in (multipliers, shifts)]
    has_bias = bias is not None and bias.data is not None
    return (
        program.constant(weights.data, "BYTES"),
        program.constant(bias.data, "WORDS") if has_bias else "NULL",  # type: ignore[union-attr,arg-type]
        *(program.constant(values, "WORDS") for values in words),  # type: ignore[return-value]
    )


def _convolution(program: _Program, node: Node) -> str:
    graph, depthwise = program.graph, node.op == "depthwise_conv_2d"
    source, weights, output = graph.given(node, 0), graph.given(node, 1), graph[node.outputs[0]]
    (x, y), (w, b, multipliers, shifts) = _ends(program, node), _weighted(program, node)
    _, height, width, _ = weights.shape
    offsets = f"{-rescaling.quant_of(graph, node, 0).zero_point}, {rescaling.result_quant(graph, node).zero_point}"
    window = (
        f"{{{node['stride_w']}, {node['stride_h']}}}, {_padding(node, source.shape[1:], (height, width))}, "
        f"{{{node['dilation_w']}, {node['dilation_h']}}}, {_bounds(program, node)}"
    )
    multiplier = f"{node['depth_multiplier']}, " if depthwise else ""
    kind, name = ("dw_conv", "depthwise_conv") if depthwise else ("conv", "convolve")
    return (
        "    const cmsis_nn_context context = CONTEXT;\n"
        f"    const cmsis_nn_{kind}_params params = {{{offsets}, {multiplier}{window}}};\n"
        f"    const cmsis_nn_per_channel_quant_params scales = {{{multipliers}, {shifts}}};\n"
        f"    const cmsis_nn_dims in = {_dims(source.shape)}, filter = {_dims(weights.shape)};\n"
        f"    const cmsis_nn_dims bias = {{1, 1, 1, {output.shape[-1]}}}, out = {_dims(output.shape)};\n"
        f"    return arm_{name}_wrapper_s8(&context, &params, &scales, &in, {x}, &filter, {w}, &bias, {b}, &out, {y});\n"
    )


def _fully_connected(program: _Program, node: Node) -> str:
    graph = program.graph
    (x, y), (w, b, multipliers, shifts) = _ends(program, node), _weighted(program, node)
    outputs, depth = graph.given(node, 1).shape
    rows = graph[node.outputs[0]].elements // outputs
    offsets = f"{-rescaling.quant_of(graph, node, 0).zero_point}, 0, {rescaling.result_quant(graph, node).zero_point}"
    per_channel = int(rescaling.quant_of(graph, node, 1).per_channel)
    sums = program.tensor(f"sums of {node.name}", 4 * outputs)
    zero_point = -rescaling.quant_of(graph, node, 0).zero_point
    program.preparations.append(
        f"    arm_vector_sum_s8((int32_t *)(void *){sums}, {depth}, {outputs}, {w}, {zero_point}, 0, {b});\n"
    )
    return (
        f"    const cmsis_nn_context context = {{{sums}, {4 * outputs}}};\n"
        f"    const cmsis_nn_fc_params params = {{{offsets}, {_bounds(program, node)}}};\n"
        f"    const cmsis_nn_quant_params scales = {{{multipliers}, {shifts}, {per_channel}}};\n"
        f"    const cmsis_nn_dims in = {{{rows}, 1, 1, {depth}}}, filter = {{{depth}, 1, 1, {outputs}}};\n"
        f"    const cmsis_nn_dims bias = {{1, 1, 1, {outputs}}}, out = {{{rows}, 1, 1, {outputs}}};\n"
        f"    return arm_fully_connected_wrapper_s8(&context, &params, &scales, &in, {x}, &filter, {w}, &bias, {b}, &out, {y});\n"
    )


def _average_pool(program: _Program, node: Node) -> str:
    graph, (x, y) = program.graph, _ends(program, node)
    source, output = graph.given(node, 0), graph[node.outputs[0]]
    kernel = (node["kernel_h"], node["kernel_w"])
    strides = f"{{{node['stride_w']}, {node['stride_h']}}}"
    return _pool(
        x,
        y,
        f"{strides}, {_padding(node, source.shape[1:], kernel)}",
        _bounds(program, node),
        source.shape,
        kernel,
        output.shape,
    )


def _mean(program: _Program, node: Node) -> str:
    x, y = _ends(program, node)
    batches, rows, cols, channels = program.graph.given(node, 0).shape
    window = f"{{{cols}, {rows}}}, {{0, 0}}"
    return _pool(
        x, y, window, _bounds(program, node), (batches, rows, cols, channels), (rows, cols), (batches, 1, 1, channels)
    )


def _pool(
    x: str, y: str, window: str, bounds: str, source: tuple[int, ...], kernel: tuple[int, int], output: tuple[int, ...]
) -> str:
    return (
        "    const cmsis_nn_context context = CONTEXT;\n"
        f"    const cmsis_nn_pool_params params = {{{window}, {bounds}}};\n"
        f"    const cmsis_nn_dims in = {_dims(source)}, filter = {{1, {kernel[0]}, {kernel[1]}, 1}}, out = {_dims(output)};\n"
        f"    return arm_avgpool_s8(&context, &params, &in, {x}, &filter, &out, {y});\n"
    )


def _add(program: _Program, node: Node) -> str:
    graph = program.graph
    assert None not in node.inputs
    sources = [program.tensor(name) for name in node.inputs if name is not None]
    quants, result = [rescaling.quant_of(graph, node, i) for i in (0, 1)], rescaling.result_quant(graph, node)
    assert all(graph.given(node, i).shape == graph[node.outputs[0]].shape for i in (0, 1)), "a broadcast"
    largest = 2 * max(quant.scale for quant in quants)
    scales = [rescaling.quantize_multiplier(quant.scale / largest) for quant in quants]
    operands = ", ".join(
        f"{-quant.zero_point}, {multiplier}, {shift}" for quant, (multiplier, shift) in zip(quants, scales, strict=True)
    )
    multiplier, shift = rescaling.quantize_multiplier(largest / ((1 << _ADD_SHIFT) * result.scale))
    y = program.tensor(node.outputs[0])
    return (
        f"    return arm_elementwise_add_s8({', '.join(sources)}, {operands}, {_ADD_SHIFT}, {y}, {result.zero_point}, "
        f"{multiplier}, {shift}, {_bounds(program, node).strip('{}')}, {graph[node.outputs[0]].elements});\n"
    )


def _softmax(program: _Program, node: Node) -> str:
    graph, (x, y) = program.graph, _ends(program, node)
    steepness = min(node["beta"] * rescaling.quant_of(graph, node, 0).scale * 2.0 ** (31 - _INTEGER_BITS), 2.0**31 - 1)
    multiplier, shift = rescaling.quantize_multiplier(steepness)
    radius = int(((1 << _INTEGER_BITS) - 1) * 2.0 ** (31 - _INTEGER_BITS) / 2.0**shift)
    source = graph.given(node, 0)
    row = source.shape[-1]
    return (
        f"    arm_softmax_s8({x}, {source.elements // row}, {row}, {multiplier}, {shift}, {-radius}, {y});\n"
        "    return ARM_CMSIS_NN_SUCCESS;\n"
    )


_CALLS: dict[str, Callable[[_Program, Node], str]] = {
    "conv_2d": _convolution,
    "depthwise_conv_2d": _convolution,
    "fully_connected": _fully_connected,
    "average_pool_2d": _average_pool,
    "mean": _mean,
    "add": _add,
    "softmax": _softmax,
}
