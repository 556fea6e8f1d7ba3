# SPDX-License-Identifier: BSD-3-Clause
"""Methods of one delegate call, loaded in ExecuTorch's runtime, and their payloads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
from executorch.exir.lowered_backend_module import LoweredBackendModule
from executorch.runtime import Runtime

from openneutron.isa.payload import Format, Payload
from openneutron.pytorch.run import delegate

SHAPE = (1, 2, 8, 8)  # of programs.through_scratch, which reads and writes it channels-last as 1 x 2 x 8 x 8 NHWC


UNCHECKED = EdgeCompileConfig(_check_ir_validity=False)


class Inverts(torch.nn.Module):
    """Return the results of the lookup programs: -1 - x."""

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.bitwise_not(tensor) for tensor in tensors)


class Calls(torch.nn.Module):
    def __init__(self, lowered: LoweredBackendModule) -> None:
        super().__init__()
        self.lowered = lowered

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.lowered(*tensors)


class Loaded:
    """A method together with its program, which holds the bytes that the method reads.

    ExecuTorch's own method does not keep its program: ``execute`` is a method here, so that a call holds both.
    """

    def __init__(self, pte: bytes) -> None:
        self.pte = pte
        self.program = Runtime.get().load_program(pte)
        self.method = self.program.load_method("forward")

    def execute(self, inputs: Sequence[Any]) -> Any:
        return self.method.execute(inputs)


def method(
    payload: bytes, inputs: tuple[torch.Tensor, ...], module: torch.nn.Module | None = None, **config: Any
) -> Loaded:
    """The loaded method of a ``.pte`` whose one delegate call carries ``payload``; ``module`` gives its signature."""
    delegate.load()
    exported = torch.export.export(module or Inverts(), inputs, strict=False)
    lowered = LoweredBackendModule(
        edge_program=to_edge(exported, compile_config=UNCHECKED).exported_program(),
        backend_id="NeutronBackend",
        processed_bytes=payload,
        compile_specs=[],
    )
    edge = to_edge(torch.export.export(Calls(lowered), inputs, strict=False), compile_config=UNCHECKED)
    program = edge.to_executorch(ExecutorchBackendConfig(**{"extract_delegate_segments": False, **config}))
    return Loaded(program.buffer)


def plain(program: Any, **changes: Any) -> Payload:
    """One input, one output, contiguous."""
    whole = Payload(program, (Format.CONTIGUOUS,), (Format.CONTIGUOUS,), (0,), (0,), 1)
    return dataclasses.replace(whole, **changes)


def random_bytes(shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    return torch.randint(-128, 128, shape, dtype=torch.int8, generator=torch.Generator().manual_seed(seed))
