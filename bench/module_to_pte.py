# SPDX-License-Identifier: BSD-3-Clause
"""CPU seconds and peak memory from a module in memory to a saved .pte, for our backend and ExecuTorch's own.

litert-torch makes a .tflite, which AI Edge Quantizer quantizes to int8 with the same sample.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import child
from bench.aot_steps import PEERS, backend_flow

TITLE = "Module in memory to saved .pte (litert-torch: .tflite): CPU seconds without imports, one calibration sample"
REPEATS = 3
LITERT_TORCH = "litert_torch"
BACKENDS = ("openneutron", "cortex_m", "xnnpack", LITERT_TORCH)
PYTHONS = {LITERT_TORCH: Path(__file__).parents[1] / "build" / LITERT_TORCH / "bin" / "python"}
"""The interpreters of backends that have an environment of their own, since they pin other versions than ours."""


def _mobilenet_v2() -> tuple[Any, Any]:
    from openneutron.pytorch.source import models

    return models.get("mobilenet_v2")


def _timm(name: str, size: int, **options: Any) -> Callable[[], tuple[Any, Any]]:
    def make() -> tuple[Any, Any]:
        import torch

        from tests.suites.architectures.models import timm_model

        row = timm_model(name, size, **options)
        return row.make().eval(), row.inputs(torch.Generator().manual_seed(0))

    return make


def _segformer() -> tuple[Any, Any]:
    import torch

    from tests.suites.architectures.models import ARCHITECTURES

    row = ARCHITECTURES["segformer_b0"]
    return row.make().eval(), row.inputs(torch.Generator().manual_seed(0))


def _yolov8n() -> tuple[Any, Any]:
    import torch

    from tests.architectures.yolov8 import YoloV8n

    return YoloV8n().eval(), (torch.randn(1, 3, 160, 160),)


MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "MobileNetV2 224": _mobilenet_v2,
    "ViT-tiny of 12 layers 96": _timm("vit_tiny_patch16_224", 96, img_size=96),
    "SegFormer-B0 64": _segformer,
    "ResNet-101 96": _timm("resnet101", 96),
    "YOLOv8n 160": _yolov8n,
}
"""The networks, with random weights. Those of timm and transformers are left out where these packages are missing."""


def measure() -> dict[str, Any]:
    """For each network and backend, CPU seconds and peak MB: medians of interleaved runs.

    A network or peer that lacks a package of its own is left out, and a peer that fails on a network.
    """
    found: dict[str, Any] = {}
    for name in MODELS:
        runs: dict[str, list[dict[str, float]]] = {backend: [] for backend in BACKENDS}
        for _ in range(REPEATS):
            for backend, measured in runs.items():
                python = PYTHONS.get(backend, Path(sys.executable))
                figures = (
                    child.module_json("bench.module_to_pte", backend, name, python=python) if python.exists() else None
                )
                if figures is not None:
                    measured.append(figures)
        found[name] = {
            backend: {key: statistics.median(run[key] for run in measured) for key in measured[0]}
            for backend, measured in runs.items()
            if measured
        }
    return found


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and lines of the printed table."""
    heads = ("network", *(f"{name} {unit}" for name in BACKENDS for unit in ("s", "MB")))
    lines = []
    for name, by_backend in results.items():
        cells = [
            (f"{by_backend[backend]['seconds']:.2f}", f"{by_backend[backend]['peak_rss_mb']:.0f}")
            if backend in by_backend
            else ("-", "-")
            for backend in BACKENDS
        ]
        lines.append((name, *(cell for pair in cells for cell in pair)))
    return heads, lines


def measured(backend: str, make: Callable[[], tuple[Any, Any]]) -> dict[str, float]:
    """Return the figures of one compile in this process, after a compile of one convolution that does all imports."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    to_pte = {"openneutron": _ours, LITERT_TORCH: _litert_torch}.get(backend) or _executorch(backend)
    to_pte(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval(), (torch.randn(1, 3, 8, 8),))
    model, example = make()
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        buffer = to_pte(model, tuple(example))
        (Path(folder) / "model.pte").write_bytes(buffer)
        seconds = time.process_time() - start
    return {
        "seconds": seconds,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "pte_bytes": len(buffer),
    }


def _ours(model: Any, example: tuple[Any, ...]) -> bytes:
    import openneutron

    return openneutron.compile(model, example, calibration=[example]).buffer


def _litert_torch(model: Any, example: tuple[Any, ...]) -> bytes:
    import litert_torch
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_quantizer import quantizer, recipe

    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "float.tflite")
        litert_torch.convert(model, example).export(file)
        signatures = Interpreter(file).get_signature_list()
        samples = {
            name: [dict(zip(signature["inputs"], (tensor.numpy() for tensor in example), strict=True))]
            for name, signature in signatures.items()
        }
        quantizing = quantizer.Quantizer(file, recipe.static_wi8_ai8())
        return bytes(quantizing.quantize(quantizing.calibrate(samples)).quantized_model)


def _executorch(backend: str) -> Callable[[Any, tuple[Any, ...]], bytes]:
    """Return ExecuTorch's own steps for a backend, as one function."""
    import torch
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
    from torch.export import export
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    def to_pte(model: Any, example: tuple[Any, ...]) -> bytes:
        quantizer, config, options, after_lowering = backend_flow(backend)
        if backend == "cortex_m":
            model = model.to(memory_format=torch.channels_last)
            example = tuple(tensor.to(memory_format=torch.channels_last) for tensor in example)
        prepared = prepare_pt2e(export(model, example, strict=True).module(check_guards=False), quantizer)
        with torch.no_grad():
            prepared(*example)
        quantized = convert_pt2e(prepared)
        edge = to_edge_transform_and_lower(
            export(quantized, example, strict=True),
            compile_config=config or EdgeCompileConfig(),
            **options(quantized),
        )
        after_lowering(edge)
        return bytes(edge.to_executorch().buffer)

    return to_pte


if __name__ == "__main__":
    sys.path.append(str(PEERS))
    chosen, network = sys.argv[1:]
    try:
        print(json.dumps(measured(chosen, MODELS[network])))
    except Exception as error:  # a peer's or a missing package's; ours must not fail
        if chosen == "openneutron" and not isinstance(error, ModuleNotFoundError):
            raise
        print(f"{chosen}, {network}: left out: {type(error).__name__}: {error}", file=sys.stderr)
        print(json.dumps(None))
