# SPDX-License-Identifier: BSD-3-Clause
"""Calibrated ranges as entries of a cache: the buffers of all observers.

A prepared module states all that its calibration depends on, besides the samples: the operators, the weights, and the
observers, which follow from the options of the quantization. The file is ``length of the JSON in 8 bytes, JSON, buffers``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.observer import ObserverBase

from openneutron.device.cache import UNREADABLE, Digest, Store, code
from openneutron.pytorch.graph.digests import add_node, add_samples, add_tensor, bytes_of, is_known, machine

KIND = "ranges"
LENGTH_BYTES = 8

LIBRARIES = ("torch", "torchao", "numpy")

KNOWN_OBSERVERS = ("openneutron", "torchao")
"""The packages whose observers keep what they have seen in buffers."""


def key_of(prepared: GraphModule, samples: Sequence[Any]) -> str | None:
    """Return the hash of all that the ranges of a prepared module depend on; None where that is not known.

    It is not known of operators of users, of random ones, of control flow, and of observers of users.
    """
    if not all(_is_known(node, prepared) for node in prepared.graph.nodes):
        return None
    digest = Digest(KIND, code(*LIBRARIES), machine())
    for node in prepared.graph.nodes:
        add_node(digest, node, prepared)
        if node.op == "call_module":
            digest.add(repr(list(_settings(prepared.get_submodule(str(node.target))))).encode())
            for tensor in _buffers(prepared.get_submodule(str(node.target))).values():
                add_tensor(digest, tensor)
    add_samples(digest, samples)
    return digest.hex()


def _is_known(node: Node, prepared: GraphModule) -> bool:
    if node.op != "call_module":
        return is_known(node, prepared)
    observer = prepared.get_submodule(str(node.target))
    return isinstance(observer, ObserverBase) and type(observer).__module__.split(".")[0] in KNOWN_OBSERVERS


def _settings(observer: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield the class of an observer and its settings, in words."""
    yield "class", f"{type(observer).__module__}.{type(observer).__qualname__}"
    for name, value in sorted(vars(observer).items()):
        if isinstance(value, (bool, int, float, str, tuple, torch.dtype, torch.qscheme)):
            yield name, repr(value)


def _observers(prepared: GraphModule) -> dict[str, nn.Module]:
    return {
        str(node.target): prepared.get_submodule(str(node.target))
        for node in prepared.graph.nodes
        if node.op == "call_module"
    }


def _buffers(observer: nn.Module) -> dict[str, torch.Tensor]:
    return dict(observer.named_buffers())


def save(store: Store, key: str, prepared: GraphModule) -> None:
    """Write what the observers of a calibrated module have seen."""
    facts: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for target, observer in _observers(prepared).items():
        for name, tensor in _buffers(observer).items():
            dtype = str(tensor.dtype).removeprefix("torch.")
            facts.append({"observer": target, "name": name, "dtype": dtype, "shape": list(tensor.shape)})
            blobs.append(bytes_of(tensor))
    header = json.dumps(facts).encode()
    store.put(KIND, key, b"".join((len(header).to_bytes(LENGTH_BYTES, "little"), header, *blobs)))


def restore(store: Store, key: str, prepared: GraphModule) -> bool:
    """Return whether the cache has the ranges of this calibration; the observers then are as they were at its end."""
    data = store.get(KIND, key)
    if data is None:
        return False
    observers = _observers(prepared)
    wanted = {(target, name) for target, observer in observers.items() for name in _buffers(observer)}
    start = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
    try:
        found: dict[tuple[str, str], torch.Tensor] = {}
        for item in json.loads(data[LENGTH_BYTES:start]):
            dtype = getattr(torch, item["dtype"])
            size = torch.Size(item["shape"]).numel() * dtype.itemsize
            tensor = (
                torch.frombuffer(bytearray(data[start : start + size]), dtype=dtype)
                if size
                else torch.empty(0, dtype=dtype)
            )
            found[item["observer"], item["name"]] = tensor.reshape(item["shape"]).clone()
            start += size
    except UNREADABLE:
        return False
    if found.keys() != wanted:
        return False
    for (target, name), tensor in found.items():
        setattr(observers[target], name, tensor)
    return True
