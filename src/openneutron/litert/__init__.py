# SPDX-License-Identifier: BSD-3-Clause
"""LiteRT flatbuffers to and from graphs, through ai-edge-litert's schema."""

from openneutron.litert.read import LiteRTModel, read
from openneutron.litert.write import write

__all__ = ["LiteRTModel", "read", "write"]
