# SPDX-License-Identifier: BSD-3-Clause
"""Read ``.pte`` files, ExecuTorch's programs, without ExecuTorch."""

from openneutron.pte.program import (
    BACKEND_ID,
    EXTENDED_HEADER,
    FILE_IDENTIFIER,
    Delegate,
    delegates,
    own_payloads,
    payloads,
)

__all__ = ["BACKEND_ID", "EXTENDED_HEADER", "FILE_IDENTIFIER", "Delegate", "delegates", "own_payloads", "payloads"]
