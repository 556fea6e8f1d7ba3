# SPDX-License-Identifier: BSD-3-Clause
"""The parts of the package, in the order in which a model passes them."""

from __future__ import annotations

PARTS = (
    "errors",
    "ir",
    "targets",
    "ops",
    "isa",
    "options",
    "litert",
    "compiler",
    "device.files",
    "device.third_party",
    "device.timings",
    "device.pte",
    "device.data",
    "device.cache",
    "device.runtime_sources",
    "device.simulator",
    "device.converter",
    "device.mixed",
    "pytorch",
    "features.sweep",
    "features.report",
    "features.evaluation",
    "features.profile",
    "features.accuracy",
    "features.export",
    "features.compat",
    "api",
    "features.explorer",
    "features.demo",
    "cli",
    "__main__",
)
"""A part imports itself and the parts before it. Of ``device`` and ``features`` each folder is a part."""

ONLY: dict[str, set[str]] = {
    "ir": {"errors"},
    "targets": {"errors"},
    "isa": {"errors"},
    "ops": {"errors", "ir", "targets"},
    "options": {"errors", "targets"},
    "litert": {"errors", "ir", "ops", "isa"},
    "compiler": {"errors", "options", "ir", "targets", "ops", "isa"},
    "device.files": {"errors"},
    "device.third_party": {"errors"},
    "device.timings": {"options"},
    "device.pte": {"errors", "isa"},
    "device.cache": {"errors", "options", "ir", "isa", "targets", "compiler", "device.files"},
    "device.runtime_sources": {"errors", "isa"},
    "device.simulator": {"errors", "isa"},
    "device.data": {"errors", "ir", "device.files", "device.pte"},
    "features.sweep": {"errors", "options", "targets", "device.files", "device.timings"},
}
"""Parts that import fewer of those before them."""

SPLIT = ("device", "features")


def part_of(module: str) -> str:
    """Return ``compiler`` for ``openneutron.compiler.place.place``, ``device.pte`` for ``openneutron.device.pte``.

    The package itself is ``openneutron``.
    """
    names = module.split(".")[1:]
    return ".".join(names[: 2 if names and names[0] in SPLIT else 1]) or "openneutron"
