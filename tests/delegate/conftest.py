# SPDX-License-Identifier: BSD-3-Clause
"""Leaves out what needs ExecuTorch's own source where there is none; the first lines of a run say so."""

from __future__ import annotations

from tests.support import stock

collect_ignore = [] if stock.sources() else ["test_stock_delegate.py"]
