# SPDX-License-Identifier: BSD-3-Clause
"""The pass that replaces nodes that depend only on constants."""

from openneutron.pytorch.quantizer.passes.constants import FoldConstants as RemoveNodesWithKnownOutputs

__all__ = ["RemoveNodesWithKnownOutputs"]
