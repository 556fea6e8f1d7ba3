# SPDX-License-Identifier: BSD-3-Clause
"""What a user may decide about delegation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CustomDelegationOptions:
    """allow_no_op_partitions: delegate even a partition that moves no value and computes nothing."""

    allow_no_op_partitions: bool = False
