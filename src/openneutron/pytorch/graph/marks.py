# SPDX-License-Identifier: BSD-3-Clause
"""Keys of ``node.meta["custom"]``, which torch.export and ExecuTorch's passes keep: notes of one stage for a later one."""

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
