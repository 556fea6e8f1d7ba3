# SPDX-License-Identifier: BSD-3-Clause
"""Export of compiled models as folders from which firmware is built."""

from openneutron.features.export.bundle import Bundle, export_bundle
from openneutron.features.export.forms import FORMS

__all__ = ["FORMS", "Bundle", "export_bundle"]
