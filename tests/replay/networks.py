# SPDX-License-Identifier: BSD-3-Clause
"""The cases that go through PyTorch: networks that are quantized and lowered step by step, as on docs/raw-flow.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from tests.replay.records import Case, digest

CALIBRATION_SAMPLES = 4


def pytorch() -> Iterator[Case]:
    """Every built-in network and every architecture of the suite; a record has a hash for each delegate payload."""
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
    from openneutron import NeutronPartitioner, NeutronQuantizer  # isort: skip

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
    return " ".join(digest(module.processed_bytes) for _, module, _ in lowered)
