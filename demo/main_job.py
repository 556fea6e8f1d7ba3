# SPDX-License-Identifier: BSD-3-Clause
"""Trains CifarNet on handwritten digits, compiles it, and runs every test image on the simulated NPU."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import openneutron
from demo import digits
from demo.train import FROM_NOTHING, WITH_ROUNDING, Course, train
from openneutron.api.pytorch import CompiledModel
from openneutron.cli.output import Steps
from openneutron.options import CompileOptions, QuantizationOptions
from openneutron.pytorch.source.models.small import CifarNet
from openneutron.report.text import summary_table

SEED = 0
CALIBRATION_IMAGES = 64
OUTPUT = Path("demo_output")
FILE = OUTPUT / "cifarnet.pte"


def main(qat: bool = False) -> None:
    torch.manual_seed(SEED)
    console = Console(highlight=False, soft_wrap=True)
    data = digits.load(SEED)
    console.print(
        f"[bold]CifarNet on handwritten digits[/]: {len(data.train):,} images to train with, {len(data.test)} to test with, "
        f"scaled up from 8x8 to {digits.SIDE}x{digits.SIDE}\n"
    )
    model = CifarNet()
    with Steps() as steps:
        train(model, data.train, data.train_labels, SEED, counting(steps, "Training", FROM_NOTHING, data))
        program = compiled(model, data, steps)
        classes = classify(model, program, data, steps)
        if qat:
            program = trained_on(model, data, steps)
            classes[TRAINED_ON] = classify_on_npu(program, data, steps)
    OUTPUT.mkdir(exist_ok=True)
    program.save(FILE)
    np.save(OUTPUT / "x.npy", data.test[:1].numpy())
    console.print()
    console.print(accuracy_table(classes, data.test_labels))
    console.print()
    console.print(summary_table(replace(program.report, file=str(FILE))))
    console.print()
    console.print(next_steps(int(data.test_labels[0])))


def compiled(model: nn.Module, data: digits.Digits, steps: Steps) -> CompiledModel:
    """The trained network for the NPU. Channels-last images spare the NPU a transposition at its border."""
    images = data.train[:CALIBRATION_IMAGES]
    return openneutron.compile(
        model,
        (data.test[:1],),
        calibration=[(image,) for image in images.split(1)],
        options=CompileOptions(target="imxrt700"),
        quantization=QuantizationOptions(channels_last=True),
        name="cifarnet",
        progress=steps,
    )


def trained_on(model: nn.Module, data: digits.Digits, steps: Steps) -> CompiledModel:
    """As ``compiled``, but from further training with the quantization simulated; the model itself stays as it is."""
    images = data.train.contiguous(memory_format=torch.channels_last)
    progress = counting(steps, "Training with rounding", WITH_ROUNDING, data)
    return openneutron.compile(
        model,
        (data.test[:1],),
        quantization=QuantizationOptions(
            train_fn=lambda simulation: train(
                simulation, images, data.train_labels, SEED, progress, course=WITH_ROUNDING
            ),
            channels_last=True,
        ),
        options=CompileOptions(target="imxrt700"),
        name="cifarnet",
    )


def counting(steps: Steps, what: str, course: Course, data: digits.Digits) -> Callable[[], None]:
    """Return a function that reports one more batch to ``steps``."""
    done = 0

    def after_batch() -> None:
        nonlocal done
        done += 1
        steps(what, done, course.steps(len(data.train)))

    return after_batch


FLOAT, INT8, NPU = "float32 on the CPU", "int8 on the CPU", "int8 on the simulated NPU"
TRAINED_ON = "trained for int8, on the simulated NPU"


def classify(model: nn.Module, program: CompiledModel, data: digits.Digits, steps: Steps) -> dict[str, torch.Tensor]:
    """The class of every test image [N], for each way of running the network."""
    images = data.test.contiguous(memory_format=torch.channels_last)
    found: dict[str, list[torch.Tensor]] = {FLOAT: [], INT8: [], NPU: []}
    with torch.no_grad():
        for number, image in enumerate(images.split(1)):
            found[FLOAT].append(model(image).argmax(1))
            found[INT8].append(program.quantized(image).argmax(1))
            found[NPU].append(program.run(image)[0].argmax(1))
            steps("Running every test image", number + 1, len(images))
    return {where: torch.cat(classes) for where, classes in found.items()}


def classify_on_npu(program: CompiledModel, data: digits.Digits, steps: Steps) -> torch.Tensor:
    """The class of every test image [N]."""
    found = []
    for number, image in enumerate(data.test.contiguous(memory_format=torch.channels_last).split(1)):
        found.append(program.run(image)[0].argmax(1))
        steps("Running every test image", number + 1, len(data.test))
    return torch.cat(found)


def accuracy_table(classes: dict[str, torch.Tensor], labels: torch.Tensor) -> Table:
    """One line for each way of running the network."""
    table = Table.grid(padding=(0, 3))
    table.add_column(style="cyan")
    table.add_column(justify="right")
    table.add_column(no_wrap=True)
    for where, found in classes.items():
        right = int((found == labels).sum())
        share = f"[bold]{100 * right / len(labels):.2f} %[/]"
        table.add_row(where, share, f"{right} of {len(labels)} test images")
    alike = int((classes[INT8] == classes[NPU]).sum())
    table.add_row("", "", f"{alike} of {len(labels)} alike on NPU and CPU")
    return table


def next_steps(label: int) -> str:
    """Return the next commands."""
    command = Path(sys.executable).parent / "openneutron"
    shown = command.relative_to(Path.cwd()) if command.is_relative_to(Path.cwd()) else command
    return (
        f"[bold]Next[/], with what is now in {OUTPUT}/ (x.npy is a handwritten {label}):\n\n"
        f"  {shown} run {FILE} --input {OUTPUT}/x.npy\n"
        f"  {shown} disasm {FILE}\n\n"
        "With your own network, where my_model.py has a function make() that returns the module and its example inputs,\n"
        "and images/ holds typical inputs as .npy files:\n\n"
        f"  {shown} explain my_model.py:make\n"
        f"  {shown} compile my_model.py:make --calibration images/ -o my_model.pte\n"
    )


if __name__ == "__main__":
    main()
