# SPDX-License-Identifier: BSD-3-Clause
"""The properties of a target, with the interface of ExecuTorch's NXP backend."""

from __future__ import annotations

import re
import warnings
from enum import Enum

from openneutron import targets

FLAVOR = "neutron_converter_flavor"
"""The option of ExecuTorch 1.0's and 1.1's NXP backend that selected the release of NXP's converter."""

FLAVORS = re.compile(r"SDK_\d+_\d+")
"""The form of a flavor: the package ``neutron_converter_SDK_25_09`` has the flavor ``SDK_25_09``."""


class NeutronHWVersion(Enum):
    """Generations of the NPU."""

    N1 = 1
    N3 = 2


class NeutronTargetSpec:
    """The properties of a target, selected by name; the default is ``targets.DEFAULT``.

    ``target`` is the name of a target, or the path of a file that describes a chip. ``neutron_target`` is the row of
    ``openneutron.targets``. Raises InvalidTargetError (a ValueError) for a target that is unknown or can't be compiled for.
    ``neutron_converter_flavor`` (of ExecuTorch 1.1) changes nothing, and a warning says so.

    >>> NeutronTargetSpec("imxrt700").get_num_macs()
    8
    """

    def __init__(self, target: str = targets.DEFAULT, neutron_converter_flavor: str | None = None) -> None:
        if neutron_converter_flavor is not None:
            warn_of_flavor(neutron_converter_flavor, stacklevel=2)
        self.neutron_target = targets.get(target)
        self._given = target

    def get_name(self) -> str:
        """Return the name of the target, or the path of its file, as it was given."""
        return self._given

    def is_subsystem(self) -> bool:
        """Return whether the NPU has a controller and a memory of its own."""
        return self.neutron_target.subsystem

    def get_num_units(self) -> int:
        """Return the number of NPU units."""
        return self.neutron_target.units

    def get_num_pipes(self) -> int:
        """Return the number of pipelines in a unit."""
        return self.neutron_target.pipelines

    def get_num_macs(self) -> int:
        """Return the number of multiply-accumulates that a pipeline computes in a cycle."""
        return self.neutron_target.macs

    def get_hw_version(self) -> NeutronHWVersion:
        """Return the generation of the NPU."""
        return NeutronHWVersion[self.neutron_target.hw_version]


def is_flavor(argument: object) -> bool:
    """Return whether an argument has the form of a flavor of NXP's converter, which ExecuTorch 1.0 and 1.1 take as the second
    positional argument."""
    return isinstance(argument, str) and FLAVORS.fullmatch(argument) is not None


def flavor_note(flavor: str) -> str:
    """Return the sentences of a message about a flavor, without the name of the option."""
    return (
        f"'{flavor}' changes nothing. The release of NXP's converter is that of the installed eiq_neutron_sdk; "
        "whether it compiles, or this project's compiler, is set by options=CompileOptions(converter='eiq')."
    )


def warn_of_flavor(flavor: str, stacklevel: int) -> None:
    """Warn that ``neutron_converter_flavor`` changes nothing."""
    warnings.warn(f"{FLAVOR}: {flavor_note(flavor)}", FutureWarning, stacklevel=stacklevel + 1)
