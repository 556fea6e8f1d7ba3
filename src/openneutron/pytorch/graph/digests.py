# SPDX-License-Identifier: BSD-3-Clause
"""Hashes of torch graphs: of operators that are the same wherever torch is, of tensors and of calibration samples."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from openneutron.device.cache import Digest
from openneutron.pytorch.graph.program import arguments_of, overload_of

KNOWN_OPERATORS = ("aten", "prims", "quantized_decomposed")
"""The namespaces of operators that are another only where torch is another. Operators of users may change at any time."""


def is_known(node: Node, module: GraphModule) -> bool:
    """Return whether a hash of a node's text and tensors has all that its result depends on.

    It has not for operators of users, random ones, control flow, and calls of modules.
    """
    if node.op == "get_attr":
        return type(attrgetter(str(node.target))(module)) in (torch.Tensor, nn.Parameter)
    if node.op != "call_function":
        return node.op in ("placeholder", "output")
    overload = overload_of(node)
    if overload is None:
        return getattr(node.target, "__module__", "") in ("_operator", "operator")
    return overload.namespace in KNOWN_OPERATORS and not _is_random(node, overload)


def _is_random(node: Node, overload: torch._ops.OpOverload) -> bool:
    """Return whether a call draws random numbers. Dropouts outside of training do not, nor does an attention without one."""
    if torch.Tag.nondeterministic_seeded not in overload.tags:
        return False
    given = arguments_of(node)
    return given.get("train") is not False and given.get("dropout_p") != 0


def machine() -> str:
    """Return all of the machine that the results of torch's kernels depend on, as text."""
    return repr((torch.get_num_threads(), torch.backends.cpu.get_cpu_capability()))


def add_node(digest: Digest, node: Node, module: GraphModule) -> None:
    """Add a node, with the tensor that it stands for."""
    digest.add(repr((node.name, node.op, str(node.target), node.args, node.kwargs)).encode())
    if node.op == "get_attr":
        add_tensor(digest, attrgetter(str(node.target))(module))


def add_tensor(digest: Digest, tensor: torch.Tensor) -> None:
    digest.add(repr((tensor.dtype, tuple(tensor.shape), tensor.stride())).encode())
    digest.add(bytes_of(tensor))


def add_samples(digest: Digest, samples: Iterable[Any]) -> None:
    """Add calibration samples: tuples of arguments, or calls with ``args`` and ``kwargs``."""
    for sample in samples:
        leaves = pytree.tree_leaves((getattr(sample, "args", sample), dict(getattr(sample, "kwargs", {}))))
        digest.add(str(len(leaves)).encode())
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                add_tensor(digest, leaf)
            else:
                digest.add(repr(leaf).encode())


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Return the values of a tensor, row by row."""
    # Of a copy: a tensor that NumPy has seen can't be resized any more, and observers resize theirs.
    copied = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    return copied.reshape(-1).view(torch.uint8).numpy().tobytes()
