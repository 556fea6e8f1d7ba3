# SPDX-License-Identifier: BSD-3-Clause
"""The cases that go through PyTorch: built-in networks, quantized and lowered step by step as on docs/raw-flow.md."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.replay.records import Case, digest

NAMES = (
    *("autoencoder", "cifarnet", "ds_cnn", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small", "resnet8", "tcn"),
    *("unet", "transformer_encoder", "vww"),
)
CALIBRATION_SAMPLES = 4


def pytorch() -> Iterator[Case]:
    """Every built-in network; its record has a hash for each delegate payload."""
    for name in NAMES:
        yield Case(f"pytorch/{name}/default", partial(_payload_hashes, name))


def _payload_hashes(name: str) -> str:
    # Before torch, and here: the other cases need no torch.
    from openneutron import NeutronPartitioner, NeutronQuantizer  # isort: skip

    import torch
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
    from executorch.exir.lowered_backend_module import get_lowered_submodules
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    from openneutron.pytorch.source import models

    model, example = models.get(name)
    prepared = prepare_pt2e(torch.export.export(model, example).module(), NeutronQuantizer())
    for sample in models.samples(name, CALIBRATION_SAMPLES):
        prepared(*sample)
    edge = to_edge_transform_and_lower(
        torch.export.export(convert_pt2e(prepared), example),
        partitioner=[NeutronPartitioner()],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    lowered = get_lowered_submodules(edge.exported_program().graph_module)
    return " ".join(digest(module.processed_bytes) for _, module, _ in lowered)
