# SPDX-License-Identifier: BSD-3-Clause
"""The part of NXP's ``eiq_neutron_sdk`` that ExecuTorch's NXP backend calls, implemented with this project's compiler.

After ``openneutron.features.compat.eiq_neutron_sdk.install()`` an unmodified ``executorch.backends.nxp`` imports, quantizes, partitions and
lowers as before, and this project compiles its partitions. Names, attributes and file names are the SDK's; the package has
no code of the SDK and makes this project's microcode.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

from openneutron.errors import InvalidOptionError
from openneutron.features.compat.eiq_neutron_sdk import neutron_converter, neutron_library_utils
from openneutron.features.compat.eiq_neutron_sdk.neutron_library_utils import merge_kernel_selection_files

NAME = "eiq_neutron_sdk"

SEARCH_PATH = str(Path(__file__).parents[1] / "search_path")
"""A folder with a package ``eiq_neutron_sdk``, whose import calls ``install``. Child processes that multiprocessing starts by
spawn or forkserver inherit ``sys.path`` from their parent, but not ``sys.modules``."""


def install() -> None:
    """Make ``import eiq_neutron_sdk`` import this package, in this process and in children that it starts with
    multiprocessing.

    A second call changes nothing. NXP's own SDK may be installed. Raises InvalidOptionError where that SDK is imported
    already.
    """
    there = sys.modules.get(NAME)
    if there is not None and there is not sys.modules[__name__]:
        raise InvalidOptionError(
            f"{NAME}: another package of this name is imported already ({there.__file__}). "
            f"Call {__name__}.install() before anything imports it."
        )
    sys.modules.update(_modules())
    if SEARCH_PATH not in sys.path:
        sys.path.insert(0, SEARCH_PATH)


def uninstall() -> None:
    """Revert ``install``. Modules that imported this package in the meantime keep it."""
    for name, module in _modules().items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
    if SEARCH_PATH in sys.path:
        sys.path.remove(SEARCH_PATH)


def _modules() -> dict[str, ModuleType]:
    parts = (sys.modules[__name__], neutron_converter, neutron_library_utils)
    return {NAME + part.__name__.removeprefix(__name__): part for part in parts}


__all__ = ["install", "merge_kernel_selection_files", "neutron_converter", "neutron_library_utils", "uninstall"]
