# SPDX-License-Identifier: BSD-3-Clause
"""``fold_quantize``: operators write results in the scale of the QUANTIZE behind them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import openneutron
from openneutron import CompileOptions, litert
from openneutron.compiler.legalize.quantize import fold_quantize
from openneutron.features.report.text import summary_rows
from openneutron.ir import Graph, Node, Tensor, constant, per_channel, per_tensor
from tests.support import oracle

NONE = {"activation": "NONE"}
WINDOW = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, **NONE}
X, ONE, OTHER, JOINED = (0.02, -5), (0.031, 7), (0.017, -20), (0.043, 3)
"""Scales and zero points: of the input, of two convolutions, and of their concatenation."""

RANDOM = np.random.default_rng(0)
SAMPLE = RANDOM.integers(-128, 128, (1, 6, 6, 8)).astype(np.int8)
FILTERS = [RANDOM.integers(-127, 128, (4, 1, 1, 8)).astype(np.int8) for _ in "ab"]
SCALES = [np.float32([0.004, 0.005, 0.0035, 0.0045]), np.float32([0.003, 0.002, 0.0025, 0.0015])]
BIASES = [RANDOM.integers(-2000, 2000, 4).astype(np.int32) for _ in "ab"]


def heads(outputs: tuple[str, ...] = ("y",)) -> Graph:
    """Two convolutions whose results are rescaled and concatenated, as the exporter of Ultralytics writes the heads of a detector."""
    nodes: list[Node] = []
    tensors: list[Tensor] = []
    for name, quant, filters, scales, bias in zip("ab", (ONE, OTHER), FILTERS, SCALES, BIASES, strict=True):
        of_bias = per_channel(np.float32(X[0]) * scales, 0)
        tensors += [constant(f"{name}w", filters, per_channel(scales, 0)), constant(f"{name}b", bias, of_bias)]
        shapes = {name: (1, 6, 6, 4), f"{name}_rows": (1, 36, 4), f"{name}_quantized": (1, 36, 4)}
        tensors += [
            oracle.activation(each, shape, *(JOINED if each.endswith("quantized") else quant))
            for each, shape in shapes.items()
        ]
        nodes += [
            Node("conv_2d", ("x", f"{name}w", f"{name}b"), (name,), WINDOW),
            Node("reshape", (name,), (f"{name}_rows",), {"new_shape": (1, 36, 4)}),
            Node("quantize", (f"{name}_rows",), (f"{name}_quantized",)),
        ]
    nodes.append(Node("concatenation", ("a_quantized", "b_quantized"), ("y",), {"axis": 1, **NONE}))
    x, y = oracle.activation("x", SAMPLE.shape, *X), oracle.activation("y", (1, 72, 4), *JOINED)
    return oracle.graph_of([x], nodes, [*tensors, y], outputs)


def sums() -> list[np.ndarray]:
    """The sums of the two convolutions, of 4 channels at 36 places."""
    stored = SAMPLE.reshape(36, 8).astype(np.int64) - X[1]
    return [stored @ filters.reshape(4, 8).T + bias for filters, bias in zip(FILTERS, BIASES, strict=True)]


def reals() -> np.ndarray:
    """The concatenation in real numbers."""
    rows = [total * (X[0] * scales.astype(np.float64)) for total, scales in zip(sums(), SCALES, strict=True)]
    return np.concatenate(rows)[None]


def rescaled(values: np.ndarray, factors: np.ndarray | float, zero: int) -> np.ndarray:
    """LiteRT's requantization of integers: a product with 1/2 to 1, rounded, and a shift, rounded again."""
    fractions, exponents = np.frexp(factors)
    products = np.floor(values * fractions + 0.5)
    shifted = products * np.exp2(exponents)
    return np.clip(np.copysign(np.floor(np.abs(shifted) + 0.5), shifted) + zero, -128, 127).astype(np.int8)


def written(quants: Sequence[tuple[float, int]]) -> list[np.ndarray]:
    """The results of the convolutions with these scales and zero points."""
    return [
        rescaled(total, np.float64(X[0]) * scales / scale, zero)
        for total, scales, (scale, zero) in zip(sums(), SCALES, quants, strict=True)
    ]


def decibels(stored: np.ndarray) -> float:
    """Signal to noise of stored values of the concatenation."""
    wanted = reals()
    lost = (stored.astype(np.float64) - JOINED[1]) * JOINED[0] - wanted
    return float(10 * np.log10(np.sum(wanted**2) / np.sum(lost**2)))


