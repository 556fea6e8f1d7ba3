# SPDX-License-Identifier: BSD-3-Clause
"""The facts about a chip. Every number carries its source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Number:
    """A figure with its unit and where it comes from: "published", "secondary", "fitted" or "assumed", and by whom."""

    value: float
    unit: str
    source: str

    def __str__(self) -> str:
        return f"{self.value:g} {self.unit}"


@dataclass(frozen=True, slots=True)
class Costs:
    """Constants of the cost model (compiler/cost/cycles.py)."""

    issue_cycles: Number
    """The host core's cycles for each kernel call."""
    elementwise_bytes: Number
    """Bytes of output per cycle of kernels that only move or rescale values."""
    softmax_cycles: Number
    """Cycles per element of a softmax."""
    flash_bytes: Number
    """Bytes per cycle copied from flash to SRAM."""
    error: Number
    """The largest difference of a modelled latency from a measured one, either way, in parts of the measured one."""


@dataclass(frozen=True, slots=True)
class Target:
    """A chip with a Neutron NPU.

    ``subsystem`` is true for Neutron-S (an NPU with a controller of its own); the fields down to ``hw_version`` are those
    ExecuTorch's NXP backend shows. ``obstacle``: the reason why this project does not compile for the chip; None: it does.
    """

    name: str
    title: str
    subsystem: bool
    units: int
    pipelines: int
    macs: int
    hw_version: str
    clock: Number
    sram: Number
    costs: Costs | None
    obstacle: str | None = None

    @property
    def macs_per_cycle(self) -> int:
        return self.units * self.pipelines * self.macs

    def milliseconds(self, cycles: float) -> float:
        """Return the time of so many cycles at the NPU's clock."""
        return cycles / (self.clock.value * 1e6) * 1e3

    def band(self, cycles: float) -> tuple[float, float]:
        """Return the milliseconds from which so many modelled cycles are off by no more than the error, the least and the most."""
        assert self.costs is not None, f"{self.name} has no cost constants"
        time, share = self.milliseconds(cycles), self.costs.error.value / 100
        return time / (1 + share), time / (1 - share)
