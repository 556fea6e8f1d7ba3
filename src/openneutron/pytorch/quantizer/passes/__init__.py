# SPDX-License-Identifier: BSD-3-Clause
"""Passes on ATen graphs, before quantization."""
