# SPDX-License-Identifier: BSD-3-Clause
"""Modules that several tests share: references, generators of graphs and files, and external tools."""
