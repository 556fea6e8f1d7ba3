# SPDX-License-Identifier: BSD-3-Clause
"""Cascades: runs of calls computed stripe by stripe through rolling buffers, where whole tensors do not fit the budget."""

from openneutron.compiler.search.cascade.choose import CascadeSchedule, CascadeSearch

__all__ = ["CascadeSchedule", "CascadeSearch"]
