# SPDX-License-Identifier: BSD-3-Clause
"""Write the ``.pte`` of a language model whose program is compiled."""

from __future__ import annotations

from dataclasses import replace
from typing import final

import torch
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir._serialize._program import PTEFile, deserialize_pte_binary, serialize_pte_binary
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.schema import BackendDelegate
from torch.export import Dim, ExportedProgram, export

from openneutron.device.pte import FORWARD
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


@torch.library.custom_op("openneutron::decoder_of_source", mutates_args=())
def decoder_of_source(
    tokens: torch.Tensor, start_pos: torch.Tensor, source: torch.Tensor, source_span: torch.Tensor, vocabulary: int
) -> torch.Tensor:
    """Stand for the compiled decoder behind an encoder, as ``decoder`` does."""
    raise NotImplementedError("openneutron::decoder_of_source stands for a program, which the delegate runs.")


@decoder_of_source.register_fake
def _shape_of_its_logits(
    tokens: torch.Tensor, start_pos: torch.Tensor, source: torch.Tensor, source_span: torch.Tensor, vocabulary: int
) -> torch.Tensor:
    return tokens.new_empty((1, vocabulary), dtype=torch.float32)


class _DecoderOfSource(torch.nn.Module):
    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary

    def forward(
        self, tokens: torch.Tensor, start_pos: torch.Tensor, source: torch.Tensor, source_span: torch.Tensor
    ) -> torch.Tensor:
        """Return the logits of the last token."""
        given = tokens, start_pos, source, source_span
        logits: torch.Tensor = torch.ops.openneutron.decoder_of_source(*given, self.vocabulary)
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

    Its method takes 1 to ``interface.rows`` tokens and the position of the first one. The method is ``forward``, or
    ``text_decoder`` for a decoder behind an encoder; that one also takes the encoder's result and its span. Raises
    InvalidProgramError where the program has other inputs or outputs.
    """
    payload = interface.payload(program).compose()
    most = interface.rows
    example: tuple[torch.Tensor, ...] = torch.zeros((1, most), dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    free = {"tokens": {1: Dim("tokens", min=1, max=most)} if most > 1 else None, "start_pos": None}
    module: torch.nn.Module = _Decoder(interface.vocabulary)
    if interface.source is not None:
        module = _DecoderOfSource(interface.vocabulary)
        example += torch.zeros((1, *interface.source)), torch.zeros(2, dtype=torch.int64)
        free |= {"source": None, "source_span": None}
    exported = export(module, example, dynamic_shapes=free, strict=False)
    claim_name()
    edge = to_edge_transform_and_lower(
        {interface.method: exported},
        partitioner=[_OneOperator(payload)],
        constant_methods=interface.methods(),
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    return bytes(edge.to_executorch(ExecutorchBackendConfig()).buffer)


def with_method(first: bytes, name: str, other: bytes) -> bytes:
    """Return a ``.pte`` with methods of two files: the method ``forward`` of ``first`` under the new name ``name``,
    and all methods of ``other``.

    ``other`` must not have constants outside of its delegates.
    """
    one, two = deserialize_pte_binary(first), deserialize_pte_binary(other)
    assert len(two.program.constant_buffer) <= 1, "the second file has constants"
    before = len(one.program.backend_delegate_data)

    def moved(delegate: BackendDelegate) -> BackendDelegate:
        place = replace(delegate.processed, index=delegate.processed.index + before)
        return replace(delegate, processed=place)

    plans = [replace(plan, name=name) for plan in one.program.execution_plan if plan.name == FORWARD]
    plans += [replace(plan, delegates=[moved(each) for each in plan.delegates]) for plan in two.program.execution_plan]
    data = [*one.program.backend_delegate_data, *two.program.backend_delegate_data]
    program = replace(one.program, execution_plan=plans, backend_delegate_data=data, named_data=None)
    written = serialize_pte_binary(
        PTEFile(program, one.mutable_data), extract_delegate_segments=False, delegate_alignment=16
    )
    return bytes(written)
