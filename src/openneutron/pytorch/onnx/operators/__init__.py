# SPDX-License-Identifier: BSD-3-Clause
"""The form of each ONNX operator in PyTorch, one file for each family.

A converter is a function of the node and the values of its inputs. It calls PyTorch's functions and returns the output, or a tuple of
them. It runs twice: once for the shapes of the values, and once when torch.export records it. Operators without a converter, for which
ONNX has a definition in other operators, are replaced by that definition.
"""

from openneutron.pytorch.onnx.operators import (  # noqa: F401
    attention,
    convolution,
    elementwise,
    machine_learning,
    matmul,
    movement,
    normalization,
    quantization,
    recurrent,
    reduction,
    shape,
    spectrum,
)
from openneutron.pytorch.onnx.operators.table import OPERATORS, NodeView, Refused

__all__ = ["OPERATORS", "NodeView", "Refused"]
