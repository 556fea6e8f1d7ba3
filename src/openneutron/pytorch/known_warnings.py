# SPDX-License-Identifier: BSD-3-Clause
"""Warnings of torch, torchao and ExecuTorch about their own code, which their user can do nothing about.

They come while these packages are imported, and while ExecuTorch copies and writes programs: also in calls that a user
makes of ExecuTorch, where ``hushed`` has no hold. Each row names one message, so that every other warning is shown.
"""

from __future__ import annotations

import logging
import warnings

WARNINGS: tuple[tuple[str, type[Warning], str], ...] = (
    # exir/dialects/edge/_ops.py and exir/_serialize/_flatbuffer.py read their own data files in the way of Python 3.10.
    (r"(read|open)_(text|binary) is deprecated", DeprecationWarning, r"(executorch\.exir|importlib\.resources)\."),
    # torch's own modules are scripted when they are imported.
    (r"`torch\.jit\.script_method` is deprecated", DeprecationWarning, r"torch\.jit\."),
    # executorch.extension.pybindings.portable_lib, which registers the runtime that a .pte runs in.
    (r"This API is experimental and subject to change", Warning, r"executorch\."),
    # Every deep copy of a program's signature: copyreg makes the class anew, and torch warns of the class.
    (r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning, r"copyreg"),
)
"""Beginning of the message, category, and the module that it is said to come from; the first and the last as patterns."""

LOGS: tuple[tuple[str, str], ...] = (
    # C++ extensions for GPUs that torchao's wheel has for other releases of Python and of CUDA.
    ("torchao", "Failed to load "),
    # torchao registers its enumerations with torch's pytrees.
    ("torch.utils._pytree", "%s is an Enum subclass and is now natively supported by"),
)
"""Logger, and the beginning of the message before its arguments are put in."""


def ignore_known() -> None:
    """Turns these warnings off, for the process, whatever its -W options say."""
    for message, category, module in WARNINGS:
        warnings.filterwarnings("ignore", message, category, module)
    for name, beginning in LOGS:
        logging.getLogger(name).addFilter(_Without(beginning))


class _Without(logging.Filter):
    """Lets pass what does not begin like this."""

    def __init__(self, beginning: str) -> None:
        super().__init__()
        self.beginning = beginning

    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(self.beginning)
