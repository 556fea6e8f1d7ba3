# SPDX-License-Identifier: BSD-3-Clause
"""Compare programs that take a camera's frames with programs of the same networks that take normalized pictures."""

from __future__ import annotations

import importlib.util
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

TITLE = "uint8 NHWC BGR frames for float NCHW pictures: operators on the CPU, dB against float, modelled cycles"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TARGETS = ("imxrt700", "imx95")
SAMPLES, CALIBRATION, SETTLED_WITH = 16, 16, 32
DETECTORS, DETECTED = ("yolov8n", "yolo11n"), 160
OPTIONS = ("qemu",)


def measure(qemu: bool = False) -> dict[str, Any]:
    """Return the figures of both programs by network and target. With ``qemu`` the programs of frames for the first target run as firmware
    of a Cortex-M33 too."""
    return {
        f"{name} {target}": figures(*network, target, qemu and target == TARGETS[0])
        for name, network in networks().items()
        for target in TARGETS
    }


def networks() -> dict[str, tuple[Any, int, str]]:
    """Return the networks with their sizes and normalizations. Their weights are random. Their batch normalizations have the statistics of
    crops of photographs and the offset 1, as in ``tests.onnx_models.quantized``. Without the offset each layer enlarges any difference, so
    that the results of int8 would be noise."""
    import torch
    from torch import nn

    from openneutron.options import LoadingOptions
    from openneutron.pytorch.source import models
    from openneutron.pytorch.yolo import staged
    from tests.support.random_yolo import with_boxes
    from tests.support.ultralytics_alone import usable

    def with_offset(network: Any) -> Any:
        """Return a network with the offset, and batch normalizations that begin to take statistics."""
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.reset_running_stats()
                module.momentum = None
                nn.init.ones_(module.bias)
        return network

    normalized = f"mean={':'.join(map(str, MEAN))},std={':'.join(map(str, STD))}"
    mobilenet, _ = models.get("mobilenet_v2")
    with_offset(mobilenet).train()
    with torch.no_grad():
        mobilenet(torch.cat(pictures(SETTLED_WITH, 224, 100)).sub(0.45).div(0.226))
    found = {"MobileNetV2": (mobilenet.eval(), 224, normalized)}
    with usable():
        from ultralytics import YOLO

        for name in DETECTORS:
            torch.manual_seed(0)
            samples, shapes = pictures(SETTLED_WITH, DETECTED, 100), {"images": (1, 3, DETECTED, DETECTED)}
            network = with_boxes(with_offset(YOLO(f"{name}.yaml").model), samples)
            heads = staged(network, name, LoadingOptions(head="raw", input_shapes=shapes))
            found[name] = (heads.eval(), DETECTED, "std=1")
    return found


def pictures(count: int, size: int, seed: int = 0) -> list[Any]:
    """Return crops [1, 3, size, size] of Ultralytics' two photographs, of whole bytes as values from 0 to 1. A crop has between a third of
    a photograph's shorter side and all of it."""
    import torch
    from PIL import Image

    package = importlib.util.find_spec("ultralytics")
    assert package is not None and package.origin is not None
    draw, made = np.random.default_rng(seed), []
    photographs = [Image.open(path) for path in sorted(Path(package.origin).parent.glob("assets/*.jpg"))]
    for number in range(count):
        whole = photographs[number % len(photographs)]
        side = int(draw.integers(min(whole.size) // 3, min(whole.size) + 1))
        left, top = (int(draw.integers(0, extent - side + 1)) for extent in whole.size)
        crop = whole.convert("RGB").resize((size, size), box=(left, top, left + side, top + side))
        made.append(torch.from_numpy(np.asarray(crop, np.float32) / 255).permute(2, 0, 1)[None].contiguous())
    return made


def figures(model: Any, size: int, normalize: str, target: str, qemu: bool) -> dict[str, Any]:
    """Return the operators on the CPU, the dB of each output on other pictures than those of the calibration, and the cycles of both programs. With
    ``qemu`` there is the comparison of the bundle's outputs in QEMU with those of the host."""
    import torch
    from torch.utils import _pytree as pytree

    import openneutron
    from openneutron import CompileOptions, InputOptions
    from openneutron.pytorch.frames import FrameModel
    from openneutron.pytorch.source.exporting import ModelInputs

    inputs = InputOptions(format="uint8,nhwc,bgr", normalize=normalize)
    wrapped = FrameModel(model, ModelInputs((torch.zeros(1, 3, size, size),), {}), inputs, "net")
    frames = [
        (each * 255).round().to(torch.uint8).flip(1).permute(0, 2, 3, 1).contiguous()
        for each in pictures(CALIBRATION + SAMPLES, size)
    ]
    given = [wrapped.frames.real(each) for each in frames]

    def results(run: Any, samples: list[Any]) -> list[Any]:
        """Return each output for all samples."""
        rows = [[torch.as_tensor(value).double() for value in pytree.tree_leaves(run(sample))] for sample in samples]
        return [torch.cat(column) for column in zip(*rows, strict=True)]

    with torch.no_grad():
        expected = results(model, given[CALIBRATION:])
    found = {}
    for name, samples, others in (("pictures", given, {}), ("frames", frames, {"inputs": inputs})):
        options = CompileOptions(target=target)
        made = openneutron.compile(model, given[0], calibration=samples[:CALIBRATION], options=options, **others)
        pairs = zip(expected, results(made.run, samples[CALIBRATION:]), strict=True)
        found[name] = {
            "on_cpu": len(made.delegation.on_cpu),
            "db": [10 * math.log10(float((right**2).sum() / ((right - got) ** 2).sum())) for right, got in pairs],
            "cycles": sum(part.compiled.report.cycles for part in made.partitions),
        }
    if qemu:
        found["qemu"] = in_qemu(made)
    return found


def in_qemu(program: Any) -> str:
    """Return the comparison of each output that the example of a program's bundle prints in QEMU."""
    import openneutron
    from tests.export.bundles import built, run

    with tempfile.TemporaryDirectory() as folder:
        openneutron.export_bundle(program, Path(folder) / "bundle")
        built(Path(folder) / "bundle")
        done = run(Path(folder) / "bundle")
    said = (done.stdout + done.stderr).splitlines()
    return ", ".join(line.partition(": ")[2] for line in said if "as expected" in line) or "failed"


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the heads and lines of the printed table."""
    heads = (
        "network",
        "on the CPU",
        "dB of pictures",
        "dB of frames",
        "cycles of pictures",
        "cycles of frames",
        "QEMU",
    )
    return heads, [
        (
            name,
            f"{item['pictures']['on_cpu']}, {item['frames']['on_cpu']}",
            *(", ".join(f"{db:.2f}" for db in item[kind]["db"]) for kind in ("pictures", "frames")),
            *(f"{item[kind]['cycles']:,}" for kind in ("pictures", "frames")),
            item.get("qemu", ""),
        )
        for name, item in results.items()
    ]
