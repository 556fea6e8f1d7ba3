# SPDX-License-Identifier: BSD-3-Clause
"""The networks of ``aot_neutron_compile`` by name, and their samples for calibration, training and tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from openneutron.device.third_party import suppressed
from openneutron.errors import InvalidModelError, InvalidOptionError, MissingToolError
from openneutron.options import DataOptions
from openneutron.pytorch.source import models
from openneutron.pytorch.source.calibration_data import CalibrationData
from openneutron.pytorch.source.exporting import ModelInputs, first_line

Samples = Sequence[tuple[torch.Tensor, ...]]

ALIASES = {"cifar10": "cifarnet", "mobilenetv2": "mobilenet_v2"}
"""Built-in models by the names of ExecuTorch's example."""

SAMPLES = 32
"""The count of generated inputs for calibration, training and tests of a built-in model, whose weights are random
too."""

EPOCHS, STEP = 2, 1e-4
"""Training parameters: the epochs of ExecuTorch's example, and the change of a weight in one step as a fraction of the
mean magnitude of its tensor. Gradients of untrained networks differ by orders of magnitude between layers."""


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A module in eval mode with its example inputs. ``built_in``: its name among the built-in models; None for one of
    ExecuTorch's examples."""

    name: str
    module: nn.Module = field(repr=False)
    inputs: tuple[torch.Tensor, ...] = field(repr=False)
    built_in: str | None

    def samples(self) -> list[tuple[torch.Tensor, ...]]:
        """Return generated inputs; for one of ExecuTorch's examples, its example inputs."""
        return [self.inputs] if self.built_in is None else models.samples(self.built_in, SAMPLES)


def names() -> list[str]:
    """Return the names of the built-in models; ExecuTorch's examples are not listed."""
    return [*ALIASES, *(name for name in models.names() if name not in ALIASES.values())]


def find(name: str) -> Network:
    """Return the network.

    Raises InvalidModelError where no network has this name, MissingToolError where one of ExecuTorch's examples needs a
    package that is not installed.
    """
    built_in = ALIASES.get(name, name)
    if built_in in models.names():
        module, inputs = models.get(built_in)
        return Network(name, module, inputs, built_in)
    with suppressed():
        from executorch.examples.models import MODEL_NAME_TO_MODEL
        from executorch.examples.models.model_factory import EagerModelFactory

        if name not in MODEL_NAME_TO_MODEL:
            raise InvalidModelError(
                f"--model_name: there is no model '{name}'; there are {', '.join(names())}, and those of "
                "executorch.examples.models."
            )
        try:
            module, inputs, _, _ = EagerModelFactory.create_model(*MODEL_NAME_TO_MODEL[name])
        except ModuleNotFoundError as error:
            raise MissingToolError(
                f"--model_name: '{name}' of executorch.examples.models takes the package '{error.name}', which is not "
                "installed. Install it, or pass the model to openneutron.compile."
            ) from error
        except Exception as error:  # they download weights, and each fails in its own way without
            raise InvalidModelError(
                f"--model_name: '{name}' of executorch.examples.models can't be made: {first_line(error)} "
                f"({type(error).__name__})."
            ) from error
    return Network(name, module.eval(), tuple(inputs), None)


def data_set(data: str, network: Network) -> list[tuple[torch.Tensor, ...]]:
    """Return the samples of a folder, an archive or a loader. Raises InvalidOptionError where they don't fit the network."""
    call = ModelInputs(network.inputs, {})
    return list(CalibrationData.of(data, call, DataOptions(), "--dataset_path"))


def train(network: Network, module: Any, samples: Samples) -> None:
    """Train a prepared module in place towards the float model's outputs for these inputs."""
    rates = [{"params": [item], "lr": STEP * float(item.detach().abs().mean())} for item in module.parameters()]
    optimizer = torch.optim.Adam(rates)
    for _ in range(EPOCHS):
        for sample in samples:
            with torch.no_grad():
                wanted = network.module(*sample)
            optimizer.zero_grad()
            nn.functional.mse_loss(module(*sample), wanted).backward()
            optimizer.step()


def agreement(network: Network, module: Any, samples: Samples) -> float:
    """Return the share of inputs, between 0 and 1, for which the module and the float model predict the same class.

    Raises InvalidOptionError where the model is not a classifier.
    """
    same = 0
    with torch.no_grad():
        for sample in samples:
            wanted, found = network.module(*sample), module(*sample)
            if not isinstance(wanted, torch.Tensor) or wanted.dim() != 2:
                raise InvalidOptionError(
                    f"--test: '{network.name}' is not a classifier, whose output is [batch, classes]. Leave it out."
                )
            same += int(torch.equal(found.argmax(1), wanted.argmax(1)))
    return same / len(samples)
