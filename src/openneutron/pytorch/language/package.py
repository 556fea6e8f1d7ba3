# SPDX-License-Identifier: BSD-3-Clause
"""Write the ``.pte`` of a language model whose program is compiled."""

from __future__ import annotations

from typing import final

import torch
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from torch.export import Dim, ExportedProgram, export

from openneutron.isa import Program
from openneutron.language.model import Interface
from openneutron.pytorch.nxp_backend import PAYLOAD, claim_name

TAG = "decoder"


@torch.library.custom_op("openneutron::decoder", mutates_args=())
def decoder(tokens: torch.Tensor, start_pos: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """Stand for a compiled decoder in an exported program. The operator has no kernel: its partition has a payload."""
    raise NotImplementedError("openneutron::decoder stands for a program, which the delegate runs.")


@decoder.register_fake
def _shape_of_logits(tokens: torch.Tensor, start_pos: torch.Tensor, vocabulary: int) -> torch.Tensor:
    return tokens.new_empty((1, vocabulary), dtype=torch.float32)


class _Decoder(torch.nn.Module):
    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary

    def forward(self, tokens: torch.Tensor, start_pos: torch.Tensor) -> torch.Tensor:
        """Return the logits of the last token."""
        logits: torch.Tensor = torch.ops.openneutron.decoder(tokens, start_pos, self.vocabulary)
        return logits


@final
class _OneOperator(Partitioner):
    """Delegates the operator that stands for a decoder, with its payload."""

    def __init__(self, payload: bytes) -> None:
        super().__init__()
        self._payload = payload

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        for node in exported_program.graph_module.graph.nodes:
            if node.op == "call_function" and "openneutron.decoder" in str(node.target):
                node.meta["delegation_tag"] = TAG
                node.meta[PAYLOAD] = self._payload
        return PartitionResult(exported_program, {TAG: DelegationSpec("NeutronBackend", [])})


def packaged(program: Program, interface: Interface) -> bytes:
    """Return the ``.pte`` of a program that takes tokens and a span, and returns logits.

    Its method ``forward`` takes 1 to ``interface.rows`` tokens and the position of the first one. Raises InvalidProgramError where the
    program has other inputs or outputs.
    """
    payload = interface.payload(program).compose()
    most = interface.rows
    example = torch.zeros((1, most), dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    free = {"tokens": {1: Dim("tokens", min=1, max=most)} if most > 1 else None, "start_pos": None}
    exported = export(_Decoder(interface.vocabulary), example, dynamic_shapes=free, strict=False)
    claim_name()
    edge = to_edge_transform_and_lower(
        exported,
        partitioner=[_OneOperator(payload)],
        constant_methods=interface.methods(),
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    return bytes(edge.to_executorch(ExecutorchBackendConfig()).buffer)
