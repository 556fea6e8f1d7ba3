# SPDX-License-Identifier: BSD-3-Clause
"""Compiled models as folders that firmware is built of."""

from openneutron.features.export.bundle import Bundle, export_bundle
from openneutron.features.export.readme import PORTS

__all__ = ["PORTS", "Bundle", "export_bundle"]
