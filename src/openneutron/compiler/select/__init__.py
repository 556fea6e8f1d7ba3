# SPDX-License-Identifier: BSD-3-Clause
"""Legalized graphs to kernel calls on views of tensors."""
