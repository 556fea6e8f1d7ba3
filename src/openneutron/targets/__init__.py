# SPDX-License-Identifier: BSD-3-Clause
"""Chips: one file each, every number with its source."""

from __future__ import annotations

import difflib
import importlib
import pkgutil

from openneutron.errors import InvalidTargetError
from openneutron.targets.imxrt700 import IMXRT700
from openneutron.targets.target import Costs, Number, Target


def all_targets() -> dict[str, Target]:
    """Return the TARGETS of every file of this package, by name."""
    files = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name != "target")
    modules = [importlib.import_module(f"{__name__}.{name}") for name in files]
    return {target.name: target for module in modules for target in module.TARGETS}


KNOWN: dict[str, Target] = all_targets()

DEFAULT = IMXRT700.name
"""The target where none is specified: the one that ExecuTorch's NXP backend compiles for."""


def names() -> list[str]:
    """Return the targets this project compiles for."""
    return [name for name, target in KNOWN.items() if target.obstacle is None]


def get(name: str) -> Target:
    """Return the target of this name. Raises InvalidTargetError where it is unknown or not one that can be compiled for."""
    target = KNOWN.get(name)
    if target is None:
        near = difflib.get_close_matches(name, KNOWN, 1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise InvalidTargetError(f"Target `{name}` is not a valid target. Must be one of `{names()}`.{hint}")
    if target.obstacle is not None:
        raise InvalidTargetError(f"Target `{name}` {target.obstacle}")
    return target


__all__ = ["DEFAULT", "KNOWN", "Costs", "Number", "Target", "get", "names"]
