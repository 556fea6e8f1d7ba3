# SPDX-License-Identifier: BSD-3-Clause
"""The target as ExecuTorch's NXP backend shows it."""

from __future__ import annotations

from enum import Enum

from openneutron import targets


class NeutronHWVersion(Enum):
    """Generations of the NPU."""

    N1 = 1
    N3 = 2


class NeutronTargetSpec:
    """A target's properties, by its name.

    ``neutron_target`` is the row of ``openneutron.targets``. Raises InvalidTargetError (a ValueError) for a name that is
    unknown or not compiled for.
    """

    def __init__(self, target: str) -> None:
        self.neutron_target = targets.get(target)

    def get_name(self) -> str:
        return self.neutron_target.name

    def is_subsystem(self) -> bool:
        return self.neutron_target.subsystem

    def get_num_units(self) -> int:
        return self.neutron_target.units

    def get_num_pipes(self) -> int:
        return self.neutron_target.pipelines

    def get_num_macs(self) -> int:
        return self.neutron_target.macs

    def get_hw_version(self) -> NeutronHWVersion:
        return NeutronHWVersion[self.neutron_target.hw_version]
