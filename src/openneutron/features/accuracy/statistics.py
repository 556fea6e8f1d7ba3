# SPDX-License-Identifier: BSD-3-Clause
"""Sums over the samples, for each layer: signal, noise, ranges, saturation, and the noise at the model's results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from openneutron.features.accuracy.report import LayerAccuracy, WorstChannel, decibels
from openneutron.features.accuracy.twins import Layer
from openneutron.pytorch.quantizer.observers import LARGEST_SIGNAL


@dataclass(slots=True, eq=False)
class Sums:
    """The sums of one layer."""

    signal: float = 0.0
    local: float = 0.0
    accumulated: float = 0.0
    at_results: float = 0.0
    """The noise at the model's results, over the samples that were run for this."""
    values: int = 0
    saturated: int = 0
    low: float = math.inf
    high: float = -math.inf
    noise_by_channel: torch.Tensor | None = field(default=None, repr=False)
    saturated_by_channel: torch.Tensor | None = field(default=None, repr=False)

    def see(self, layer: Layer, real: torch.Tensor) -> None:
        """Count the float values of a sample."""
        low, high = layer.bounds
        half = layer.scale / 2
        kept = usable(real)
        outside = (kept < low - half) | (kept > high + half)
        self.signal += power(kept)
        self.values += kept.numel()
        self.saturated += int(outside.sum())
        if kept.numel():
            self.low, self.high = min(self.low, float(kept.min())), max(self.high, float(kept.max()))
        axis = layer.channel_axis
        if axis is not None:
            counted = outside.to(torch.float64).sum(_others(kept, axis))
            before = self.saturated_by_channel
            self.saturated_by_channel = counted if before is None else before + counted

    def own(self, layer: Layer, noise: torch.Tensor) -> None:
        """Count the noise of the layer alone, by channel."""
        axis = layer.channel_axis
        if axis is not None:
            counted = noise.double().square().sum(_others(noise, axis))
            before = self.noise_by_channel
            self.noise_by_channel = counted if before is None else before + counted

    def worst(self) -> WorstChannel | None:
        """Return the channel with the most noise; None where there is no noise or only one channel."""
        noise, saturated = self.noise_by_channel, self.saturated_by_channel
        if noise is None or saturated is None or noise.numel() < 2 or not float(noise.sum()):
            return None
        channel = int(noise.argmax())
        each = self.values / noise.numel()
        return WorstChannel(channel, float(noise[channel] / noise.sum()), float(saturated[channel]) / max(1.0, each))


def _others(tensor: torch.Tensor, axis: int) -> tuple[int, ...]:
    return tuple(other for other in range(tensor.dim()) if other != axis)


def usable(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with zeros for infinities and the fillers of masks, which carry no signal."""
    tensor = torch.nan_to_num(tensor.detach(), 0.0, 0.0, 0.0)
    return torch.where(tensor.abs() <= LARGEST_SIGNAL, tensor, torch.zeros(()))


def power(tensor: torch.Tensor) -> float:
    """Return the sum of squares."""
    return float(torch.linalg.vector_norm(tensor.double()).square()) if tensor.numel() else 0.0


def difference(real: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the noise in ``other``: zero where the float value is infinite or a filler."""
    real = real.detach()
    known = real.isfinite() & (real.abs() <= LARGEST_SIGNAL)
    return torch.where(known, torch.nan_to_num(other) - torch.nan_to_num(real), torch.zeros(()))


def rows(
    layers: Sequence[Layer], sums: Mapping[Any, Sums], on_npu: set[Any], signal: float
) -> tuple[LayerAccuracy, ...]:
    """Return the layers, those that cost most first. ``signal`` is that of the results, over the samples of ``at_results``."""
    whole = sum(found.at_results for found in sums.values())
    made = []
    for layer in layers:
        found = sums[layer]
        made.append(
            LayerAccuracy(
                name=layer.name,
                node=layer.lead.name,
                operator=layer.operator,
                on_npu=layer.quantize in on_npu,
                scale=layer.scale,
                zero_point=layer.zero_point,
                local_db=decibels(found.signal, found.local),
                accumulated_db=decibels(found.signal, found.accumulated),
                result_db=decibels(signal, found.at_results),
                noise_share=found.at_results / whole if whole else 0.0,
                saturated=found.saturated / found.values if found.values else 0.0,
                calibrated=layer.bounds,
                seen=(found.low, found.high) if found.values else (0.0, 0.0),
                worst_channel=found.worst(),
            )
        )
    made.sort(key=lambda item: (-item.noise_share, math.inf if item.local_db is None else item.local_db))
    return tuple(made)
