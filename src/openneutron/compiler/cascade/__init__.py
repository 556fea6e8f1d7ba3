# SPDX-License-Identifier: BSD-3-Clause
"""Cascades: runs of calls computed stripe by stripe through rolling buffers, where whole tensors do not fit the budget."""

from openneutron.compiler.cascade.choose import Option, Options
from openneutron.compiler.cascade.in_place import in_place

__all__ = ["Option", "Options", "in_place"]
