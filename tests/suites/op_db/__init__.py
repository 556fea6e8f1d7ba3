# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's own samples of every operator (``op_db``), compiled and run."""
