# SPDX-License-Identifier: BSD-3-Clause
"""The oracle of every stage: LiteRT's reference kernels, and the simulated NPU beside them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from openneutron import litert, targets
from openneutron.compiler import Compiled, CompileOptions, compile_graph
from openneutron.compiler.driver import Prepared, compile_prepared, prepared
from openneutron.compiler.search.tuning import DEFAULT, TUNING
from openneutron.device.simulator import Simulator
from openneutron.errors import BudgetError
from openneutron.ir import Graph, Node, Tensor, per_tensor
from openneutron.ir.graph import DType
from openneutron.isa.rows import ALIGNMENT
from openneutron.litert.interpret import beyond_reference
from openneutron.litert.read import unpack
from tests.support import normalized

TARGET = targets.get("imxrt700")


def data_types() -> tuple[DType, ...]:
    """Return the types of activations that programs for the chip take: the NPU or the host core computes on them."""
    return (DType.INT8, DType.INT16) if targets.takes_int16(TARGET, host_calls=True) else (DType.INT8,)


def in_memory(lines: np.ndarray) -> list[np.ndarray]:
    """Return the lines of an operand in parts that the chip's memory holds beside results of their size; in one part where it can."""
    room = int(TARGET.sram.value * 1024) // 2
    parts = 1 if TARGET.moves_tiles else min(len(lines), -(-lines.nbytes // room))
    return np.array_split(lines, parts)


def resolver_of(content: bytes) -> OpResolverType:
    """Return the kernels to compare with: the reference kernels, or LiteRT's optimized ones for operators without."""
    lacking = beyond_reference(unpack(content, "model"))
    return OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if lacking else OpResolverType.BUILTIN_REF


def reference_outputs(model: bytes | Graph, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the results of LiteRT's reference kernels, in the graph's output order; of normalizations those of Python's integers."""
    if isinstance(model, Graph) and any(node.op in normalized.OPERATORS for node in model.nodes):
        return _in_pieces(model, inputs)
    return results_of(interpreter_of(model if isinstance(model, bytes) else litert.write(model)), inputs)


def _in_pieces(graph: Graph, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return a graph's results where LiteRT lacks operators: LiteRT's kernels compute the nodes between those."""
    known = dict(zip(graph.inputs, inputs, strict=True))
    for is_own, nodes in itertools.groupby(graph.nodes, lambda node: node.op in normalized.OPERATORS):
        run = tuple(nodes)
        if is_own:
            for node in run:
                known[node.name] = normalized.results(graph, node, known[str(node.inputs[0])])
            continue
        read = dict.fromkeys(name for node in run for name in node.inputs if name in known)
        written = tuple(dict.fromkeys(name for node in run for name in node.outputs))
        names = {*read, *written, *(name for node in run for name in node.inputs if name is not None)}
        tensors = {name: tensor for name, tensor in graph.tensors.items() if name in names}
        piece = dataclasses.replace(graph, tensors=tensors, nodes=run, inputs=tuple(map(str, read)), outputs=written)
        found = reference_outputs(piece, [known[str(name)] for name in read])
        known |= dict(zip(written, found, strict=True))
    return [known[name] for name in graph.outputs]


def interpreter_of(content: bytes) -> Interpreter:
    """Return an interpreter of the file with LiteRT's reference kernels."""
    # Without preserved tensors LiteRT 2.3.0 lets operators write over an operand that a reshape beside them still shares.
    interpreter = Interpreter(
        model_content=content,
        experimental_op_resolver_type=resolver_of(content),
        experimental_preserve_all_tensors=True,
        num_threads=1,
    )
    interpreter.allocate_tensors()
    return interpreter


def results_of(interpreter: Interpreter, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the results of one more run of an interpreter."""
    for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def simulated_outputs(compiled: Compiled, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the results of the simulated NPU, shaped and typed as the graph's outputs."""
    results = Simulator(compiled.program).run([np.ascontiguousarray(value) for value in inputs])
    return [
        np.frombuffer(result.tobytes(), tensor.dtype.numpy).reshape(tensor.shape)
        for result, tensor in zip(results, compiled.outputs, strict=True)
    ]


def random_inputs(graph: Graph, seed: int | np.random.Generator) -> list[np.ndarray]:
    """Full-range random int8 and int16 inputs, truth values, and indices inside the table of each gather that reads them."""
    generator = np.random.default_rng(seed)
    return [_random_input(graph, name, generator) for name in graph.inputs]


def _random_input(graph: Graph, name: str, generator: np.random.Generator) -> np.ndarray:
    tensor = graph[name]
    if tensor.dtype is DType.INT8:
        return generator.integers(-128, 128, tensor.shape, np.int8)
    if tensor.dtype is DType.INT16:
        return generator.integers(-(2**15), 2**15, tensor.shape, np.int16)
    if tensor.dtype is DType.BOOL:
        return generator.integers(0, 2, tensor.shape).astype(bool)
    same = {name}
    for node in graph.nodes:
        if node.op in ("reshape", "transpose") and node.inputs[0] in same:
            same.add(node.name)
    bounds = []
    for node in graph.nodes:
        if node.op in ("gather", "gather_nd") and node.inputs[1] in same:
            bounds.append(graph[str(node.inputs[0])].shape[node.attrs.get("axis", 0)])
        if node.op == "embedding_lookup" and node.inputs[0] in same:
            bounds.append(graph[str(node.inputs[1])].shape[0])
    return generator.integers(0, min(bounds, default=100), tensor.shape).astype(tensor.dtype.numpy)


def assert_bit_exact(
    graph: Graph,
    seeds: Sequence[int] = (0, 1),
    options: CompileOptions = CompileOptions(),
    given: Prepared | None = None,
) -> Compiled:
    """Compiles the graph, with its check, and compares every output byte with LiteRT's, for one random input per seed.

    ``given``: the prepared graph, for several compiles with one search.
    """
    compiled = compile_prepared(given or prepared(graph), TARGET, dataclasses.replace(options, check=True))
    assert not compiled.report.faults, compiled.report.faults
    model = graph if any(node.op in normalized.OPERATORS for node in graph.nodes) else litert.write(graph)
    for seed in seeds:
        inputs = random_inputs(graph, seed)
        for name, got, want in zip(
            graph.outputs, simulated_outputs(compiled, inputs), reference_outputs(model, inputs), strict=True
        ):
            np.testing.assert_array_equal(got, want, f"{name}, seed {seed}\n{graph}")
    return compiled


def activation(name: str, shape: Sequence[int], scale: float = 0.05, zero_point: int = 0) -> Tensor:
    """An int8 activation."""
    return Tensor(name, tuple(shape), DType.INT8, per_tensor(scale, zero_point))


def wide_activation(name: str, shape: Sequence[int], scale: float = 1e-3) -> Tensor:
    """An int16 activation."""
    return Tensor(name, tuple(shape), DType.INT16, per_tensor(scale, 0))


def graph_of(
    inputs: Sequence[Tensor], nodes: Sequence[Node], others: Sequence[Tensor], outputs: Sequence[str] | None = None
) -> Graph:
    """A graph of these nodes; its outputs are the last node's unless given."""
    tensors: Mapping[str, Tensor] = {tensor.name: tensor for tensor in (*inputs, *others)}
    graph = Graph("main", tensors, tuple(nodes), tuple(t.name for t in inputs), tuple(outputs or nodes[-1].outputs))
    graph.verify()
    return graph


def assert_fits_and_is_exact(
    graph: Graph, options: CompileOptions, inputs: list[np.ndarray], want: list[np.ndarray]
) -> Compiled:
    """Compile the graph, and compare its SRAM with the budget and its outputs with ``want``."""
    compiled = compile_graph(graph, TARGET, options)
    assert not compiled.report.faults, compiled.report.faults
    assert options.sram_budget is not None and compiled.report.sram_bytes <= options.sram_budget
    for name, got, expected in zip(graph.outputs, simulated_outputs(compiled, inputs), want, strict=True):
        np.testing.assert_array_equal(got, expected, f"{name}, {options}\n{graph}")
    return compiled


def least_budget(
    graph: Graph,
    fetch: bool = False,
    io: str = "arena",
    effort: str = DEFAULT.name,
    target: targets.Target | None = None,
    given: Prepared | None = None,
) -> int:
    """Return the least budget that the compiler names, in bytes; 1 where nothing is needed. ``target``: by default the chip of
    the tests. ``given``: the prepared graph, for several compiles with one search."""
    options = CompileOptions(sram_budget=1, prefetch_constants=fetch, io_place=io, effort=effort)
    try:
        compile_prepared(given or prepared(graph), target or TARGET, options)
    except BudgetError as error:
        return error.least_bytes
    return 1


def infeasible_budget(least: int) -> int:
    """Return a budget below the least one that the compiler names, in bytes. In tiles, both are multiples of ``ALIGNMENT``."""
    return least - ALIGNMENT if TARGET.moves_tiles else least - 1


def is_never_slower_with_more(compiled: Compiled) -> bool:
    """Return whether the compiler promises that this program's graph is not slower with more memory: in tiles, a graph of few calls."""
    return not TARGET.moves_tiles or len(kernels_of(compiled)) <= TUNING.few_calls


def kernels_of(compiled: Compiled) -> list[str]:
    """Return the kernels of a program's calls, without transfers of tiles."""
    return [call.kernel for call in compiled.schedule.calls if not call.is_transfer]
