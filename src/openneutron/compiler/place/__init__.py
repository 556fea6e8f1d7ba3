# SPDX-License-Identifier: BSD-3-Clause
"""Addresses of buffers, and copies of constants to SRAM."""
