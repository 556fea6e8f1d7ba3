# SPDX-License-Identifier: BSD-3-Clause
"""A compiled ``.tflite`` that is one NeutronGraph as a deployment."""

from __future__ import annotations

from pathlib import Path

from openneutron import litert
from openneutron.errors import InvalidModelError, InvalidProgramError
from openneutron.export.deployment import ITEM_BYTES, Call, Deployment, IoTensor, Place, Quantization, Where
from openneutron.ir import Tensor
from openneutron.litert.neutron_graph import find


def read_tflite(data: bytes | Path, name: str) -> Deployment:
    """Return the deployment of a compiled ``.tflite`` file, or of its bytes.

    Raises InvalidProgramError where the file has no NeutronGraph or a damaged one, InvalidModelError where it is no
    LiteRT file or has more than one NeutronGraph.
    """
    file = data.name if isinstance(data, Path) else name
    model = litert.read(data)
    nodes = find(model.model)
    if not nodes:
        raise InvalidProgramError(f"'{file}' has no NeutronGraph in it. Compile it first: openneutron compile {file}.")
    graph = model.graph
    if len(graph.nodes) != 1:
        others = [node.op for place, node in enumerate(graph.nodes) if place not in {found.operator for found in nodes}]
        rest = (
            f"{len(nodes)} NeutronGraphs"
            if not others
            else f"LiteRT operators beside them ({', '.join(sorted(set(others)))})"
        )
        raise InvalidModelError(
            f"'{file}' does not run on the NPU alone: it has {rest}. A bundle has no CPU operators. See what stays on the CPU, "
            "and why, with `openneutron explain MODEL`."
        )
    node = nodes[0]
    by_place = {model.tensor_index[tensor_name]: tensor for tensor_name, tensor in graph.tensors.items()}
    inputs = [by_place[place] for place in node.inputs]
    outputs = [by_place[place] for place in node.outputs]
    model_inputs, model_outputs = list(graph.inputs), list(graph.outputs)
    missing = [tensor.name for tensor in outputs if tensor.name not in model_outputs]
    missing += [tensor.name for tensor in inputs if tensor.name not in model_inputs]
    if missing:
        raise InvalidModelError(f"'{file}': its NeutronGraph's '{missing[0]}' is no input or output. Compile it again.")
    return Deployment(
        name,
        (
            Call(
                node.program,
                tuple(Place(Where.INPUT, index) for index in range(len(inputs))),
                tuple(Place(Where.OUTPUT, index) for index in range(len(outputs))),
            ),
        ),
        tuple(_io_tensor(file, tensor, model_inputs.index(tensor.name)) for tensor in inputs),
        tuple(_io_tensor(file, tensor, model_outputs.index(tensor.name)) for tensor in outputs),
    )


def _io_tensor(file: str, tensor: Tensor, index: int) -> IoTensor:
    dtype = str(tensor.dtype)
    if dtype not in ITEM_BYTES:
        raise InvalidModelError(f"'{file}': '{tensor.name}' is {dtype}; a bundle has {', '.join(ITEM_BYTES)}.")
    quantization = None
    if tensor.quant is not None and not tensor.quant.per_channel and dtype == "int8":
        quantization = Quantization(float(tensor.quant.scale), tensor.quant.zero_point)
    return IoTensor(tensor.name, dtype, tensor.shape, tuple(range(len(tensor.shape))), quantization, index)
