# SPDX-License-Identifier: BSD-3-Clause
"""Read LiteRT flatbuffers as graphs and write graphs as flatbuffers, through ai-edge-litert's schema."""

from openneutron.litert.read import LiteRTModel, read
from openneutron.litert.write import write

__all__ = ["LiteRTModel", "read", "write"]
