# SPDX-License-Identifier: BSD-3-Clause
"""Programs checked without data: what each byte stands for when it is read."""

from openneutron.compiler.emit.audit.audit import Audit, audit

__all__ = ["Audit", "audit"]
