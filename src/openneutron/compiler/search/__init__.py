# SPDX-License-Identifier: BSD-3-Clause
"""The schedule for a budget, searched among whole tensors, cascades and constant prefetches."""
