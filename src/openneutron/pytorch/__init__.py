# SPDX-License-Identifier: BSD-3-Clause
"""From PyTorch to the NPU: quantizer, partitioner, lowering and ExecuTorch backend.

Module and class names below this package are those of ExecuTorch's NXP backend, so that a script written for it needs only
``executorch.backends.nxp`` replaced by ``openneutron.pytorch`` in its imports.
"""

import logging
import warnings

from openneutron.pytorch.short_imports import shorten_imports

WARNINGS: tuple[tuple[str, type[Warning], str], ...] = (
    # exir/dialects/edge/_ops.py and exir/_serialize/_flatbuffer.py read their own data files in the way of Python 3.10.
    (r"(read|open)_(text|binary) is deprecated", DeprecationWarning, r"(executorch\.exir|importlib\.resources)\."),
    # torch's own modules are scripted when they are imported.
    (r"`torch\.jit\.script_method` is deprecated", DeprecationWarning, r"torch\.jit\."),
    # executorch.extension.pybindings.portable_lib, which registers the runtime that a .pte runs in.
    (r"This API is experimental and subject to change", Warning, r"executorch\."),
    # Every deep copy of a program's signature: copyreg creates the class again, and torch warns about the class.
    (r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning, r"copyreg"),
)
"""Start of the message, category, and the module that the warning names; the first and the last are patterns."""

LOGS: tuple[tuple[str, str], ...] = (
    # C++ extensions for GPUs that torchao's wheel has for other releases of Python and of CUDA.
    ("torchao", "Failed to load "),
    # torchao registers its enumerations with torch's pytrees.
    ("torch.utils._pytree", "%s is an Enum subclass and is now natively supported by"),
)
"""Logger, and the start of the message before its arguments are inserted."""


def ignore_known() -> None:
    """Suppress these warnings in this process, whatever its -W options are."""
    for message, category, module in WARNINGS:
        warnings.filterwarnings("ignore", message, category, module)
    for name, beginning in LOGS:
        logging.getLogger(name).addFilter(_Without(beginning))


class _Without(logging.Filter):
    """A filter that passes records whose message does not start with ``beginning``."""

    def __init__(self, beginning: str) -> None:
        super().__init__()
        self.beginning = beginning

    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(self.beginning)


ignore_known()
shorten_imports()
