# SPDX-License-Identifier: BSD-3-Clause
"""Passes on edge programs, before and after delegation."""
