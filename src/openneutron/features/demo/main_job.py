# SPDX-License-Identifier: BSD-3-Clause
"""Train CifarNet on handwritten digits, compile it, and run every test image on the simulated NPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional

import openneutron
from openneutron.api.pytorch import CompiledModel
from openneutron.options import CompileOptions, Progress, QuantizationOptions
from openneutron.pytorch.source.models.small import CifarNet

SIDE = 32
"""The number of rows and of columns of CifarNet's input. The digits have 8 of each."""


@dataclass(frozen=True, slots=True, eq=False)
class Digits:
    """The pictures, float32 [N, 3, 32, 32] in [-1, 1], and their labels 0 to 9 [N], for training and for testing."""

    train: torch.Tensor
    train_labels: torch.Tensor
    test: torch.Tensor
    test_labels: torch.Tensor


def load(seed: int) -> Digits:
    """Return all 1,797 digits. A fifth of them is for testing, with the same share of each class."""
    digits = load_digits()
    # 8x8 pictures of grey levels 0 to 16, the same in all three colours
    grey = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
    pictures = functional.interpolate(grey, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    pictures = pictures.repeat(1, 3, 1, 1).contiguous()
    labels = torch.tensor(digits.target)
    train, test = train_test_split(
        torch.arange(len(labels)).numpy(), test_size=0.2, random_state=seed, stratify=digits.target
    )
    return Digits(pictures[train], labels[train], pictures[test], labels[test])


BATCH = 32
SHIFT = 3
"""The largest shift of training pictures, in pixels. Shifts keep the network from learning positions."""


@dataclass(frozen=True, slots=True)
class Course:
    """A schedule of training: the number of epochs, and the largest learning rate."""

    epochs: int
    learning_rate: float

    def steps(self, pictures: int) -> int:
        """Return the number of batches in the whole training."""
        return self.epochs * -(-pictures // BATCH)


FROM_NOTHING = Course(epochs=6, learning_rate=2e-3)
WITH_ROUNDING = Course(epochs=2, learning_rate=1e-4)
"""The schedule for a trained network whose quantization is now simulated. Few epochs suffice for it."""


def train(
    model: nn.Module,
    pictures: torch.Tensor,
    labels: torch.Tensor,
    seed: int,
    progress: Callable[[], None],
    course: Course = FROM_NOTHING,
) -> None:
    """Train a model that ends in a softmax, in place, and leave it in eval mode. ``progress`` is called after each batch."""
    generator = torch.Generator().manual_seed(seed)
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=course.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=course.learning_rate, total_steps=course.steps(len(pictures))
    )
    for _ in range(course.epochs):
        for chosen in torch.randperm(len(pictures), generator=generator).split(BATCH):
            rows, columns = torch.randint(-SHIFT, SHIFT + 1, (2,), generator=generator).tolist()
            moved = torch.roll(pictures[chosen], (rows, columns), dims=(2, 3))
            probabilities = model(moved)
            loss = functional.nll_loss(probabilities.clamp_min(1e-7).log(), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            progress()
    model.eval()


SEED = 0
CALIBRATION_IMAGES = 64

FLOAT, INT8, NPU = "float32 on the CPU", "int8 on the CPU", "int8 on the simulated NPU"
TRAINED_ON = "trained for int8, on the simulated NPU"


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The compiled network, and the class of every test image [N] for each way of running the network."""

    data: Digits
    program: CompiledModel
    classes: dict[str, torch.Tensor]

    def correct(self) -> dict[str, int]:
        """Return the number of correctly classified test images for each way of running the network."""
        return {where: int((found == self.data.test_labels).sum()) for where, found in self.classes.items()}

    def alike(self) -> int:
        """Return the number of test images that have the same class on the NPU and in int8 on the CPU."""
        return int((self.classes[INT8] == self.classes[NPU]).sum())


def run(qat: bool, progress: Progress) -> Outcome:
    """Train, compile and run the network, and return the outcome. With ``qat``, the network is then trained further
    with its quantization simulated, compiled and run again. The outcome then has the second program, and the classes
    found by both."""
    torch.manual_seed(SEED)
    data = load(SEED)
    model = CifarNet()
    train(model, data.train, data.train_labels, SEED, counting(progress, "Training", FROM_NOTHING, data))
    program = compiled(model, data, progress)
    classes = classify(model, program, data, progress)
    if qat:
        program = trained_on(model, data, progress)
        classes[TRAINED_ON] = classify_on_npu(program, data, progress)
    return Outcome(data, program, classes)


def compiled(model: nn.Module, data: Digits, progress: Progress) -> CompiledModel:
    """Compile the trained network for the NPU. With channels-last images the NPU need not transpose the input."""
    images = data.train[:CALIBRATION_IMAGES]
    program: CompiledModel = openneutron.compile(
        model,
        (data.test[:1],),
        calibration=[(image,) for image in images.split(1)],
        options=CompileOptions(target="imxrt700"),
        quantization=QuantizationOptions(channels_last=True),
        name="cifarnet",
        progress=progress,
    )
    return program


def trained_on(model: nn.Module, data: Digits, progress: Progress) -> CompiledModel:
    """Train a copy of the network further with its quantization simulated, and return its program. ``model`` is not
    changed."""
    images = data.train.contiguous(memory_format=torch.channels_last)
    after_batch = counting(progress, "Training with rounding", WITH_ROUNDING, data)
    program: CompiledModel = openneutron.compile(
        model,
        (data.test[:1],),
        quantization=QuantizationOptions(
            train_fn=lambda simulation: train(
                simulation, images, data.train_labels, SEED, after_batch, course=WITH_ROUNDING
            ),
            channels_last=True,
        ),
        options=CompileOptions(target="imxrt700"),
        name="cifarnet",
    )
    return program


def counting(progress: Progress, what: str, course: Course, data: Digits) -> Callable[[], None]:
    """Return a function that reports one more batch to ``progress``."""
    done = 0

    def after_batch() -> None:
        nonlocal done
        done += 1
        progress(what, done, course.steps(len(data.train)))

    return after_batch


def classify(model: nn.Module, program: CompiledModel, data: Digits, progress: Progress) -> dict[str, torch.Tensor]:
    """Return the class of every test image [N], for each way of running the network."""
    images = data.test.contiguous(memory_format=torch.channels_last)
    found: dict[str, list[torch.Tensor]] = {FLOAT: [], INT8: [], NPU: []}
    with torch.no_grad():
        for number, image in enumerate(images.split(1)):
            found[FLOAT].append(model(image).argmax(1))
            found[INT8].append(program.quantized(image).argmax(1))
            found[NPU].append(program.run(image)[0].argmax(1))
            progress("Running every test image", number + 1, len(images))
    return {where: torch.cat(classes) for where, classes in found.items()}


def classify_on_npu(program: CompiledModel, data: Digits, progress: Progress) -> torch.Tensor:
    """Return the class of every test image [N] on the simulated NPU."""
    found = []
    for number, image in enumerate(data.test.contiguous(memory_format=torch.channels_last).split(1)):
        found.append(program.run(image)[0].argmax(1))
        progress("Running every test image", number + 1, len(data.test))
    return torch.cat(found)
