# SPDX-License-Identifier: BSD-3-Clause
"""Small ONNX models for tests, made with ONNX's own helper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]

OPSET = 20


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    constants: Mapping[str, Array] = {},
    opset: int = OPSET,
    kind: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """Return a model. ``inputs`` has the shapes of inputs; a text is an axis that the file does not fix."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(name, kind, list(shape)) for name, shape in inputs.items()],
        [helper.make_value_info(name, onnx.TypeProto()) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    domains = [helper.make_opsetid(*row) for row in (("", opset), ("com.microsoft", 1), ("ai.onnx.ml", 3))]
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


def saved(folder: Path, made: onnx.ModelProto, name: str = "net.onnx") -> Path:
    """Write a model and return its path."""
    path = folder / name
    path.write_bytes(made.SerializeToString())
    return path


def random(*shape: int, seed: int = 0) -> Array:
    """Return random values, float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def small_network(batch: int | str = 1) -> onnx.ModelProto:
    """Return a network of a convolution, a pooling and a linear layer, with names for all nodes."""
    nodes = [
        helper.make_node("Conv", ["image", "kernel", "bias"], ["a"], "stem/conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "stem/relu"),
        helper.make_node("GlobalAveragePool", ["b"], ["c"], "pool"),
        helper.make_node("Flatten", ["c"], ["d"], "flat"),
        helper.make_node("Gemm", ["d", "weights"], ["scores"], "head", transB=1),
    ]
    constants = {"kernel": random(8, 3, 3, 3) / 3, "bias": random(8, seed=1), "weights": random(4, 8, seed=2)}
    return model(nodes, {"image": [batch, 3, 8, 8]}, ["scores"], constants)
