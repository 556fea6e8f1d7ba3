# SPDX-License-Identifier: BSD-3-Clause
"""The cases that go through PyTorch: networks that are quantized and lowered step by step, as on docs/raw-flow.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from openneutron.isa import decode, payload
from openneutron.isa.microcode import steps
from tests.replay.records import Case, digest

CALIBRATION_SAMPLES = 4


def pytorch() -> Iterator[Case]:
    """Yield every built-in network and every architecture of the suite.

    A record has two hashes for each delegate: of its payload, and, behind a slash, of the schedule in it.
    """
    # The cases of graphs need no torch, so that it is imported for these alone.
    from openneutron.pytorch.source import models
    from tests import architectures

    for name in models.names():
        yield Case(f"pytorch/{name}/default", partial(_built_in, name))
    for name in architectures.ARCHITECTURES:
        yield Case(f"architecture/{name}/default", partial(_architecture, name))


def _built_in(name: str) -> str:
    from openneutron.pytorch.source import models

    return _payload_hashes(*models.get(name), models.samples(name, CALIBRATION_SAMPLES))


def _architecture(name: str) -> str:
    from tests import architectures

    model, example = architectures.get(name)
    return _payload_hashes(model, example, [example])


def _payload_hashes(model: Any, example: Sequence[Any], samples: Sequence[Sequence[Any]]) -> str:
    from openneutron.pytorch import NeutronPartitioner, NeutronQuantizer  # isort: skip

    import torch
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
    from executorch.exir.lowered_backend_module import get_lowered_submodules
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(torch.export.export(model, tuple(example)).module(), NeutronQuantizer())
    for sample in samples:
        prepared(*sample)
    edge = to_edge_transform_and_lower(
        torch.export.export(convert_pt2e(prepared), tuple(example)),
        partitioner=[NeutronPartitioner()],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    lowered = get_lowered_submodules(edge.exported_program().graph_module)
    return " ".join(
        f"{digest(module.processed_bytes)}/{_schedule_hash(module.processed_bytes)}" for _, module, _ in lowered
    )


def _schedule_hash(blob: bytes) -> str:
    """Return the hash of a payload's kernels and of the steps that call them: no scale or weight counts."""
    microcode = decode(payload.parse(blob).program)
    return digest(repr(([item.row.name for item in microcode.operators], list(steps(microcode)))).encode())


def schedules(record: str) -> list[str]:
    """Return the schedules' hashes in a record, which are the same on every machine."""
    return [part.partition("/")[2] for part in record.split()]
