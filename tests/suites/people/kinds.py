# SPDX-License-Identifier: BSD-3-Clause
"""The kinds of cases, in the order of the page, and the modules that fill the table."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "vision": "Images",
        "detect": "Detectors and decoders",
        "series": "Sounds and sensors",
        "text": "Attention, masks and tokens",
        "states": "States and streams",
        "several": "Several inputs and outputs",
        "integers": "Integers and booleans",
        "functions": "Functions and ranges",
        "architectures": "Architectures of papers",
        "forms": "Models as they come",
        "files": "Files",
    }
)

for _name in KINDS:
    import_module(f"tests.suites.people.{_name}")
