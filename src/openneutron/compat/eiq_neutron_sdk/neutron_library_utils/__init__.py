# SPDX-License-Identifier: BSD-3-Clause
"""Which targets there are."""

from __future__ import annotations

from openneutron import targets
from openneutron.compat.eiq_neutron_sdk.neutron_converter import NeutronTarget, getNeutronTarget


def isNeutronTarget(name: str) -> bool:
    """Whether the target is known; that it can be compiled for is another question, see ``openneutron.targets``."""
    return name in targets.KNOWN


def getNeutronTargets() -> list[NeutronTarget]:
    """All known targets."""
    return [getNeutronTarget(name) for name in targets.KNOWN]
