# SPDX-License-Identifier: BSD-3-Clause
"""Edge dialect programs to graphs with LiteRT's semantics."""