def kernels(program: openneutron.CompiledLiteRTModel) -> Counter[str]:
    """Return the number of calls of each kernel but copies."""
    called = (call.kernel for part in program.report.partitions for call in part.report.operators)
    return Counter(kernel for kernel in called if kernel != "copy_s8")


def test_results_are_rounded_once(tmp_path: Path) -> None:
    file = tmp_path / "heads.tflite"
    file.write_bytes(litert.write(heads()))
    twice = openneutron.compile(file)
    once = twice.recompile(fold_quantize=True)
    (of_file,), (of_fold,) = twice.run(SAMPLE), once.run(SAMPLE)
    between = [
        rescaled(rows.astype(np.int64) - zero, scale / JOINED[0], JOINED[1])
        for rows, (scale, zero) in zip(written((ONE, OTHER)), (ONE, OTHER), strict=True)
    ]
    assert np.array_equal(of_file[0], np.concatenate(between))
    assert np.array_equal(of_file, *oracle.reference_outputs(file.read_bytes(), [SAMPLE]))
    assert np.array_equal(of_fold[0], np.concatenate(written((JOINED, JOINED))))
    assert np.count_nonzero(of_file != of_fold) > 20
    assert (round(decibels(of_file)), round(decibels(of_fold))) == (36, 40)
    assert kernels(twice) - kernels(once) == {"lookup_s8": 2}


def test_the_report_names_what_was_folded(tmp_path: Path) -> None:
    file = tmp_path / "heads.tflite"
    file.write_bytes(litert.write(heads()))
    once = openneutron.compile(file, options=CompileOptions(fold_quantize=True))
    names = ["a_quantized", "b_quantized"]
    assert once.report.to_dict()["folded_quantize"] == names
    assert once.report.to_dict()["partitions"][0]["folded_quantize"] == names
    rows = dict(summary_rows(once.report))
    assert rows["Folded"] == (
        "2 QUANTIZE into the operators before them: one rounding instead of two, not the file's bytes"
    )
    assert once.recompile(fold_quantize=False).report.folded_quantize == ()
    # The stock file of the partition has the bytes of the program.
    stock = once.intermediates(tmp_path)[tmp_path / "neutron_graph_0.tflite"]
    assert np.array_equal(*once.run(SAMPLE), *oracle.reference_outputs(stock, [SAMPLE]))


def test_a_result_with_another_reader_stays() -> None:
    for reader in ("a", "a_rows"):
        assert fold_quantize(heads(("y", reader))).names == ("b_quantized",)


def test_an_operator_with_a_fixed_scale_stays() -> None:
    nodes = [
        Node("logistic", ("x",), ("s",)),
        Node("quantize", ("s",), ("q",)),
        Node("add", ("q", "x"), ("t",), NONE),
        Node("quantize", ("t",), ("y",)),
    ]
    quants = {"s": (1 / 256, -128), "q": (0.004, -100), "t": (0.03, 1), "y": (0.05, -2)}
    x = oracle.activation("x", SAMPLE.shape, *X)
    others = [oracle.activation(name, SAMPLE.shape, *quant) for name, quant in quants.items()]
    graph = oracle.graph_of([x], nodes, others)
    folded = fold_quantize(graph)
    assert folded.names == ("y",)
    assert [node.op for node in folded.graph.nodes] == ["logistic", "quantize", "add"]
    assert folded.graph["y"].quant == per_tensor(0.05, -2)


def test_concatenated_operators_are_folded_together() -> None:
    graph = heads()
    nodes = [
        dataclasses.replace(node, inputs=("a_rows", "b_rows")) if node.op == "concatenation" else node
        for node in graph.nodes
    ]
    nodes = [node for node in nodes if node.op != "quantize"]
    nodes = [dataclasses.replace(node, outputs=("c",)) if node.op == "concatenation" else node for node in nodes]
    nodes.append(Node("quantize", ("c",), ("y",)))
    alike = {name: dataclasses.replace(graph[name], quant=per_tensor(*ONE)) for name in ("a", "b", "a_rows", "b_rows")}
    between = oracle.activation("c", (1, 72, 4), *ONE)
    folded = fold_quantize(graph.rebuilt(nodes, [*alike.values(), between]))
    assert folded.names == ("y",)
    assert {str(folded.graph[name].quant) for name in ("a", "b", "a_rows", "b_rows", "y")} == {str(per_tensor(*JOINED))}
