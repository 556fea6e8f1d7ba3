# SPDX-License-Identifier: BSD-3-Clause
"""Lower edge dialect programs to graphs with LiteRT's semantics."""
