# SPDX-License-Identifier: BSD-3-Clause
"""Hash the parts of torch graphs for cache keys: nodes, tensors and calibration samples."""

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
"""The namespaces of operators that change only with the release of torch. A user's operators may change at any time."""


def is_known(node: Node, module: GraphModule) -> bool:
    """Return whether ``add_node`` hashes everything that a node's result depends on.

    The result is False for a user's operators, random operators, control flow and calls of modules.
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
    """Return whether a call draws random numbers. A dropout in inference and an attention without dropout draw none."""
    if torch.Tag.nondeterministic_seeded not in overload.tags:
        return False
    given = arguments_of(node)
    return given.get("train") is not False and given.get("dropout_p") != 0


def machine() -> str:
    """Return the facts of the machine that change the results of torch's kernels, as text: threads and CPU features."""
    return repr((torch.get_num_threads(), torch.backends.cpu.get_cpu_capability()))


def add_node(digest: Digest, node: Node, module: GraphModule) -> None:
    """Add a node's text to the digest, and for a ``get_attr`` node its tensor too."""
    digest.add(repr((node.name, node.op, str(node.target), node.args, node.kwargs)).encode())
    if node.op == "get_attr":
        add_tensor(digest, attrgetter(str(node.target))(module))


def add_tensor(digest: Digest, tensor: torch.Tensor) -> None:
    digest.add(repr((tensor.dtype, tuple(tensor.shape), tensor.stride())).encode())
    digest.add(bytes_of(tensor))


def add_samples(digest: Digest, samples: Iterable[Any]) -> None:
    """Add calibration samples to the digest: tuples of arguments, or objects with ``args`` and ``kwargs``."""
    for sample in samples:
        leaves = pytree.tree_leaves((getattr(sample, "args", sample), dict(getattr(sample, "kwargs", {}))))
        digest.add(str(len(leaves)).encode())
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                add_tensor(digest, leaf)
            else:
                digest.add(repr(leaf).encode())


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Return the values of a tensor as bytes in row-major order."""
    # NumPy gets a copy: a tensor that shares memory with NumPy can't be resized any more, and observers resize tensors.
    copied = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    return copied.reshape(-1).view(torch.uint8).numpy().tobytes()
