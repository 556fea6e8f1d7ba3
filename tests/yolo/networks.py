# SPDX-License-Identifier: BSD-3-Clause
"""Compile Ultralytics' networks with random weights, and compare their boxes with those of the float networks.

    python -m tests.yolo.networks [--size 640] [--chips imx95,imxrt700] [NAME...]

The networks are made from Ultralytics' own YAML files, with random weights that find boxes (tests/support/random_yolo.py): seed 0, weights
of low rank (--full-rank: Ultralytics' own), batch normalizations calibrated on 16 made pictures of the size, and class biases that leave 1%
of the anchors above a score of 0.5. Each is calibrated on these pictures. A line for each chip has the partitions, the operators of the
network on the NPU and on the CPU, and how many boxes of another picture agree.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import torch

import openneutron
from openneutron import CompileOptions, LoadingOptions
from openneutron.features.accuracy.boxes import agreement
from openneutron.pytorch.yolo import CONFIDENCE, staged
from tests.support import ultralytics_alone
from tests.support.random_yolo import make_low_rank, pictures, with_boxes

NETWORKS = (
    "yolov8n", "yolo11n", "yolo26n", "yolov8n-seg", "yolo11n-seg", "yolo26n-seg", "yolov8n-pose", "yolo11n-pose", "yolo26n-pose",
)  # fmt: skip


PICTURES = 16


def measure(name: str, size: int, chips: list[str], low_rank: bool = True) -> None:
    """Compile one network for each chip, and print its lines."""
    from ultralytics import YOLO  # type: ignore[import-not-found]

    torch.manual_seed(0)
    *samples, picture = pictures(PICTURES + 1, size)
    network = with_boxes(make_low_rank(YOLO(f"{name}.yaml").model) if low_rank else YOLO(f"{name}.yaml").model, samples)
    shapes = {"images": (1, 3, size, size)}
    whole = staged(network, name, LoadingOptions(input_shapes=shapes))
    assert whole.later is not None
    with torch.no_grad():
        wanted = whole(picture)[0][0]
    for chip in chips:
        begun = time.process_time()
        program = openneutron.compile(
            network,
            calibration=samples,
            loading=LoadingOptions(input_shapes=shapes, head="raw"),
            options=CompileOptions(target=chip),
            name=name,
        )
        seconds = time.process_time() - begun
        with torch.no_grad():
            got = whole.later(*(torch.as_tensor(item) for item in program.run(picture)))[0][0]
        on_cpu = Counter(f"{item.operator}: {item.reason}" for item in program.delegation.on_cpu)
        print(
            f"{name} {size} {chip}: {len(program.partitions)} partition(s), {len(program.delegation.on_npu)} operators on the NPU, "
            f"{sum(on_cpu.values())} on the CPU; {agreement([(wanted, got)], CONFIDENCE)}; {seconds:.0f} CPU-s",
            flush=True,
        )
        print("   ", "; ".join(f"result {item.index} {item.db} dB" for item in program.outputs), flush=True)
        for reason, count in on_cpu.items():
            print(f"    {count} {reason}", flush=True)


def main() -> None:
    """Measure the networks that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=640)
    parser.add_argument("--chips", default="imx95,imxrt700")
    parser.add_argument("--full-rank", action="store_true")
    parser.add_argument("names", nargs="*", default=NETWORKS)
    given = parser.parse_args()
    with ultralytics_alone.usable():
        for name in given.names:
            measure(name, given.size, given.chips.split(","), not given.full_rank)


if __name__ == "__main__":
    main()
