# SPDX-License-Identifier: BSD-3-Clause
"""Which operators ExecuTorch computes on the CPU: those its runtime on this machine has kernels for."""

from __future__ import annotations

from functools import cache

import executorch.kernels.quantized  # noqa: F401  (registers the quantize and dequantize operators of the borders)
import torch
from executorch.exir.operator.convert import to_out_variant
from executorch.runtime import Runtime
from torch.fx import Node

from openneutron.pytorch.graph.program import overload_of

_VIEWS = frozenset(("aten.view_copy.default", "aten.alias_copy.default", "aten._assert_scalar.default"))
"""What memory planning, or emission, leaves no call of."""


def has_cpu_kernel(node: Node) -> bool:
    """Whether a call can run on the CPU. What is no operator of a library (getitem, control flow, sizes) always can."""
    overload = overload_of(node)
    return overload is None or str(overload) in _VIEWS or _has_kernel(overload)


@cache
def _has_kernel(overload: torch._ops.OpOverload) -> bool:
    if not any(isinstance(item.type, torch.TensorType) for item in overload._schema.returns):
        # Lists of tensors and numbers are told apart by the emitter; it says itself what it can't do.
        return True
    try:
        schema = to_out_variant(overload)[0]._schema
    # ExecuTorch raises RuntimeErrors of several kinds for operators without an out variant.
    except Exception:
        return False
    name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    return name in registered()


@cache
def registered() -> frozenset[str]:
    """Return the names of the kernels that ExecuTorch's runtime has, such as ``aten::add.out``."""
    return frozenset(Runtime.get().operator_registry.operator_names)
