# SPDX-License-Identifier: BSD-3-Clause
"""Graphs to legalized graphs: what goes to the NPU, and the compositions that replace its operators."""
