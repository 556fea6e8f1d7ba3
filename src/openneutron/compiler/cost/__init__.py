# SPDX-License-Identifier: BSD-3-Clause
"""The modelled cycles of kernel calls and copies."""
