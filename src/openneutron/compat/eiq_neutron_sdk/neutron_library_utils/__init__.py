# SPDX-License-Identifier: BSD-3-Clause
"""The known targets."""

from __future__ import annotations

from openneutron import targets
from openneutron.compat.eiq_neutron_sdk.neutron_converter import NeutronTarget, getNeutronTarget


def isNeutronTarget(name: str) -> bool:
    """Return whether the target is known; ``openneutron.targets`` tells whether it can be compiled for."""
    return name in targets.KNOWN


def getNeutronTargets() -> list[NeutronTarget]:
    """Return all known targets."""
    return [getNeutronTarget(name) for name in targets.KNOWN]
