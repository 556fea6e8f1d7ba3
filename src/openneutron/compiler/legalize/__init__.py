# SPDX-License-Identifier: BSD-3-Clause
"""Partition a graph between the NPU and the CPU, and rewrite the graph of a partition for the kernels (legalize)."""
