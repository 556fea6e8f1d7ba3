# SPDX-License-Identifier: BSD-3-Clause
"""Compare programs that take a camera's frames with programs of the same networks that take normalized pictures."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

TITLE = "uint8 NHWC BGR frames for float NCHW pictures: operators on the CPU, dB against float, modelled cycles"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TARGETS = ("imxrt700", "imx95")
SAMPLES, CALIBRATION = 16, 8
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
    """Return the networks with their sizes and normalizations. MobileNetV2 and YOLO have random weights, and batch normalizations that are
    calibrated on pictures."""
    import torch
    from torch import nn

    from openneutron.options import LoadingOptions
    from openneutron.pytorch.source import models
    from openneutron.pytorch.yolo import staged
    from tests.support.random_yolo import with_boxes
    from tests.support.ultralytics_alone import usable

    normalized = f"mean={':'.join(map(str, MEAN))},std={':'.join(map(str, STD))}"
    mobilenet, _ = models.get("mobilenet_v2")
    for module in mobilenet.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None
    mobilenet.train()
    with torch.no_grad():
        mobilenet(torch.cat([pictures(1, 224, seed)[0] for seed in range(100, 108)]).sub(0.45).div(0.226))
    with usable():
        from ultralytics import YOLO

        torch.manual_seed(0)
        yolo = with_boxes(YOLO("yolo11n.yaml").model, pictures(8, 160, 1))
        heads = staged(yolo, "yolo11n", LoadingOptions(head="raw", input_shapes={"images": (1, 3, 160, 160)}))
    return {"MobileNetV2": (mobilenet.eval(), 224, normalized), "YOLO11n": (heads.eval(), 160, "std=1")}


def pictures(count: int, size: int, seed: int = 0) -> list[Any]:
    """Return smooth random pictures [1, 3, size, size] of whole bytes, as values from 0 to 1."""
    import torch

    draw, made = torch.Generator().manual_seed(seed), []
    for _ in range(count):
        coarse = torch.nn.functional.interpolate(
            torch.rand(1, 3, 7, 7, generator=draw), size=(size, size), mode="bicubic"
        )
        noisy = coarse + 0.05 * torch.randn(1, 3, size, size, generator=draw)
        made.append((noisy * 255).round().clamp(0, 255) / 255)
    return made


def figures(model: Any, size: int, normalize: str, target: str, qemu: bool) -> dict[str, Any]:
    """Return the operators on the CPU, the dB on other pictures than those of the calibration, and the cycles of both programs. With
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

    def joined(values: Any) -> Any:
        return torch.cat([torch.as_tensor(each).flatten().double() for each in pytree.tree_leaves(values)])

    with torch.no_grad():
        expected = torch.cat([joined(model(each)) for each in given[CALIBRATION:]])
    found = {}
    for name, samples, others in (("pictures", given, {}), ("frames", frames, {"inputs": inputs})):
        options = CompileOptions(target=target)
        made = openneutron.compile(model, given[0], calibration=samples[:CALIBRATION], options=options, **others)
        results = torch.cat([joined(made.run(each)) for each in samples[CALIBRATION:]])
        found[name] = {
            "on_cpu": len(made.delegation.on_cpu),
            "db": 10 * math.log10(float((expected**2).sum() / ((expected - results) ** 2).sum())),
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
            *(f"{item[kind]['db']:.2f}" for kind in ("pictures", "frames")),
            *(f"{item[kind]['cycles']:,}" for kind in ("pictures", "frames")),
            item.get("qemu", ""),
        )
        for name, item in results.items()
    ]
