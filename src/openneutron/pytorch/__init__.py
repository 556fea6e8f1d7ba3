# SPDX-License-Identifier: BSD-3-Clause
"""From PyTorch to the NPU: quantizer, partitioner, lowering and ExecuTorch backend.

Module and class names below this package are those of ExecuTorch's NXP backend, so that a script written for it needs only
``executorch.backends.nxp`` replaced by ``openneutron.pytorch`` in its imports.
"""

from openneutron.pytorch.graph.known_warnings import ignore_known

ignore_known()
