# SPDX-License-Identifier: BSD-3-Clause
"""Schedules for an NPU that works on a memory of its own: tensors move between it and external memory in tiles."""
