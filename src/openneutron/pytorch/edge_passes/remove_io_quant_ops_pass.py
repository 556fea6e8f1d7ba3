# SPDX-License-Identifier: BSD-3-Clause
"""Programs with int8 inputs and outputs instead of float ones."""

from __future__ import annotations

from executorch.exir import EdgeProgramManager
from executorch.exir.dialects._ops import ops as exir_ops
from executorch.exir.pass_base import ExportPass
from executorch.exir.passes.quantize_io_pass import QuantizeInputs, QuantizeOutputs
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassResult

_QUANTIZE = exir_ops.edge.quantized_decomposed.quantize_per_tensor.default
_DEQUANTIZE = exir_ops.edge.quantized_decomposed.dequantize_per_tensor.default


class RemoveIOQuantOpsPass(ExportPass):
    """Takes the quantize nodes off the inputs and the dequantize nodes off the outputs.

    Scales and zero points become constant methods of the program, under the names ExecuTorch's own passes give them. Used
    as ``manager.transform([RemoveIOQuantOpsPass(edge_program_manager=manager)])``.
    """

    def __init__(self, edge_program_manager: EdgeProgramManager) -> None:
        super().__init__()
        self._edge_program_manager = edge_program_manager

    def call(self, graph_module: GraphModule) -> PassResult:
        """Raises ValueError where an input has several readers, NotImplementedError without exactly one output node."""
        inputs, outputs = self._quantized_inputs(), self._quantized_outputs()
        QuantizeInputs(self._edge_program_manager, inputs).call(graph_module)
        QuantizeOutputs(self._edge_program_manager, outputs).call(graph_module)
        return PassResult(graph_module, True)

    def _quantized_inputs(self) -> list[int]:
        program = self._edge_program_manager.exported_program()
        nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        found = []
        for index, name in enumerate(program.graph_signature.user_inputs):
            readers = list(nodes[name].users)
            if len(readers) != 1:
                raise ValueError(f"Input {index} has more than one users")
            if readers[0].target is _QUANTIZE:
                found.append(index)
        return found

    def _quantized_outputs(self) -> list[int]:
        nodes = [node for node in self._edge_program_manager.exported_program().graph.nodes if node.op == "output"]
        if len(nodes) != 1:
            raise NotImplementedError("Only 1 output node is supported.")
        return [index for index, node in enumerate(nodes[0].args[0]) if getattr(node, "target", None) is _DEQUANTIZE]
