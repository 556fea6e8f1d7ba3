# SPDX-License-Identifier: BSD-3-Clause
"""OpenNeutron: PyTorch and LiteRT models to NXP eIQ Neutron class NPUs, with open parts alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openneutron.export import export_bundle as export_bundle
    from openneutron.pytorch.compile import compile as compile

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # torch takes seconds to import, and the compiler path must work without it.
    if name == "compile":
        from openneutron.hushed import hushed

        with hushed():
            from openneutron.pytorch.compile import compile

        return compile
    if name == "export_bundle":
        from openneutron.export import export_bundle

        return export_bundle
    raise AttributeError(f"module 'openneutron' has no attribute '{name}'")
