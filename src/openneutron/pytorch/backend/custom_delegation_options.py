# SPDX-License-Identifier: BSD-3-Clause
"""The delegation options of ExecuTorch's NXP backend."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CustomDelegationOptions:
    """The delegation options of ExecuTorch's NXP backend.

    ``allow_no_op_partitions``: True delegates partitions that neither move nor compute a value.

    >>> CustomDelegationOptions(allow_no_op_partitions=True).allow_no_op_partitions
    True
    """

    allow_no_op_partitions: bool = False
