# SPDX-License-Identifier: BSD-3-Clause
"""The parts of the package, in the order in which a model passes them."""

from __future__ import annotations

from pathlib import Path

FEATURES = Path(__file__).parents[2] / "src" / "openneutron" / "features"

BELOW_API = ("report", "sweep", "detection", "evaluation", "profile", "accuracy", "export", "compat")
"""The features that the functions of ``openneutron`` use, in their order; the others stand behind ``api``."""

_ABOVE_API = sorted({path.parent.name for path in FEATURES.glob("*/__init__.py")} - set(BELOW_API))

PARTS = (
    "errors",
    "ir",
    "targets",
    "ops",
    "isa",
    "device.neutron_jobs",
    "options",
    "litert",
    "compiler",
    "device.files",
    "device.third_party",
    "device.timings",
    "device.forms",
    "device.pte",
    "device.data",
    "device.cache",
    "device.runtime_sources",
    "device.device_model",
    "device.simulator",
    "device.converter",
    "device.mixed",
    "language",
    "pytorch",
    *(f"features.{name}" for name in BELOW_API),
    "api",
    "llm",
    "speech",
    *(f"features.{name}" for name in _ABOVE_API),
    "cli",
    "commands",
    "__main__",
)
"""A part imports itself and the parts before it. Of ``device`` and ``features`` each folder is a part.

``commands`` has the module ``command`` of each feature: it uses the frame of ``cli``, which loads it by its name alone.
"""

ONLY: dict[str, set[str]] = {
    "ir": {"errors"},
    "targets": {"errors"},
    "isa": {"errors"},
    "ops": {"errors", "ir", "targets"},
    "options": {"errors", "targets"},
    "litert": {"errors", "ir", "ops", "isa"},
    "device.neutron_jobs": {"errors", "targets"},
    "compiler": {"errors", "options", "ir", "targets", "ops", "isa", "device.neutron_jobs"},
    "device.files": {"errors"},
    "device.third_party": {"errors"},
    "device.timings": {"options"},
    "device.forms": {"errors", "options", "device.files", "device.third_party"},
    "device.pte": {"errors", "isa"},
    "device.cache": {"errors", "options", "ir", "isa", "targets", "compiler", "device.files"},
    "device.runtime_sources": {"errors", "isa"},
    "device.simulator": {"errors", "isa", "device.device_model"},
    "device.device_model": {"errors", "device.neutron_jobs"},
    "device.data": {"errors", "ir", "device.files", "device.pte"},
    "features.sweep": {"errors", "options", "targets", "device.files", "device.timings", "features.report"},
}
"""Parts that import fewer of those before them."""

SPLIT = ("device", "features")


def is_command(module: str) -> bool:
    """Return whether a module is the command of a feature."""
    names = module.split(".")[1:]
    return names[:1] == ["features"] and names[2:3] == ["command"]


def part_of(module: str) -> str:
    """Return ``compiler`` for ``openneutron.compiler.place.place``, ``device.pte`` for ``openneutron.device.pte``.

    The package itself is ``openneutron``.
    """
    names = module.split(".")[1:]
    if is_command(module):
        return "commands"
    return ".".join(names[: 2 if names and names[0] in SPLIT else 1]) or "openneutron"
