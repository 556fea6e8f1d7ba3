# SPDX-License-Identifier: BSD-3-Clause
"""Cascades: runs of calls computed stripe by stripe through rolling buffers, where whole tensors do not fit the budget."""
