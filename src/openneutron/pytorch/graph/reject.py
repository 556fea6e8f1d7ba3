# SPDX-License-Identifier: BSD-3-Clause
"""Reasons why a node stays on the CPU."""

from __future__ import annotations

from dataclasses import dataclass

QUANTIZE_FIRST = "Quantize it with NeutronQuantizer."
"""The way out where a model came to the partitioner without quantization that it should have."""

WITH_INTEGERS = "The NPU's operators on integers and booleans are those of indices, positions and conditions."
"""The hint where the operator would have to compute with integers or booleans."""

REWRITE = "Write it with operators that docs/supported-ops.md lists."


@dataclass(frozen=True, slots=True)
class Reject:
    """The reason of a CPU fallback, in words that continue the name of the node, and a suggestion. ``rule``: what said so, a
    lowering rule or a stage."""

    reason: str
    hint: str = ""
    rule: str = ""


class Rejected(Exception):
    """Ends a rule from inside; ``lower`` turns it into the Reject it carries."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reject = Reject(reason, hint)


KEPT_FLOAT = "kept_float"
"""The user's call that keeps the node float."""

LEFT_FLOAT = "left_float"
"""True on nodes that the quantizer examined and has no rule for."""

STAYS_WHOLE = "stays_whole"
"""The reason why a decomposable operator stayed whole: the reason, and a
suggestion."""

WRITTEN_AS = "written_as"
"""The operator that a node of a decomposition was made from."""

NOT_DELEGATED = "not_delegated"
"""The name in operators_not_to_delegate that a node goes by before it is taken apart."""
