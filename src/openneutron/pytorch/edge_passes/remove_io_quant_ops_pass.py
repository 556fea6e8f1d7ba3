# SPDX-License-Identifier: BSD-3-Clause
"""Change float inputs and outputs of a program to int8 or int16."""

from __future__ import annotations

from executorch.exir import EdgeProgramManager
from executorch.exir.dialects._ops import ops as exir_ops
from executorch.exir.pass_base import ExportPass
from executorch.exir.passes.quantize_io_pass import QuantizeInputs, QuantizeOutputs, quantize_output
from torch.export.graph_signature import OutputKind
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.errors import InvalidOptionError
from openneutron.pytorch.graph.program import quantized_dtype

_QUANTIZE = exir_ops.edge.quantized_decomposed.quantize_per_tensor.default
_DEQUANTIZE = exir_ops.edge.quantized_decomposed.dequantize_per_tensor.default


class RemoveIOQuantOpsPass(ExportPass):
    """Removes the quantize nodes of the inputs and the dequantize nodes of the outputs.

    Scales and zero points become constant methods of the program, under the names that ExecuTorch's own passes use. The pass is used
    as ``manager.transform([RemoveIOQuantOpsPass(edge_program_manager=manager)])``. ``io_dtype`` limits the pass to inputs and outputs
    that are quantized to this type, ``int8`` or ``int16``; None: any type.
    """

    def __init__(self, edge_program_manager: EdgeProgramManager, io_dtype: str | None = None) -> None:
        super().__init__()
        self._edge_program_manager = edge_program_manager
        self._io_dtype = io_dtype
        self._others: set[str] = set()

    def call(self, graph_module: GraphModule) -> PassResult:
        """Remove the nodes in place. An input stays float unless all its readers are equal quantize nodes. An output
        stays float unless a dequantize node computes it.

        Raise NotImplementedError unless the program has exactly one output node. Raise InvalidOptionError if inputs
        or outputs are quantized, but none of them to ``io_dtype``.
        """
        inputs, outputs = self._quantized_inputs(), self._quantized_outputs()
        if self._others and not inputs and not outputs:
            other = min(self._others)
            raise InvalidOptionError(
                f"io_dtype: it is '{self._io_dtype}'; inputs and outputs become {other}. Pass io_dtype='{other}'."
            )
        program = self._edge_program_manager.exported_program()
        QuantizeInputs(self._edge_program_manager, inputs).call(graph_module)
        names = QuantizeOutputs(self._edge_program_manager, [])
        for index, place in outputs:
            names.edge_manager_update_quant_config_method(index, quantize_output(program, place))
        return PassResult(graph_module, True)

    def _quantized_inputs(self) -> list[int]:
        program = self._edge_program_manager.exported_program()
        nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        found = []
        for index, name in enumerate(program.graph_signature.user_inputs):
            # The signature has the value of a number input in the place of a name.
            node = nodes.get(name) if isinstance(name, str) else None
            if node is None:
                continue
            _merge_readers(node)
            if [reader.target for reader in node.users] == [_QUANTIZE] and self._is_wanted(next(iter(node.users))):
                found.append(index)
        return found

    def _quantized_outputs(self) -> list[tuple[int, int]]:
        """Return two indices for each output that is dequantized from the wanted type: its index among the user's
        outputs, and its index among all outputs of the program.

        They differ because the program's outputs begin with the new values of states.
        """
        program = self._edge_program_manager.exported_program()
        nodes = [node for node in program.graph.nodes if node.op == "output"]
        if len(nodes) != 1:
            raise NotImplementedError("Only 1 output node is supported.")
        kinds = [spec.kind for spec in program.graph_signature.output_specs]
        own = [place for place, kind in enumerate(kinds) if kind is OutputKind.USER_OUTPUT]
        values = nodes[0].args[0]
        return [
            (index, place)
            for index, place in enumerate(own)
            if getattr(values[place], "target", None) is _DEQUANTIZE and self._is_wanted(values[place])
        ]

    def _is_wanted(self, node: Node) -> bool:
        dtype = str(quantized_dtype(node)).removeprefix("torch.")
        if self._io_dtype in (None, dtype):
            return True
        self._others.add(dtype)
        return False


def _merge_readers(node: Node) -> None:
    first: dict[tuple[object, ...], Node] = {}
    for reader in list(node.users):
        if reader.target is not _QUANTIZE:
            continue
        twin = first.setdefault(reader.args, reader)
        if twin is not reader:
            reader.replace_all_uses_with(twin)
            reader.graph.erase_node(reader)
